"""SchedulingGates plugin: pods with scheduling gates stay out of the queue until all gates are removed.

https://github.com/kubernetes/enhancements/tree/master/keps/sig-scheduling/3521-pod-scheduling-readiness
"""

from __future__ import annotations

from carico.kube.objects import Pod
from carico.scheduler.cache.template import PodInfo
from carico.scheduler.framework.cluster_events import Action, EventInterest
from carico.scheduler.framework.contract import OK, PreEnqueue, Status, unresolvable


class SchedulingGates(PreEnqueue):
    name = "SchedulingGates"

    @property
    def interests(self) -> tuple[EventInterest, ...]:
        return (EventInterest("Pod", Action.POD_GATES, _same_pod),)

    def pre_enqueue(self, pod: PodInfo) -> Status:
        gates = [gate.name for gate in pod.pod.spec.scheduling_gates]
        return unresolvable(f"waiting for scheduling gates: [{' '.join(gates)}]") if gates else OK


def _same_pod(pod: PodInfo, old: object, new: Pod) -> bool:
    return new.uid == pod.uid
