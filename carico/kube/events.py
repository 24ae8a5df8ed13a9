"""Events (events.k8s.io) for scheduling decisions: `Scheduled`, `FailedScheduling`, `Preempted`.

They never delay a decision. Events that happen once (`Scheduled`, `Preempted`) go first. Repetitions for the same pod
become a series of one Event, as in kube-scheduler: they are counted in memory; the series is written at the second
occurrence, then every few minutes, and once more when there was no repetition for a while. The API server rejects a new
note for an existing Event; if the note has changed when the series is to be written, a new Event begins.

An Event keeps its name through all attempts to send it: one that arrived although its response was lost is not written
twice.
"""

from __future__ import annotations

import logging
import math
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from carico.clock import Clock
from carico.errors import ApiError, QueueFullError
from carico.kube import calls, protobuf
from carico.kube.binding import rfc3339
from carico.kube.client import MERGE_PATCH, Client, Fence
from carico.kube.objects import Pod
from carico.kube.writer import ApiWriter
from carico.kube.writes import Urgency, Write

log = logging.getLogger(__name__)

NOTE_LIMIT = 1024  # bytes; the API server rejects more
SERIES = 50_000  # whose repetitions are recognised
REFRESH = 300.0  # s between two writes of a series, from its third occurrence on
FINISH = 360.0  # s without a repetition after which a series has ended, as in client-go
LOOK_EVERY = 60.0  # s between two checks for series that have ended
PATIENCE = 3600.0  # s; API servers keep Events for an hour
WARN_EVERY = 10.0  # s between two log lines about lost Events

Key = tuple[str, str, str, str]


class Event(msgspec.Struct, frozen=True):
    """An Event to record for a pod."""

    pod: Pod
    type: str  # Normal or Warning; what is Normal happens once
    reason: str
    action: str
    note: str
    related: Pod | None = None

    @property
    def key(self) -> Key:
        return (self.pod.uid, self.reason, self.action, self.type)


class _Reference(msgspec.Struct, frozen=True, gc=False):
    """The fields of a pod that an Event holds: the pod itself may be gone long before its Event is sent."""

    name: str
    namespace: str
    uid: str
    version: str

    def plain(self) -> dict[str, str]:
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": self.name,
            "namespace": self.namespace,
            "uid": self.uid,
            "resourceVersion": self.version,
        }


class _Series(msgspec.Struct, eq=False, gc=False):
    """An Event in the API server, and how often it has occurred."""

    name: str
    type: str
    reason: str
    action: str
    pod: _Reference
    related: _Reference | None
    note: str  # the newest
    began: float  # wall clock
    last: float  # wall clock
    said_at: float  # s, monotonic
    first: bool = True  # False: an earlier Event of the series had another note
    count: int = 1
    written: int = 0  # the count stored in the API server; 0: there is no such Event
    written_note: str = ""
    put_at: float = -math.inf  # s, monotonic, when it was last passed to the writer
    waits: bool = False  # it is in the writer's queue

    @property
    def urgency(self) -> Urgency:
        return Urgency.SCHEDULED_EVENT if self.type == "Normal" else Urgency.EVENT

    @property
    def namespace(self) -> str:
        return self.pod.namespace or "default"

    def repeat(self, note: str, wall: float, now: float) -> None:
        self.count += 1
        self.note, self.last, self.said_at = note, wall, now

    def restart(self, name: str) -> None:
        """Becomes another Event that first occurred just now."""
        self.name, self.began, self.first, self.count, self.written = name, self.last, False, 1, 0

    def whole(self) -> dict[str, Any]:
        event: dict[str, Any] = {
            "metadata": {"name": self.name, "namespace": self.namespace},
            "eventTime": rfc3339(self.began),
            "type": self.type,
            "reason": self.reason,
            "action": self.action,
            "note": self.note,
            "regarding": self.pod.plain(),
        }
        if self.related is not None:
            event["related"] = self.related.plain()
        return event | self.repetitions() if self.count > 1 else event

    def repetitions(self) -> dict[str, Any]:
        return {"series": {"count": self.count, "lastObservedTime": rfc3339(self.last)}}


class EventRecorder:
    def __init__(
        self,
        client: Client,
        writer: ApiWriter,
        controller: str,
        instance: str,
        clock: Clock,
        *,
        on_lost: Callable[[], object] = lambda: None,
    ) -> None:
        self._client, self._writer, self._clock, self._on_lost = client, writer, clock, on_lost
        self._who = {"reportingController": controller, "reportingInstance": instance[:128]}
        self._series: OrderedDict[Key, _Series] = OrderedDict()  # in order of their last occurrence
        self._serial = 0
        self._warned_at = -math.inf
        self.sent = 0
        self.lost = 0

    def __len__(self) -> int:
        """Events that wait to be sent."""
        counts = self._writer.counts()
        return counts[Urgency.SCHEDULED_EVENT] + counts[Urgency.EVENT]

    def put(self, event: Event) -> None:
        series = self._series.get(event.key)
        if series is None:
            self._begin(event)
            return
        now = self._clock.monotonic()
        series.repeat(_short(event.note), self._clock.wall(), now)
        self._series.move_to_end(event.key)
        if series.waits:
            return  # the newest state is sent
        if series.first and series.count == 2:
            self._write(event.key, series)
        elif now - series.put_at >= REFRESH:
            if series.written and series.note != series.written_note:
                series.restart(self._new_name(event.pod.name))
            self._write(event.key, series)

    async def run(self) -> None:
        """Writes the last count of series that have ended, and drops them."""
        while True:
            await self._clock.sleep(LOOK_EVERY)
            ended = self._clock.monotonic() - FINISH
            while self._series and next(iter(self._series.values())).said_at <= ended:
                key, series = self._series.popitem(last=False)
                if 0 < series.written < series.count and not series.waits:
                    self._write(key, series)

    def _begin(self, event: Event) -> None:
        now, wall = self._clock.monotonic(), self._clock.wall()
        pod, related = _reference(event.pod), None if event.related is None else _reference(event.related)
        series = _Series(
            self._new_name(pod.name), event.type, event.reason, event.action, pod, related,
            _short(event.note), wall, wall, now,
        )  # fmt: skip
        if series.urgency is Urgency.EVENT:
            self._series[event.key] = series
            if len(self._series) > SERIES:
                self._series.popitem(last=False)
        self._write(event.key, series)

    def _new_name(self, pod: str) -> str:
        self._serial += 1
        return f"{pod[:200]}.{int(self._clock.wall() * 1e6):x}{self._serial % 65536:04x}"

    # --- sending ---

    def _write(self, key: Key, series: _Series) -> None:
        series.put_at, series.waits = self._clock.monotonic(), True
        send, on_end = partial(self._send, series), partial(self._on_end, key, series)
        self._writer.put(Write(("event", *key), series.urgency, send, on_end=on_end, patience=PATIENCE))

    async def _send(self, series: _Series, fence: Fence) -> None:
        if series.written and await self._patch_series(series, fence):
            return
        event, count = series.whole() | self._who, series.count
        try:
            path = calls.CREATE_EVENT.path(series.namespace)
            await self._client.create(path, protobuf.EVENT, event, urgent=True, fence=fence)
        except ApiError as error:
            if error.status != 409:  # otherwise an earlier attempt had arrived
                raise
        series.written, series.written_note = count, event["note"]

    async def _patch_series(self, series: _Series, fence: Fence) -> bool:
        """Whether the Event still exists; otherwise it has expired."""
        count, patch = series.count, msgspec.json.encode(series.repetitions())
        path = calls.PATCH_EVENT.path(series.namespace, series.name)
        try:
            await self._client.call("PATCH", path, patch, MERGE_PATCH, urgent=True, fence=fence)
        except ApiError as error:
            if error.status != 404:
                raise
            return False
        series.written = count
        return True

    def _on_end(self, key: Key, series: _Series, error: Exception | None) -> None:
        series.waits = False
        if error is None:
            self.sent += 1
            if series.first and series.written == 1 < series.count:  # it occurred again while it was in flight
                self._write(key, series)
            return
        self.lost += 1
        self._on_lost()
        if isinstance(error, QueueFullError):
            series.put_at = -math.inf  # the next occurrence is written like a first one
        now = self._clock.monotonic()
        if now - self._warned_at >= WARN_EVERY:
            self._warned_at = now
            log.warning(
                "event %s of pod %s/%s was not written (%d lost so far): %s",
                series.reason, series.pod.namespace, series.pod.name, self.lost, error,
            )  # fmt: skip


def _reference(pod: Pod) -> _Reference:
    return _Reference(pod.name, pod.namespace, pod.uid, pod.metadata.resource_version)


def _short(note: str) -> str:
    """
    >>> len(_short("0/5 nodes …" * 100).encode())
    1024
    """
    return note.encode()[:NOTE_LIMIT].decode(errors="ignore")
