"""A watch: the existing objects, if requested, then every change as it happens, in one endless response.

It stores its position in the history and continues when there are changes and the reader has caught up. A reader that
is too slow loses its position and gets an error (410): it lists again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from carico.clock import Clock
from carico.embedded.apiserver.history import ObjectChange, ObjectRecord
from carico.embedded.apiserver.http import StreamSink
from carico.embedded.apiserver.representations import Form, event
from carico.embedded.apiserver.selection import Test
from carico.embedded.apiserver.status_error import StatusError, bad_request, expired
from carico.embedded.apiserver.store import ApiStore
from carico.http.message import JSON

PORTION = 500  # changes that are sent before other tasks run
BOOKMARK_EVERY = 60.0  # s
LONGEST = 3600.0  # s that a watch lasts unless the client requests less


@dataclass(frozen=True)
class WatchParameters:
    """The parameters of a watch request."""

    form: Form
    test: Test
    since: str  # a resourceVersion; "" and "0": existing objects first, then changes
    bookmarks: bool = False
    initial: bool = False  # send existing objects, then a bookmark that marks their end
    seconds: float | None = None


class ApiWatch:
    media = JSON

    def __init__(
        self, wanted: WatchParameters, store: ApiStore, clock: Clock, present: Callable[[], Iterable[ObjectRecord]]
    ) -> None:
        self._wanted, self._store, self._clock, self._present = wanted, store, clock, present
        self._history = store.collection(wanted.form.kind).history
        self._fresh = wanted.initial or wanted.since in ("", "0")
        self._place = self._history.end if self._fresh else self._start(wanted.since)
        self._due = False
        self._timers: list[Callable[[], object]] = []
        self._sink: StreamSink | None = None

    def _start(self, since: str) -> int:
        if not since.isascii() or not since.isdigit():
            raise bad_request(f'resourceVersion: Invalid value: "{since}": must be a whole number')
        place = self._history.place_after(int(since))
        if place is None or int(since) < self._store.first or int(since) > self._store.version:
            raise self._too_old(since)
        return place

    def _too_old(self, since: str) -> StatusError:
        oldest = max(self._history.oldest, self._store.first)
        return expired(f"too old resource version: {since} ({oldest})")

    def begin(self, sink: StreamSink) -> None:
        self._sink = sink
        self._history.listeners.add(self._news)
        now = self._clock.monotonic()
        longest = LONGEST * (0.5 + 0.5 * random.random())
        self._timers = [self._clock.call_at(now + (self._wanted.seconds or longest), sink.finish)]
        if self._fresh:
            self._send_present(sink)
        if self._wanted.bookmarks:
            self._plan_bookmark()
        self.go_on()

    def end(self) -> None:
        self._history.listeners.discard(self._news)
        for call_off in self._timers:
            call_off()
        self._timers = []

    def _send_present(self, sink: StreamSink) -> None:
        form, wall = self._wanted.form, self._clock.wall()
        sink.send(b"".join([event("ADDED", form.one(record, wall)) for record in self._present()]))
        if self._wanted.initial:
            sink.send(form.bookmark(self._store.version, initial_end=True))

    def _news(self) -> None:
        """Schedule one send for all changes of an iteration of the event loop."""
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self.go_on)

    def go_on(self) -> None:
        self._due = False
        sink = self._sink
        if sink is None or not sink.open:
            return
        changes = self._history.since(self._place, PORTION)
        if changes is None:
            sink.send(event("ERROR", self._too_old("the one of this watch").encode()))
            sink.finish()
            return
        self._place += len(changes)
        wall = self._clock.wall()
        sink.send(b"".join([self._line(change, wall) for change in changes]))
        if len(changes) == PORTION:
            self._news()

    def _line(self, change: ObjectChange, wall: float) -> bytes:
        """The change as an event for a watch that sees only matching objects."""
        test, form = self._wanted.test, self._wanted.form
        before = change.old is not None and test(change.old.plain)
        if change.new is not None and test(change.new.plain):
            return form.line(change, "MODIFIED" if before else "ADDED", change.new, wall)
        return form.line(change, "DELETED", change.last_seen(), wall) if before else b""

    def _plan_bookmark(self) -> None:
        def send_bookmark() -> None:
            sink = self._sink
            if sink is not None and sink.open and self._place == self._history.end:
                sink.send(self._wanted.form.bookmark(self._store.version))
            self._plan_bookmark()

        self._timers[1:] = [self._clock.call_at(self._clock.monotonic() + BOOKMARK_EVERY, send_bookmark)]
