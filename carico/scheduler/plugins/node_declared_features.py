"""NodeDeclaredFeatures plugin: features that a pod needs and that only some kubelets declare.

https://github.com/kubernetes/enhancements/tree/master/keps/sig-node/5328-node-declared-features
"""

from __future__ import annotations

import numpy as np

from carico.kube.objects import Node, PodSpec
from carico.scheduler.cache.rows import RowArray
from carico.scheduler.cache.template import PodInfo, PodTemplate
from carico.scheduler.framework.cluster_events import Action, EventInterest
from carico.scheduler.framework.contract import OK, SKIP, Cycle, Filter, PreFilter, Reuse, Status, Verdict

RESTART_ALL = "RestartAllContainersOnContainerExits"
HOST_NETWORK_USERS = "UserNamespacesHostNetworkSupport"


def needed(template: PodTemplate) -> frozenset[str]:
    found: frozenset[str] | None = template.memo.get("features")
    if found is None:
        found = template.memo["features"] = frozenset(_needed(template.spec))
    return found


def _needed(spec: PodSpec) -> set[str]:
    features = set()
    containers = (*spec.containers, *spec.init_containers)
    if any(rule.action == "RestartAllContainers" for c in containers for rule in c.restart_policy_rules):
        features.add(RESTART_ALL)
    if spec.host_network and spec.host_users is False:
        features.add(HOST_NETWORK_USERS)
    return features


class NodeDeclaredFeatures(PreFilter, Filter):
    name = "NodeDeclaredFeatures"
    reuse = Reuse.NODE

    @property
    def interests(self) -> tuple[EventInterest, ...]:
        return (EventInterest("Node", Action.ADD | Action.NODE_FEATURES, _declares),)

    def pre_filter(self, cycle: Cycle) -> Status:
        return OK if needed(cycle.pod.template) else SKIP

    def filter(self, cycle: Cycle, rows: RowArray | None) -> Verdict:
        wanted, groups = needed(cycle.pod.template), cycle.snapshot.features
        lacking = np.array([not wanted <= declared for declared in groups.members], dtype=np.bool_)
        refused = lacking[groups.of[: len(cycle.snapshot)] if rows is None else groups.of[rows]]
        return Verdict.refuse(refused, "node(s) didn't match Pod's required features", unresolvable=True)


def _declares(pod: PodInfo, old: Node | None, new: Node) -> bool:
    return needed(pod.template) <= set(new.status.declared_features)
