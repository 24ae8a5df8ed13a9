"""NodeName plugin: a pod that names its node is placed there or nowhere."""

from __future__ import annotations

import numpy as np

from carico.scheduler.changes import Action, EventInterest
from carico.scheduler.framework import OK, SKIP, Cycle, Reuse, Status, Verdict
from carico.scheduler.rows import RowArray


class NodeName:
    name = "NodeName"
    reuse = Reuse.NEVER  # the name is not part of the template

    @property
    def interests(self) -> tuple[EventInterest, ...]:
        return (EventInterest("Node", Action.ADD),)

    def pre_filter(self, cycle: Cycle) -> Status:
        return OK if cycle.pod.pod.spec.node_name else SKIP

    def filter(self, cycle: Cycle, rows: RowArray | None) -> Verdict:
        wanted = cycle.snapshot.rows.number.get(cycle.pod.pod.spec.node_name, -1)
        asked = cycle.snapshot.all_rows() if rows is None else rows
        refused = np.asarray(asked != wanted)
        return Verdict.refuse(refused, "node(s) didn't match the requested node name", unresolvable=True)
