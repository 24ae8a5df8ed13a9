"""List, then watch, for ever: a faithful copy of one kind of object, and a call for every change of it.

    list (in pages) ─► store ─► watch from the list's version ─► events ─► store, on_change(old, new)
         ▲                              │ the stream ends: watch again from the last version seen
         └── 410: that version is gone ─┘

Bookmarks keep the version fresh on quiet kinds. A list after a 410 is compared with the store, so that what was missed
(changes and deletions alike) still reaches `on_change`. Nothing is buffered without bound: while events are being
handled, the socket is not read. Handling is synchronous and gives way to the other tasks between portions.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple, TypeVar

import msgspec

from carico.clock import Clock, SystemClock
from carico.errors import CaricoError
from carico.kube.chunked import HttpError
from carico.kube.client import ApiError, Client, Stream
from carico.kube.meta import KubeObject

log = logging.getLogger(__name__)

PAGE = 2000  # objects per page of a list
PORTION = 200  # events that are handled before other tasks get their turn
QUIET = 150.0  # s without a byte, twice the server's bookmark interval, after which a stream is given up
WATCH_FOR = 420  # s after which the server ends a stream, so that connections spread over API servers again
ABSENT_EVERY = 60.0  # s between two looks whether a missing kind of object has come

T = TypeVar("T", bound=KubeObject)


class Resource(NamedTuple, Generic[T]):
    """A kind of object: where the API server has it and what it decodes to."""

    path: str
    type: type[T]
    selector: str = ""  # more query parameters, e.g. a field selector
    optional: bool = False  # an API server may not know this kind at all, or we may not have the right to read it


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class _List(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Bookmark(msgspec.Struct):
    """Of a bookmark only the version means anything: its other fields are there, but empty or null."""

    metadata: _ListMeta


class _Error(msgspec.Struct):
    code: int = 0
    message: str = ""


class Expired(CaricoError):
    """The version to watch from is gone: list again."""


Change = Callable[[T | None, T | None], None]


class Reflector(Generic[T]):
    """The copy of one kind. `synced` is set after the first list; `version` is the newest one seen."""

    def __init__(
        self, client: Client, resource: Resource[T], on_change: Change[T], *, clock: Clock | None = None
    ) -> None:
        self._client, self._resource, self._on_change = client, resource, on_change
        self._clock = clock or SystemClock()
        self._object = msgspec.json.Decoder(resource.type)
        self._event = msgspec.json.Decoder(_Event)
        self._relist = False  # a list is due, and a watch that is under way must end for it
        self._stream: Stream | None = None
        self._listed = asyncio.Event()
        self.store: dict[str, T] = {}
        self.version = ""
        self.synced = asyncio.Event()
        self.lists = 0
        self.watches = 0

    async def run(self) -> None:
        failures = 0
        while True:
            try:
                await self._list_if_needed()
                await self._watch()
                failures = 0
            except Expired:
                self._relist = True
                failures = 0
            except (CaricoError, OSError, msgspec.DecodeError) as error:
                failures += 1
                why = str(error) or type(error).__name__
                log.warning("watch of %s: %s; trying again", self._resource.path, why)
            if failures:
                await self._clock.sleep(min(10.0, 0.1 * 2**failures) * (0.75 + 0.5 * random.random()))

    async def refresh(self) -> None:
        """Compares the store with the API server's present state, as a new leader must before it trusts the store.

        Not beside a watch: a list that is older than the last event would take back what the event brought.
        """
        self._relist = True
        self._listed.clear()
        if self._stream is not None:
            self._stream.close()
        await self._listed.wait()

    async def _list_if_needed(self) -> None:
        while not self.version or self._relist:
            try:
                await self._list()
            except BaseException as error:
                self._relist = True
                if not (isinstance(error, ApiError) and error.status in (403, 404) and self._resource.optional):
                    raise
                self.synced.set()
                await self._clock.sleep(ABSENT_EVERY)

    async def _list(self) -> None:
        self._relist = False  # from here on; asked for again meanwhile, it will be done again
        found: dict[str, T] = {}
        resume, version = "", ""
        while True:
            query = f"?limit={PAGE}{self._resource.selector}" + (f"&continue={resume}" if resume else "")
            page = msgspec.json.decode(await self._client.call("GET", self._resource.path + query), type=_List)
            for portion in _portions(page.items or []):
                for item in portion:
                    thing = self._object.decode(item)
                    found[thing.key] = thing
                await asyncio.sleep(0)
            version = version or page.metadata.resource_version
            resume = page.metadata.continue_
            if not resume:
                break
        self.lists += 1
        self._replace(found)
        self.version = version
        self.synced.set()
        if not self._relist:
            self._listed.set()

    def _replace(self, found: dict[str, T]) -> None:
        for key in [key for key in self.store if key not in found]:
            self._on_change(self.store.pop(key), None)
        for thing in found.values():
            self._put(thing)

    def _put(self, new: T) -> None:
        old = self.store.get(new.key)
        if old is not None and old.metadata.resource_version == new.metadata.resource_version:
            return
        if old is not None and old.uid != new.uid:  # deleted and made again between two looks
            self._on_change(old, None)
            old = None
        self.store[new.key] = new
        self._on_change(old, new)

    async def _watch(self) -> None:
        wait = WATCH_FOR + random.randrange(WATCH_FOR // 2)
        query = f"?watch=1&allowWatchBookmarks=true&timeoutSeconds={wait}&resourceVersion={self.version}"
        try:
            stream = self._stream = await self._client.open_stream(
                self._resource.path + query + self._resource.selector
            )
        except ApiError as error:
            raise (Expired(error.message) if error.status == 410 else error) from error
        self.watches += 1
        rest = b""
        try:
            while not self._relist:
                async with asyncio.timeout(QUIET):
                    part = await anext(stream.parts, None)
                if part is None:
                    return
                *lines, rest = (rest + part).split(b"\n")
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

    def _take(self, line: bytes) -> None:
        if not line:
            return
        event = self._event.decode(line)
        if event.type == "ERROR":
            error = msgspec.json.decode(event.object, type=_Error)
            if error.code == 410:
                raise Expired(error.message)
            raise CaricoError(f"the watch of {self._resource.path} ended with {error.code}: {error.message}")
        if event.type == "BOOKMARK":
            self.version = msgspec.json.decode(event.object, type=_Bookmark).metadata.resource_version
            return
        thing = self._object.decode(event.object)
        self.version = thing.metadata.resource_version
        if event.type == "DELETED":
            if (old := self.store.pop(thing.key, None)) is not None:
                self._on_change(thing if thing.uid == old.uid else old, None)
        else:
            self._put(thing)


P = TypeVar("P")


def _portions(items: list[P]) -> Iterator[list[P]]:
    """
    >>> [len(p) for p in _portions(list(range(450)))]
    [200, 200, 50]
    """
    for start in range(0, len(items), PORTION):
        yield items[start : start + PORTION]
