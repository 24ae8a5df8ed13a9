"""Events (events.k8s.io) that trail the decisions: `Scheduled`, `FailedScheduling`, `Preempted`.

The queue is bounded and nothing in it is dropped: `put` waits while it is full, so a scheduler that outruns the API
server slows down instead of forgetting. Sending is lazy while bindings are under way, because both cost the API server
the same and a pod that waits for its binding matters more; it becomes eager when the queue is half full.

The same thing said again of the same object becomes a series of one Event, as kube-scheduler's do. An Event keeps its
name through all tries to send it: one that arrived although its answer was lost is not written twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

import msgspec

from carico.clock import Clock
from carico.errors import CaricoError
from carico.kube import protobuf
from carico.kube.binding import now_text
from carico.kube.client import MERGE_PATCH, ApiError, Client
from carico.kube.objects import Pod

log = logging.getLogger(__name__)

NOTE_LIMIT = 1024  # characters; the API server refuses more
SERIES = 4096  # recent Events of which a repetition is recognised
LATEST = 5.0  # s that an Event waits for bindings, at most
LOOK_EVERY = 0.05  # s between two looks whether bindings are still under way
FINAL = (400, 403, 404, 422)  # answers that no later try can change: e.g. the namespace is being deleted


class Event(msgspec.Struct, frozen=True):
    """Something to be said of a pod."""

    pod: Pod
    type: str  # Normal or Warning
    reason: str
    action: str
    note: str
    related: Pod | None = None


class Recorder:
    """`put` events in; `run` sends them with `workers` requests at a time."""

    def __init__(
        self,
        client: Client,
        controller: str,
        instance: str,
        clock: Clock,
        *,
        capacity: int = 20_000,
        workers: int = 8,
        busy: Callable[[], bool] = lambda: False,
        on_lost: Callable[[], object] = lambda: None,
    ) -> None:
        self._client, self._clock, self._busy, self._on_lost = client, clock, busy, on_lost
        self._controller, self._instance = controller, instance
        self._capacity, self._workers = capacity, workers
        self._queue: deque[tuple[Event, float, str]] = deque()
        self._news = asyncio.Event()  # something was put in
        self._moved = asyncio.Event()  # something was taken out, or sent
        self._sent_as: OrderedDict[tuple[str, ...], tuple[str, int]] = OrderedDict()
        self._serial = 0
        self._under_way = 0
        self.sent = 0
        self.lost = 0

    def __len__(self) -> int:
        return len(self._queue) + self._under_way

    def put_now(self, event: Event) -> None:
        """For callers that cannot wait; `room` says whether they should."""
        at = self._clock.wall()
        self._queue.append((event, at, self._new_name(event.pod, at)))
        self._news.set()

    @property
    def room(self) -> bool:
        return len(self._queue) < self._capacity

    async def wait_for_room(self) -> None:
        while not self.room:
            await self._movement()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                if not self._queue:
                    self._news.clear()
                    await self._news.wait()
                elif self._lazy() or self._under_way >= self._workers:
                    await self._movement()
                else:
                    self._under_way += 1
                    group.create_task(self._one(*self._queue.popleft()))

    async def drain(self) -> None:
        """Waits until everything has been sent."""
        while len(self):
            await self._movement()

    async def _movement(self) -> None:
        """Waits for something to be sent; not for ever, because bindings may end meanwhile and sending become eager."""
        self._moved.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_EVERY):
                await self._moved.wait()

    async def _one(self, event: Event, at: float, name: str) -> None:
        try:
            await self._deliver(event, at, name)
        finally:
            self._under_way -= 1
            self._moved.set()

    def _lazy(self) -> bool:
        if not self._busy() or len(self._queue) >= self._capacity // 2:
            return False
        return self._clock.wall() - self._queue[0][1] < LATEST

    async def _deliver(self, event: Event, at: float, name: str) -> None:
        """Tries until it has arrived, or the API server has said that it never will."""
        wait = 0.1
        while True:
            try:
                await self._send(event, at, name)
                self.sent += 1
                return
            except ApiError as error:
                if error.status in FINAL:
                    self.lost += 1
                    self._on_lost()
                    log.warning("event %s of pod %s was refused: %s", event.reason, event.pod.key, error)
                    return
            except (CaricoError, OSError):
                pass
            await self._clock.sleep(wait)
            wait = min(10.0, wait * 2)

    async def _send(self, event: Event, at: float, name: str) -> None:
        """A new Event, or one more in the series of the one before."""
        path = f"/apis/events.k8s.io/v1/namespaces/{event.pod.namespace or 'default'}/events"
        key = (event.pod.uid, event.reason, event.action, event.type, event.note)
        if key in self._sent_as and await self._continued(path, key, at):
            return
        try:
            await self._client.create(path, protobuf.EVENT, self._body(event, at, name))
        except ApiError as error:
            if error.status != 409:  # otherwise an earlier try arrived after all
                raise
        if event.reason != "Scheduled":  # which happens once
            self._sent_as[key] = (name, 1)
            if len(self._sent_as) > SERIES:
                self._sent_as.popitem(last=False)

    async def _continued(self, path: str, key: tuple[str, ...], at: float) -> bool:
        """Whether the series could be prolonged; not if its Event has expired."""
        name, count = self._sent_as[key]
        patch = msgspec.json.encode({"series": {"count": count + 1, "lastObservedTime": now_text(at)}})
        try:
            await self._client.call("PATCH", f"{path}/{name}", patch, MERGE_PATCH)
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        self._sent_as[key] = (name, count + 1)
        return True

    def _new_name(self, pod: Pod, at: float) -> str:
        self._serial += 1
        return f"{pod.name[:200]}.{int(at * 1e6):x}{self._serial % 65536:04x}"

    def _body(self, event: Event, at: float, name: str) -> dict[str, Any]:
        body = {
            "metadata": {"name": name, "namespace": event.pod.namespace or "default"},
            "eventTime": now_text(at),
            "type": event.type,
            "reason": event.reason,
            "action": event.action,
            "note": event.note[:NOTE_LIMIT],
            "regarding": _reference(event.pod),
            "reportingController": self._controller,
            "reportingInstance": self._instance[:128],
        }
        if event.related is not None:
            body["related"] = _reference(event.related)
        return body


def _reference(pod: Pod) -> dict[str, str]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": pod.name,
        "namespace": pod.namespace,
        "uid": pod.uid,
        "resourceVersion": pod.metadata.resource_version,
    }
