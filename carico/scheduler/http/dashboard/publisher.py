"""What is sent to the page, and when: everything at first, then what changed, at most twice a second.

All readers get the same changes. A new one first gets the full state. A change that it receives afterwards may already
be part of that state; applying it again has no effect.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import numpy as np

from carico import __version__
from carico.clock import Clock
from carico.scheduler.assembly import Components
from carico.scheduler.cache.rows import RowArray
from carico.scheduler.framework.amounts import amounts_text
from carico.scheduler.http.class_view import class_rows
from carico.scheduler.http.dashboard.columns import (
    CAPACITY,
    CORDONED,
    FRESH,
    PODS,
    RESERVED,
    STATE,
    Columns,
    Matrix32,
    changed,
)
from carico.scheduler.http.dashboard.history import STEP, NodeHistory
from carico.scheduler.http.dashboard.queue_rows import class_row, decision_rows, pod_rows, queue_view
from carico.scheduler.http.dashboard.sse_clients import SseClients, event, hello
from carico.types import NodeReport

TICK = 0.5  # s between two messages
HEARTBEAT = 5.0  # s after which a message is sent even if nothing changed
QUEUE_EVERY = 1.0  # s between two reads of the queue
CLASSES_EVERY = 5.0  # s between two reads of the classes of pods
CLASSES_LISTED = 50
RATE_OVER = 10.0  # s over which placements per second are counted
PODS_SHOWN = 250  # of one node


class ReplicaStatus(NamedTuple):
    """The state of this replica."""

    identity: str
    leads: bool
    holder: str  # of the Lease; empty: unknown
    ready: bool  # the first lists are complete
    bound: int  # pods, since the start


class Publisher:
    def __init__(self, parts: Components, clock: Clock, standing: Callable[[], ReplicaStatus]) -> None:
        self._parts, self._clock, self._standing = parts, clock, standing
        self.columns = Columns(parts.snapshot, parts.ledger)
        self.history = NodeHistory()
        self.readers = SseClients(clock.monotonic)
        self._sent: Matrix32 = np.zeros((0, 0), dtype=np.float32)
        self._sent_parts: dict[str, bytes] = {}
        self._sent_at = self._queue_at = self._classes_at = float("-inf")
        self._decided = 0
        self._bound: deque[tuple[float, int]] = deque()

    async def run(self) -> None:
        while True:
            self.tick()
            await self._clock.sleep(TICK)

    async def follow(self, writer: asyncio.StreamWriter) -> None:
        await self.readers.follow(writer, hello() + event("full", self.full()))

    def tick(self) -> None:
        now = self._clock.monotonic()
        nodes_changed = self.columns.refresh()
        for row in self.columns.handed_on:
            self.history.forget(row)
        self.columns.handed_on.clear()
        self._count_bound(now)
        if not len(self.readers) and not self.history.is_due(now):
            return
        matrix = self.columns.matrix(now)
        if self.history.is_due(now):
            self._keep(matrix, now)
        if len(self.readers):
            self._send(matrix, nodes_changed, now)

    # --- messages ---

    def full(self) -> dict[str, Any]:
        self.tick()  # sends pending changes to the other readers first
        now = self._clock.monotonic()
        matrix = self.columns.matrix(now)
        if not len(self.readers):  # no reader was connected: changes are counted from here
            self._sent, self._decided = matrix, self._parts.ring.added
            self._sent_parts.clear()
        return {
            **self._times(now),
            "who": self._who(),
            "dimensions": self.columns.dimensions,
            "summary": self._summary(matrix),
            "past": [*self.history.cluster],
            "nodes": self.columns.plain(matrix, self.columns.present()),
            "queue": queue_view(self._parts.queue),
            "classes": self._classes(now),
            "decisions": decision_rows(self._parts.ring, 0),
        }

    def node(self, name: str) -> dict[str, Any] | None:
        """One node's last minutes, its last report, and the pods on it."""
        snapshot, ledger = self._parts.snapshot, self._parts.ledger
        row, account = snapshot.rows.number.get(name), ledger.account(name)
        if row is None or row >= len(snapshot) or snapshot.nodes[row] is None:
            return None
        now = self._clock.monotonic()
        answered = (account.counted or frozenset()) | account.finished if account else ()
        found: dict[str, Any] = {
            **self._times(now),
            "node": name,
            "step": STEP,
            "dimensions": self.columns.dimensions,
            "history": self.history.of(row),
            "pods": pod_rows((info.pod for info in snapshot.on[row].values()), answered, PODS_SHOWN),
            "pod_count": len(snapshot.on[row]),
        }
        if account is not None and account.report is not None:
            report = account.report
            found["report"] = {
                "dimensions": report.dimensions,
                "room": _room(report),
                "cost": [round(value, 4) for value in report.estimate.cost_ratio],
                "baseline": [round(value, 4) for value in report.estimate.baseline_ratio],
                "age": round(now - account.sampled, 1),
                "mode": report.estimate.mode.value,
                "agent": report.agent_version,
            }
        return found

    def _send(self, matrix: Matrix32, nodes_changed: RowArray, now: float) -> None:
        message: dict[str, Any] = {}
        rows = np.union1d(changed(self._sent, matrix), nodes_changed)
        present = self._parts.snapshot.present
        if (there := rows[present[rows]]).size:
            message["nodes"] = self.columns.plain(matrix, there)
        if (gone := nodes_changed[~present[nodes_changed]]).size:
            message["gone"] = gone.tolist()
        self._remember(matrix, rows)
        if self._parts.ring.added > self._decided:
            message["decisions"] = decision_rows(self._parts.ring, self._decided)
            self._decided = self._parts.ring.added
        self._add_if_new(message, "who", self._who())
        self._add_if_new(message, "summary", self._summary(matrix))
        self._add_if_new(message, "dimensions", self.columns.dimensions)
        if now - self._queue_at >= QUEUE_EVERY:
            self._queue_at = now
            self._add_if_new(message, "queue", queue_view(self._parts.queue))
        if now - self._classes_at >= CLASSES_EVERY:
            self._classes_at = now
            self._add_if_new(message, "classes", self._classes(now))
        if message or now - self._sent_at >= HEARTBEAT:
            self._sent_at = now
            self.readers.send(event("change", {**self._times(now), **message}))

    def _remember(self, matrix: Matrix32, rows: RowArray) -> None:
        """Only rows that were sent are recorded as sent: a slow drift adds up until it is sent."""
        if self._sent.shape == matrix.shape:
            self._sent[rows] = matrix[rows]
        else:
            self._sent = matrix

    def _add_if_new(self, message: dict[str, Any], name: str, value: Any) -> None:
        encoded = msgspec.json.encode(value)
        if self._sent_parts.get(name) != encoded:
            self._sent_parts[name] = encoded
            message[name] = msgspec.Raw(encoded)

    # --- figures ---

    def _times(self, now: float) -> dict[str, float]:
        return {"now": round(now, 2), "wall": round(self._clock.wall(), 2)}

    def _who(self) -> dict[str, Any]:
        standing = self._standing()
        return {
            "identity": standing.identity,
            "leads": standing.leads,
            "holder": standing.holder,
            "ready": standing.ready,
            "version": __version__,
            "heartbeat": round(self._parts.ledger.heartbeat, 1),
        }

    def _classes(self, now: float) -> dict[str, Any]:
        """The classes whose requests differ most from what their pods use."""
        rows = class_rows(self._parts.classes, self._parts.ledger, now)
        return {"all": len(rows), "rows": [class_row(row) for row in rows[:CLASSES_LISTED]]}

    def _summary(self, matrix: Matrix32) -> dict[str, float]:
        present = self.columns.present()
        state = matrix[present, STATE].astype(np.int32)
        fresh = (state & FRESH) > 0
        capacity, reserved = matrix[present, CAPACITY][fresh], matrix[present, RESERVED][fresh]
        counts = self._parts.queue.counts()
        return {
            "nodes": len(present),
            "stale": int(np.count_nonzero(~fresh)),
            "cordoned": int(np.count_nonzero(state & CORDONED)),
            "pods": int(matrix[present, PODS].sum()),
            "capacity": round(float(capacity.sum()), 1),
            "reserved": round(float(reserved.sum()), 1),
            "free": round(float(np.maximum(capacity - reserved, 0).sum()), 1),
            "waiting": sum(counts.values()),
            "bound": self._standing().bound,
            "rate": self._rate(),
        }

    def _keep(self, matrix: Matrix32, now: float) -> None:
        self.history.sample(matrix, now)
        summary = self._summary(matrix)
        self.history.cluster.append(
            [round(now, 1), *(summary[name] for name in ("pods", "reserved", "free", "waiting"))]
        )

    def _count_bound(self, now: float) -> None:
        self._bound.append((now, self._standing().bound))
        while now - self._bound[0][0] > RATE_OVER:
            self._bound.popleft()

    def _rate(self) -> float:
        """Pods bound per second."""
        if len(self._bound) < 2:
            return 0.0
        (began, first), (ended, last) = self._bound[0], self._bound[-1]
        return round((last - first) / max(ended - began, 1.0), 1)


def _room(report: NodeReport) -> str:
    """The room as text; empty if the agent reports none."""
    return amounts_text(zip(report.dimensions, report.estimate.room, strict=False)) if report.estimate.room else ""
