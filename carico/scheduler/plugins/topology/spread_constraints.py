"""Topology spread constraints, compiled for one pod; the system defaults for a pod that has none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from carico.kube.objects import Pod, ReplicaSet, StatefulSet, TopologySpreadConstraint
from carico.kube.selectors import EVERYTHING, NOTHING, Selector, from_labels, from_selector
from carico.scheduler.cache.affinity_terms import PodSet
from carico.scheduler.cache.object_store import ObjectStore
from carico.scheduler.cache.pod_match_counts import Counts
from carico.scheduler.cache.rows import Mask, RowArray
from carico.scheduler.cache.snapshot import Snapshot
from carico.scheduler.cache.template import PodInfo
from carico.scheduler.plugins.node_affinity import required
from carico.scheduler.plugins.taints import untolerated

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"

VARIANTS_KEPT = 64  # of one template's constraints: each roll-out adds a new value of `pod-template-hash`

# What Kubernetes applies to pods of a Service or a controller that have no constraints.
SYSTEM_DEFAULTS = (
    TopologySpreadConstraint(max_skew=3, topology_key=HOSTNAME, when_unsatisfiable="ScheduleAnyway"),
    TopologySpreadConstraint(max_skew=5, topology_key=ZONE, when_unsatisfiable="ScheduleAnyway"),
)


@dataclass(frozen=True, slots=True)
class Constraint:
    key: str
    max_skew: int
    min_domains: int
    selector: Selector
    honour_affinity: bool
    honour_taints: bool

    def counts(self, snapshot: Snapshot, namespace: str) -> Counts:
        """Matching pods per row; pods that are being deleted are not counted, and an empty selector counts none."""
        if self.selector.empty or self.selector.never:
            return np.zeros(len(snapshot), dtype=np.int64)
        pod_set = PodSet(frozenset({namespace}), NOTHING, self.selector)
        return snapshot.match_counts.count(pod_set, len(snapshot), terminating=False)

    def counts_pod(self, pod: PodInfo) -> bool:
        """Whether `counts` includes a pod with these labels in its namespace."""
        return not self.selector.empty and self.selector.matches(pod.identity.labels)

    def eligible(self, snapshot: Snapshot, pod: PodInfo, rows: RowArray | None = None) -> Mask:
        """Rows whose pods count: those that the pod's affinity (and, if set, its tolerations) allow it to use."""
        mask = snapshot.present.copy() if rows is None else snapshot.present[rows]
        wanted = required(pod.template) if self.honour_affinity else None
        if wanted is not None:
            mask &= wanted.rows(snapshot, rows)
        if self.honour_taints:
            mask &= ~untolerated(snapshot, pod.template, rows)
        return mask


Constraints = tuple[Constraint, ...]


def of_pod(pod: PodInfo, action: str) -> Constraints:
    """The pod's own constraints; `action` is DoNotSchedule or ScheduleAnyway.

    Compiled once for all pods of a template that have the same labels under `matchLabelKeys`.
    """
    pieces = pod.template.spec.topology_spread_constraints
    if not pieces:
        return ()
    labels = pod.identity.labels
    key = (action, *(labels.get(name) for piece in pieces for name in piece.match_label_keys))
    memo: dict[tuple[str | None, ...], Constraints] = pod.template.memo.setdefault("spread", {})
    found = memo.get(key)
    if found is None:
        if len(memo) >= VARIANTS_KEPT:
            memo.clear()
        wanted = (piece for piece in pieces if piece.when_unsatisfiable == action)
        found = memo[key] = tuple(_compiled(piece, _selector(piece, labels)) for piece in wanted)
    return found


def of_system(pod: Pod, store: ObjectStore) -> Constraints:
    """The defaults, over the pods that the pod's Services and controller select; none if no selector applies."""
    if pod.spec.topology_spread_constraints:
        return ()
    selector = default_selector(pod, store)
    return () if selector.empty else tuple(_compiled(piece, selector) for piece in SYSTEM_DEFAULTS)


def _compiled(piece: TopologySpreadConstraint, selector: Selector) -> Constraint:
    return Constraint(
        key=piece.topology_key,
        max_skew=piece.max_skew,
        min_domains=1 if piece.min_domains is None else piece.min_domains,
        selector=selector,
        honour_affinity=piece.node_affinity_policy in (None, "Honor"),
        honour_taints=piece.node_taints_policy == "Honor",
    )


def _selector(piece: TopologySpreadConstraint, labels: Mapping[str, str]) -> Selector:
    own = {key: labels[key] for key in piece.match_label_keys if key in labels}
    return from_selector(piece.label_selector).plus(from_labels(own))


def default_selector(pod: Pod, store: ObjectStore) -> Selector:
    selector = EVERYTHING
    for service in store.services_in.get(pod.namespace, {}).values():
        mine = service.spec.selector
        if mine and from_labels(mine).matches(pod.metadata.labels):
            selector = selector.plus(from_labels(mine))
    return selector.plus(_of_controller(pod, store))


def _of_controller(pod: Pod, store: ObjectStore) -> Selector:
    owner = pod.metadata.controller
    if owner is None:
        return EVERYTHING
    key = f"{pod.namespace}/{owner.name}"
    if (owner.api_version, owner.kind) == ("v1", "ReplicationController"):
        controller = store.replication_controllers.get(key)
        return EVERYTHING if controller is None else from_labels(controller.spec.selector)
    workload: ReplicaSet | StatefulSet | None = None
    if (owner.api_version, owner.kind) == ("apps/v1", "ReplicaSet"):
        workload = store.replica_sets.get(key)
    elif (owner.api_version, owner.kind) == ("apps/v1", "StatefulSet"):
        workload = store.stateful_sets.get(key)
    return EVERYTHING if workload is None else from_selector(workload.spec.selector)
