"""Checks of a running soak: pods that wait although they fit, and at the end pods that are in no queue."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from harness.soak.history import SETTLED_AFTER, State
from harness.soak.recorder import Recorder
from harness.soak.replicas import Replica

BETWEEN = 5.0  # s between the two looks at one pod
MOST_ASKED = 40  # pods per look: every response costs the scheduler time
CAN_BE_STUCK = ("active", "waiting", "gated")  # not those in back-off after an error: that ends without an event


@dataclass(frozen=True)
class Found:
    """A pod that waits, and why it should not."""

    uid: str
    attempts: int  # scheduling attempts; −1: the scheduler's queue does not have it
    why: str
    nodes: frozenset[str]


class Looks:
    def __init__(self, recorder: Recorder, rng: random.Random) -> None:
        self._recorder, self._rng = recorder, rng
        self.made = 0
        self.asked = 0
        self.stuck: list[str] = []

    async def look(self, leader: Replica) -> None:
        """Two looks; what is in both is stuck. Gives up if a fault begins or the leader changes in between."""
        identity = leader.identity
        first = await self._fitting(leader, None)
        await asyncio.sleep(BETWEEN)
        if first is None or not self._calm or leader.identity != identity:
            return
        second = await self._fitting(leader, set(first))
        if second is None or not self._calm or leader.identity != identity:
            return
        self.made += 1
        self.stuck += stuck(first, second)

    @property
    def _calm(self) -> bool:
        return self._recorder.state.calm_for(SETTLED_AFTER)

    async def _fitting(self, leader: Replica, among: set[str] | None) -> dict[str, Found] | None:
        queue = await leader.page("/debug/queue")
        if queue is None:
            return None
        queued = {row["pod"]: row for row in queue["pods"]}
        found = fitting_by_truth(self._recorder.state, queued)
        keys = [key for key, row in queued.items() if row["queue"] in CAN_BE_STUCK]
        keys = [key for key in keys if among is None or key in among]
        for key in self._rng.sample(keys, min(MOST_ASKED, len(keys))):
            told = await leader.page(f"/explain?pod={quote(key)}")
            self.asked += 1
            feasible = frozenset(node["node"] for node in (told or {}).get("nodes", ()) if node["feasible"])
            pod = next((p for p in self._recorder.state.waiting() if p.seen.key == key), None)
            if feasible and pod is not None and key not in found:
                why = f"explain says that {len(feasible)} nodes would take it, e.g. {min(feasible)}"
                found[key] = Found(pod.uid, queued[key]["attempts"], why, feasible)
        return found


def fitting_by_truth(state: State, queued: dict[str, Any]) -> dict[str, Found]:
    """Plain pods that some node would take, independently of the scheduler. Exact, because nothing changes."""
    found: dict[str, Found] = {}
    for pod in state.waiting():
        if pod.seen.plain and (nodes := state.nodes_for(pod)):
            row = queued.get(pod.seen.key)
            why = f"{len(nodes)} nodes would take it, e.g. {nodes[0]}"
            if row is not None:
                why += f"; it is {row['queue']}, refused by {', '.join(row['refused_by'])}"
            attempts = row["attempts"] if row is not None else -1
            found[pod.seen.key] = Found(pod.uid, attempts, why, frozenset(nodes))
    return found


def stuck(first: dict[str, Found], second: dict[str, Found]) -> list[str]:
    """Pods that fitted the same node at both looks without a scheduling attempt in between."""
    return [
        f"{key}: {found.why}"
        for key, found in second.items()
        if key in first
        and first[key].uid == found.uid
        and first[key].attempts == found.attempts
        and first[key].nodes & found.nodes
    ]


def lost(state: State, queued: set[str]) -> list[str]:
    """Pods of ours that have no node and are in no queue."""
    return sorted(pod.seen.key for pod in state.waiting() if pod.seen.key not in queued)
