"""NodePorts plugin: two pods on one node cannot listen on the same host port."""

from __future__ import annotations

import numpy as np

from carico.kube.objects import Pod
from carico.scheduler.cache.host_ports import host_ports, of_spec
from carico.scheduler.cache.rows import RowArray
from carico.scheduler.cache.template import PodInfo
from carico.scheduler.framework.cluster_events import Action, EventInterest
from carico.scheduler.framework.contract import OK, SKIP, Cycle, Filter, PreFilter, Reuse, Status, Verdict


class NodePorts(PreFilter, Filter):
    name = "NodePorts"
    reuse = Reuse.ROW

    @property
    def interests(self) -> tuple[EventInterest, ...]:
        return (EventInterest("Pod", Action.DELETE, _freed_a_port), EventInterest("Node", Action.ADD))

    def pre_filter(self, cycle: Cycle) -> Status:
        return OK if host_ports(cycle.pod.template) else SKIP

    def filter(self, cycle: Cycle, rows: RowArray | None) -> Verdict:
        taken = np.zeros(len(cycle.snapshot), dtype=np.bool_)
        for wanted in host_ports(cycle.pod.template):
            taken[cycle.snapshot.ports.conflicts(wanted)] = True
        refused = taken if rows is None else taken[rows]
        return Verdict.refuse(refused, "node(s) didn't have free ports for the requested pod ports")


def _freed_a_port(pod: PodInfo, old: Pod, new: object) -> bool:
    """Whether the pod freed a port that is wanted; a pod may want one port on several addresses, and each counts."""
    freed = of_spec(old.spec) if old.spec.node_name else ()
    return any(wanted.clashes(port) for wanted in host_ports(pod.template) for port in freed)
