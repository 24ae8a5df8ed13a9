"""The agents of the soak's nodes: the real client and sending rule, reporting the truth with a delay.

A node counts a pod between 0.5 and 3 s after the API server has it there, and stops counting it with the same delay.
Its Pod-Capacity is its full capacity minus the pods that it counts. Every report is written into the history when it is
offered.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
import time

from carico.clock import SystemClock
from carico.settings import AgentSettings
from carico.types import Estimate, Mode, NodeReport
from carico.wire.report_client import ReportClient
from harness.soak.history import Bound, Event, Gone, Reported, Silenced
from harness.soak.recorder import Recorder

LAG = (0.5, 3.0)  # s between the truth and the report
TICK = 0.25  # s
FINISHED_FOR = 60.0  # s for which an ended pod is reported
BASELINE = 0.1


class Agent:
    def __init__(self, node: str, full: float, schedulers: list[str], recorder: Recorder, rng: random.Random) -> None:
        self.node, self._full, self._recorder, self._rng = node, full, recorder, rng
        self._settings = AgentSettings(schedulers=tuple(schedulers), plaintext=True)
        self._due: list[tuple[float, int, str, float]] = []  # when, order, UID and units; units −1: no longer counted
        self._order = itertools.count()
        self._last_due: dict[str, float] = {}
        self._counted: dict[str, float] = {}
        self._finished: dict[str, float] = {}
        self._reported: frozenset[str] | None = None  # the counted set of the last report in the history
        self._client: ReportClient | None = None
        self._talking: asyncio.Task[None] | None = None
        self._start_id = 0

    def learns(self, uid: str, units: float, now: float) -> None:
        due = max(now + self._rng.uniform(*LAG), self._last_due.get(uid, 0.0))
        self._last_due[uid] = due
        heapq.heappush(self._due, (due, next(self._order), uid, units))

    def start(self) -> None:
        """As after a restart of the agent: new streams, a new start id."""
        assert self._client is None, f"the agent of {self.node} runs already"
        self._start_id = self._rng.getrandbits(48)
        self._client = ReportClient(self._settings, SystemClock())
        self._talking = asyncio.create_task(self._client.run())

    async def stop(self) -> None:
        """Close its streams."""
        if self._talking is not None:
            self._talking.cancel()
            await asyncio.gather(self._talking, return_exceptions=True)
        if self._client is not None:
            self._recorder.note(Silenced(at=time.monotonic(), node=self.node))
        self._client = self._talking = None
        self._reported = None

    def tick(self, now: float) -> None:
        while self._due and self._due[0][0] <= now:
            _, _, uid, units = heapq.heappop(self._due)
            self._take(uid, units, now)
        for uid in [uid for uid, at in self._finished.items() if now - at > FINISHED_FOR]:
            del self._finished[uid]
            self._last_due.pop(uid, None)
        if self._client is not None:
            self._offer(self._client, now)

    def _take(self, uid: str, units: float, now: float) -> None:
        if units >= 0:
            self._counted[uid] = units
        elif self._counted.pop(uid, None) is not None:
            self._finished[uid] = now

    def _offer(self, client: ReportClient, now: float) -> None:
        counted = frozenset(self._counted)
        taken = sum(self._counted.values())
        capacity = max(0.0, self._full - taken)
        client.offer(self._report(counted, capacity, taken, now))
        if counted != self._reported:
            before = self._reported or frozenset()
            added, removed = sorted(counted - before), sorted(before - counted)
            self._reported = counted
            self._recorder.note(
                Reported(at=now, node=self.node, full=self._full, capacity=capacity, added=added, removed=removed)
            )

    def _report(self, counted: frozenset[str], capacity: float, taken: float, now: float) -> NodeReport:
        cost = (0.95 - BASELINE) / self._full
        usage = min(1.0, BASELINE + taken * cost)
        estimate = Estimate(
            at=now,
            usage=(usage, usage),
            signal_k=capacity / self._full,
            baseline_ratio=(BASELINE, BASELINE),
            cost_ratio=(cost, cost),
            baseline_scalar=self._full,
            cost_scalar=cost,
            pods=len(counted),
            pod_capacity=capacity,
            mode=Mode.SETTLED,
            rejecting=False,
        )
        return NodeReport(
            node=self.node,
            start_id=self._start_id,
            sequence=0,
            sampled_at=time.time(),
            age=0.0,
            dimensions=("cpu", "memory"),
            estimate=estimate,
            churn=False,
            cost_absolute=(cost, cost * 1e9),
            counted=counted,
            finished=frozenset(self._finished),
            agent_version="soak",
        )


class Agents:
    """All agents, fed from the history."""

    def __init__(self, full: dict[str, float], schedulers: list[str], recorder: Recorder, rng: random.Random) -> None:
        self._recorder = recorder
        self._node_of: dict[str, str] = {}
        self.by_node = {node: Agent(node, units, schedulers, recorder, rng) for node, units in full.items()}
        recorder.listeners.append(self._note)

    def _note(self, event: Event) -> None:
        if isinstance(event, Bound) and event.node in self.by_node:
            self._node_of[event.uid] = event.node
            pod = self._recorder.state.pods.get(event.uid)
            self.by_node[event.node].learns(event.uid, pod.seen.units if pod else 1.0, event.at)
        elif isinstance(event, Gone) and (node := self._node_of.pop(event.uid, None)) is not None:
            self.by_node[node].learns(event.uid, -1.0, event.at)

    async def keep_reporting(self) -> None:
        for agent in self.by_node.values():
            agent.start()
        try:
            while True:
                now = time.monotonic()
                for agent in self.by_node.values():
                    agent.tick(now)
                await asyncio.sleep(TICK)
        finally:
            for agent in self.by_node.values():
                await agent.stop()
