"""The reflector: lists and watches one kind of object, caches it, and calls a handler for every change.

    list (in pages) ─► store ─► watch from the list's version ─► events ─► store, on_change(old, new)
         ▲                              │ the stream ends: watch again from the last version seen
         └── 410: that version is gone ─┘

Bookmarks keep the resource version recent on quiet kinds. A relist after a 410 is compared with the store, so that
missed changes and deletions still reach `on_change`. Nothing is buffered without bound: while events are being handled,
the socket is not read. Handling is synchronous and yields to the other tasks between portions.

No single object stops a watch. One that cannot be decoded leaves the store unchanged; `on_undecodable` is called for
it, and again when it is gone or can be decoded. An error of a handler is contained (delivery.py).

https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple, TypeVar

import msgspec

from carico.backoff import doubled, spread
from carico.clock import Clock, SystemClock
from carico.errors import ApiError, CaricoError, HttpError, ResourceExpired
from carico.kube.calls import FollowedResource
from carico.kube.client import Client, ResponseStream
from carico.kube.decode import FAILURES, decode, read, read_remains
from carico.kube.delivery import Change, Firewall
from carico.kube.meta import NamedObject
from carico.kube.mirror import ListResult, Mirror, OnUndecodable, ignore

log = logging.getLogger(__name__)

PAGE = 2000  # objects per page of a list
PORTION = 200  # events that are handled before other tasks get their turn
QUIET = 150.0  # s without a byte, twice the server's bookmark interval, after which a stream is abandoned
WATCH_FOR = 420  # s after which the server ends a stream, so that connections spread over API servers again
ABSENT_EVERY = 60.0  # s between two checks whether a missing kind of object has appeared
HEALTHY_AFTER = 5.0  # s that a list and watch must last, or the next one waits longer
CHANGES = ("ADDED", "MODIFIED", "DELETED")  # types of events that carry an object
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0  # s before the next one

T = TypeVar("T", bound=NamedObject)
E = TypeVar("E")


class WatchedResource(NamedTuple, Generic[T]):
    """A resource to follow, and the type that its objects are decoded to."""

    followed: FollowedResource
    type: type[T]  # with the few fields that its reader needs: every object of the kind is cached
    selector: str = ""  # more query parameters, e.g. a field selector
    title: str = ""  # for users; empty: the resource's plural name
    namespace: str = ""  # all of them

    @property
    def path(self) -> str:
        return self.followed.list.path(self.namespace)

    @property
    def optional(self) -> bool:
        """Whether an API server may not serve it, or the client may lack the right to read it."""
        return self.followed.list.optional

    @property
    def kind(self) -> str:
        return self.type.__name__

    @property
    def plural(self) -> str:
        return self.title or self.followed.resource.plural


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str | None = None
    continue_: str | None = msgspec.field(name="continue", default=None)


class _List(msgspec.Struct):
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: list[msgspec.Raw] | None = None


class _Event(msgspec.Struct, Generic[E]):
    type: str
    object: E


class _Error(msgspec.Struct):
    code: int = 0
    message: str = ""


def _nothing() -> None:
    """The default of the counters: counts nothing."""


class Reflector(Generic[T]):
    """The cache of one kind. `synced` is set after the first list; `version` is the newest resource version seen."""

    def __init__(
        self,
        client: Client,
        resource: WatchedResource[T],
        on_change: Change[T],
        *,
        on_undecodable: OnUndecodable = ignore,
        count_undecodable: Callable[[], object] = _nothing,
        count_handler_error: Callable[[], object] = _nothing,
        clock: Clock | None = None,
    ) -> None:
        self._client, self.resource = client, resource
        self._clock = clock or SystemClock()
        self._firewall = Firewall(f"a change of a {resource.kind} could not be handled", count_handler_error)
        self._count_undecodable = count_undecodable
        self._mirror = Mirror(resource.type, on_change, on_undecodable, count_undecodable, self._firewall, self._clock)
        self._event = msgspec.json.Decoder(_Event[resource.type])  # type: ignore[name-defined]
        self._relist = False  # a relist is due, and a watch in progress must end for it
        self._stream: ResponseStream | None = None
        self._listed = asyncio.Event()
        self.store = self._mirror.objects
        self.version = ""
        self.synced = asyncio.Event()
        self.progressed_at = self._clock.monotonic()  # s, monotonic: last event, bookmark or page of a list
        self.lists = 0
        self.watches = 0

    async def run(self) -> None:
        failures = 0
        try:
            while True:
                began = self._clock.monotonic()
                failed = await self._list_and_watch()
                lasted = self._clock.monotonic() - began
                failures = int(failed) if lasted >= HEALTHY_AFTER else failures + 1
                if failures and (failed or not self._relist):  # otherwise `refresh` waits for a list
                    await self._clock.sleep(spread(doubled(FIRST_PAUSE, LONGEST_PAUSE, failures)))
        finally:
            self._mirror.stop()

    async def refresh(self) -> None:
        """Compares the store with the API server's current state, as a new leader must before it relies on the store.

        Not concurrent with a watch: a list that is older than the last event would revert what the event changed.
        """
        self._relist = True
        self._listed.clear()
        if self._stream is not None:
            self._stream.close()
        await self._listed.wait()

    async def _list_and_watch(self) -> bool:
        """Whether something failed; no failure may end the process."""
        try:
            await self._list_if_needed()
            await self._watch()
            return False
        except ResourceExpired as error:
            self._relist = True
            log.info("watch of %s: %s; listing again", self.resource.path, error)
        except (CaricoError, OSError, msgspec.DecodeError) as error:
            log.warning("watch of %s: %s; trying again", self.resource.path, str(error) or type(error).__name__)
        except Exception as error:
            self._firewall.caught(error)
        return True

    # --- list ---

    async def _list_if_needed(self) -> None:
        while not self.version or self._relist:
            try:
                await self._list()
            except BaseException as error:
                self._relist = True
                if not (isinstance(error, ApiError) and error.status in (403, 404) and self.resource.optional):
                    raise
                self._progress()
                self.synced.set()
                await self._clock.sleep(ABSENT_EVERY)

    async def _list(self) -> None:
        self._relist = False  # from here on; a request for another relist meanwhile is served by another list
        found: ListResult[T] = ListResult()
        resume, version = "", ""
        while True:
            query = f"?limit={PAGE}{self.resource.selector}" + (f"&continue={resume}" if resume else "")
            page = read(_List, await self._client.call("GET", self.resource.path + query))
            await self._read_page(page, found)
            version = version or page.metadata.resource_version or ""
            resume = page.metadata.continue_ or ""
            if not resume:
                break
        if not version:
            raise CaricoError("the list has no version")
        self.lists += 1
        self._mirror.replace(found)
        self.version = version
        self.synced.set()
        if not self._relist:
            self._listed.set()

    async def _read_page(self, page: _List, found: ListResult[T]) -> None:
        self._progress()
        for portion in _portions(page.items or []):
            for item in portion:
                found.add(self._mirror.decode(item))
            await asyncio.sleep(0)

    # --- watch ---

    async def _watch(self) -> None:
        wait = WATCH_FOR + random.randrange(WATCH_FOR // 2)
        query = f"?watch=1&allowWatchBookmarks=true&timeoutSeconds={wait}&resourceVersion={self.version}"
        try:
            stream = self._stream = await self._client.open_stream(self.resource.path + query + self.resource.selector)
        except ApiError as error:
            raise (ResourceExpired(error.message) if error.status == 410 else error) from error
        self.watches += 1
        rest = b""
        try:
            while not self._relist:
                async with asyncio.timeout(QUIET):
                    part = await anext(stream.parts, None)
                if part is None:
                    return
                *lines, rest = (rest + part).split(b"\n")
                if lines:
                    self._progress()
                for portion in _portions(lines):
                    for line in portion:
                        self._take(line)
                    if len(lines) > PORTION:
                        await asyncio.sleep(0)
        except HttpError:
            if not self._relist:  # otherwise `refresh` broke the connection
                raise
        finally:
            self._stream = None
            stream.close()

    def _progress(self) -> None:
        self.progressed_at = self._clock.monotonic()

    def _take(self, line: bytes) -> None:
        """Handles one event. Its object is decoded in the same pass, unless the event is a special one."""
        try:
            event: _Event[T] = self._event.decode(line)
        except FAILURES:
            self._take_special(line)
            return
        meta = event.object.metadata
        if event.type not in CHANGES or not meta.uid or not meta.name:
            self._take_special(line)
            return
        self.version = meta.resource_version or self.version
        if event.type == "DELETED":
            self._mirror.delete(event.object)
        else:
            self._mirror.put(event.object)

    def _take_special(self, line: bytes) -> None:
        """Handles an event without an object, or one whose object cannot be decoded directly."""
        if not line:
            return
        try:
            event = read(_Event[msgspec.Raw], line)
        except FAILURES as error:  # its object and resource version stay unknown
            self._count_undecodable()
            raise ResourceExpired(f"a line of the watch is not an event: {error}") from error
        if event.type == "ERROR":
            failure = decode(_Error, bytes(event.object))
            if failure.code == 410:
                raise ResourceExpired(failure.message)
            raise CaricoError(f"the watch of {self.resource.path} ended with {failure.code}: {failure.message}")
        if event.type == "BOOKMARK":  # only its resource version is meaningful: the other fields are empty or null
            self.version = read_remains(event.object).metadata.resource_version or self.version
        if event.type not in CHANGES:
            return
        obj = self._mirror.decode(event.object)
        self.version = obj.metadata.resource_version or self.version
        if event.type == "DELETED":
            self._mirror.delete(obj)
        else:
            self._mirror.put(obj)


P = TypeVar("P")


def _portions(items: list[P]) -> Iterator[list[P]]:
    """
    >>> [len(p) for p in _portions(list(range(450)))]
    [200, 200, 50]
    """
    for start in range(0, len(items), PORTION):
        yield items[start : start + PORTION]
