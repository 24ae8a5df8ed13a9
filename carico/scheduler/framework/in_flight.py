"""Pods in flight: those that have a node and are not bound yet, and what they wait for.

    assumed ─► permit ─► volumes ─► binding sent ─► outcome known
                └──────────┴─ the wait ends when the pod is deleted, or bound by another client ─┴─ also here
                └──────────┴─ … when its node is deleted, or this process ends

A wait holds no slot and does not poll: the handler of the event ends it. What happens to a pod between two waits is
kept in `ended`, so that no event is lost.

Plugins find the pods that wait for Permit here:

    for in_flight in tools.waiting:
        in_flight.allow("MyPlugin")       or reject("MyPlugin", "the group has no quorum")
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

from carico.clock import Clock
from carico.kube.objects import Pod
from carico.scheduler.cache.template import PodInfo

LONGEST_PERMIT = 900.0  # s: longest wait of a Permit plugin, as in kube-scheduler


class Ending(Enum):
    """What ended the binding cycle early."""

    REJECTED = "rejected"  # by a plugin, or by its timeout
    POD_GONE = "gone"  # deleted, or terminating without a node
    POD_BOUND = "bound"  # a watch event has it on a node
    NODE_GONE = "node gone"
    CLOSED = "closed"  # this process ends


@dataclass(frozen=True, slots=True)
class InFlightEnded:
    how: Ending
    why: str
    plugin: str = ""  # REJECTED: by which
    node: str = ""  # POD_BOUND: where


class InFlightPod:
    """One pod between the scheduling decision and its binding."""

    __slots__ = ("_clock", "_news", "_pending", "ended", "info", "node", "sent", "waits_for")

    def __init__(self, info: PodInfo, node: str, clock: Clock) -> None:
        self.info, self.node, self._clock = info, node, clock
        self.ended: InFlightEnded | None = None
        self.sent = False  # its binding may be at the API server: only events of the pod itself end the wait then
        self.waits_for = ""  # permit, volumes, outcome; empty while it does not wait
        self._pending: dict[str, Callable[[], object]] = {}  # plugins that it waits for; cancels their timeout
        self._news: asyncio.Future[None] | None = None

    # --- for plugins ---

    @property
    def pending(self) -> tuple[str, ...]:
        """Plugins that have not allowed the pod yet."""
        return tuple(self._pending)

    def allow(self, plugin: str) -> None:
        """Allows the pod for this plugin; it continues when all plugins have."""
        if (call_off := self._pending.pop(plugin, None)) is not None:
            call_off()
            if not self._pending:
                self.wake()

    def reject(self, plugin: str, *reasons: str) -> None:
        """Releases the pod's node and requeues it; it waits for the plugin's `interests`."""
        if self._pending:
            self.end(InFlightEnded(Ending.REJECTED, ", ".join(reasons), plugin))

    async def news(self, waits_for: str, seconds: float) -> None:
        """Waits for an event of this pod (`wake` or `end`), for at most `seconds`. Check `ended` afterwards."""
        if self.ended is not None or seconds <= 0:
            return
        self.waits_for, self._news = waits_for, asyncio.get_running_loop().create_future()
        call_off = self._clock.call_at(self._clock.monotonic() + seconds, self.wake)
        try:
            await self._news
        finally:
            call_off()
            self.waits_for, self._news = "", None

    # --- for the binder and the event handlers ---

    def require(self, plugin: str, seconds: float) -> None:
        """The pod waits for this plugin, for at most `seconds`; then it is rejected."""
        limit = min(seconds, LONGEST_PERMIT)
        reason = f"rejected due to timeout after waiting {limit:g} s at plugin {plugin}"
        self._pending[plugin] = self._clock.call_at(
            self._clock.monotonic() + limit, lambda: self.reject(plugin, reason)
        )

    async def permitted(self) -> None:
        """Waits until all plugins have allowed the pod, or it has `ended`."""
        while self._pending and self.ended is None:
            await self.news("permit", LONGEST_PERMIT)

    def wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def end(self, ended: InFlightEnded) -> None:
        if self.ended is None:
            self.ended = ended
            self.call_off()
            self.wake()

    def call_off(self) -> None:
        """Cancels all waits for Permit plugins."""
        for call_off in self._pending.values():
            call_off()
        self._pending.clear()


class WaitingPods:
    """All pods in flight. Iterating gives those that wait for Permit."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pods: dict[str, InFlightPod] = {}  # by UID
        self._on: dict[str, dict[str, InFlightPod]] = {}  # by node and UID
        self._closed = False

    def __len__(self) -> int:
        return len(self._pods)

    def __iter__(self) -> Iterator[InFlightPod]:
        return iter([in_flight for in_flight in self._pods.values() if in_flight.pending])

    def get(self, uid: str) -> InFlightPod | None:
        return self._pods.get(uid)

    def counts(self) -> dict[str, int]:
        """Pods by what they wait for."""
        return dict(Counter(in_flight.waits_for for in_flight in self._pods.values() if in_flight.waits_for))

    def enter(self, info: PodInfo, node: str) -> InFlightPod:
        if (earlier := self._pods.get(info.uid)) is not None:
            self.leave(earlier)
        in_flight = self._pods[info.uid] = InFlightPod(info, node, self._clock)
        self._on.setdefault(node, {})[info.uid] = in_flight
        if self._closed:
            in_flight.end(InFlightEnded(Ending.CLOSED, "this process ends"))
        return in_flight

    def leave(self, in_flight: InFlightPod) -> None:
        in_flight.call_off()
        uid = in_flight.info.uid
        if self._pods.get(uid) is in_flight:
            del self._pods[uid]
            on = self._on[in_flight.node]
            del on[uid]
            if not on:
                del self._on[in_flight.node]

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """Handles a watch event of any pod."""
        pod = new or old
        in_flight = self._pods.get(pod.uid) if pod is not None else None
        if in_flight is None:
            return
        if new is None or new.terminal:
            in_flight.end(InFlightEnded(Ending.POD_GONE, "the pod was deleted"))
        elif new.spec.node_name:
            node = new.spec.node_name
            in_flight.end(InFlightEnded(Ending.POD_BOUND, f"it runs on {node} already", node=node))
        elif new.terminating:
            in_flight.end(InFlightEnded(Ending.POD_GONE, "the pod is being deleted"))

    def node_removed(self, name: str) -> None:
        for in_flight in list(self._on.get(name, {}).values()):
            if not in_flight.sent:
                in_flight.end(InFlightEnded(Ending.NODE_GONE, f"node {name} was deleted"))

    def close(self) -> None:
        """Ends the wait of every pod whose binding was not sent: the next leader schedules these pods again."""
        self._closed = True
        for in_flight in list(self._pods.values()):
            if not in_flight.sent:
                in_flight.end(InFlightEnded(Ending.CLOSED, "this process ends"))
