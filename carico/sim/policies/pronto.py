"""Pronto: a pod goes to any node whose reject signal is off. It knows no capacity and reserves nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from carico.scheduler.cache.rows import RowArray
from carico.scheduler.framework.cluster_events import EventInterest
from carico.scheduler.framework.contract import Cycle, Filter, Reuse, Verdict
from carico.sim.policies.contract import PolicyView, profile
from carico.sim.scheduler import PolicyPlugins


def policy(view: PolicyView, args: Mapping[str, Any]) -> PolicyPlugins:  # noqa: ARG001
    factories = {"RejectSignal": lambda _: RejectSignal(view)}
    return PolicyPlugins(profile("RejectSignal"), factories, retry_every=1.0, agents=True)


class RejectSignal(Filter):
    name = "RejectSignal"
    reuse = Reuse.NEVER
    interests: tuple[EventInterest, ...] = ()

    def __init__(self, view: PolicyView) -> None:
        self._view = view

    def filter(self, cycle: Cycle, rows: RowArray | None) -> Verdict:
        snapshot = cycle.snapshot
        rows = snapshot.all_rows() if rows is None else rows
        rejecting = [self._view.rejecting(snapshot.name(int(row))) for row in rows]
        return Verdict.refuse(np.array(rejecting, dtype=np.bool_), "node(s) rejected jobs")
