"""Refuses, loudly, pods that need what this scheduler cannot do: a wrong placement would be worse than none."""

from __future__ import annotations

from carico.scheduler.changes import Interest
from carico.scheduler.framework import SKIP, Cycle, Status, unresolvable
from carico.scheduler.template import PodInfo


def reasons(pod: PodInfo) -> list[str]:
    spec = pod.pod.spec
    found = []
    if spec.resource_claims:
        found.append("dynamic resource allocation (spec.resourceClaims)")
    if spec.scheduling_group is not None:
        found.append("pod groups (spec.schedulingGroup)")
    return found


class Unsupported:
    name = "Unsupported"

    # Nothing that happens in the cluster makes a difference: the pod itself has to change.
    interests: tuple[Interest, ...] = ()

    def pre_filter(self, cycle: Cycle) -> Status:
        found = reasons(cycle.pod)
        if not found:
            return SKIP
        return unresolvable(f"carico does not support {' and '.join(found)}; use another schedulerName for this pod")
