"""NodeName plugin: a pod that names its node is placed there or nowhere."""

from __future__ import annotations

import numpy as np

from carico.scheduler.cache.rows import RowArray
from carico.scheduler.framework.cluster_events import Action, EventInterest
from carico.scheduler.framework.contract import OK, SKIP, Cycle, Filter, PreFilter, Reuse, Status, Verdict


class NodeName(PreFilter, Filter):
    name = "NodeName"
    reuse = Reuse.NEVER  # the name is not part of the template

    @property
    def interests(self) -> tuple[EventInterest, ...]:
        return (EventInterest("Node", Action.ADD),)

    def pre_filter(self, cycle: Cycle) -> Status:
        return OK if cycle.pod.pod.spec.node_name else SKIP

    def filter(self, cycle: Cycle, rows: RowArray | None) -> Verdict:
        wanted = cycle.snapshot.rows.number.get(cycle.pod.pod.spec.node_name, -1)
        candidates = cycle.snapshot.all_rows() if rows is None else rows
        refused = np.asarray(candidates != wanted)
        return Verdict.refuse(refused, "node(s) didn't match the requested node name", unresolvable=True)
