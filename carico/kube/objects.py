"""Pods and nodes, and the small objects around them that a scheduler reads (storage.py has the volumes).

    Pod → PodSpec → Container, Affinity, Toleration, TopologySpreadConstraint, Volume
    Node → NodeSpec, NodeStatus
    Namespace, Service, ReplicationController, ReplicaSet, StatefulSet, PodDisruptionBudget, DeviceClass

Amounts stay text here (`"100m"`); quantity.py reads them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from carico.kube.meta import Int32, Int64, KubeObject, LabelRequirement, LabelSelector, Piece

TERMINAL_PHASES = ("Succeeded", "Failed")


class ResourceRequirements(Piece, frozen=True):
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}


class ContainerPort(Piece, frozen=True):
    container_port: Int32 = 0
    host_port: Int32 = 0
    host_ip: str = msgspec.field(name="hostIP", default="")
    protocol: str = "TCP"


class RestartRule(Piece, frozen=True):
    action: str = ""


class Container(Piece, frozen=True):
    name: str = ""
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str = ""  # Always on an init container makes it a sidecar
    restart_policy_rules: tuple[RestartRule, ...] = ()


class NodeSelectorTerm(Piece, frozen=True):
    match_expressions: tuple[LabelRequirement, ...] = ()
    match_fields: tuple[LabelRequirement, ...] = ()


class NodeSelector(Piece, frozen=True):
    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredNodeTerm(Piece, frozen=True):
    weight: Int32 = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Piece, frozen=True):
    required: NodeSelector | None = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)
    preferred: tuple[PreferredNodeTerm, ...] = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=()
    )


class PodAffinityTerm(Piece, frozen=True):
    topology_key: str = ""
    label_selector: LabelSelector | None = None  # None matches nothing, an empty one everything
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None  # an empty one means all namespaces
    match_label_keys: tuple[str, ...] = ()  # the API server merges both into the selector when the pod is created
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(Piece, frozen=True):
    weight: Int32 = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(Piece, frozen=True):
    """Also the shape of anti-affinity."""

    required: tuple[PodAffinityTerm, ...] = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=()
    )
    preferred: tuple[WeightedPodAffinityTerm, ...] = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=()
    )


class Affinity(Piece, frozen=True):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(Piece, frozen=True):
    key: str = ""  # with operator Exists an empty key tolerates everything
    operator: str = ""  # Equal when empty
    value: str = ""
    effect: str = ""  # every effect when empty


class TopologySpreadConstraint(Piece, frozen=True):
    max_skew: Int32 = 0
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: Int32 | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] = ()


class ClaimSource(Piece, frozen=True):
    claim_name: str = ""
    read_only: bool = False


class GceDisk(Piece, frozen=True):
    pd_name: str = ""
    read_only: bool = False


class AwsDisk(Piece, frozen=True):
    volume_id: str = msgspec.field(name="volumeID", default="")


class Iscsi(Piece, frozen=True):
    iqn: str = ""
    read_only: bool = False


class Rbd(Piece, frozen=True):
    monitors: tuple[str, ...] = ()
    image: str = ""
    pool: str = ""
    read_only: bool = False


class Volume(Piece, frozen=True):
    name: str = ""
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: dict[str, Any] | None = None  # its claim is called POD-VOLUME and owned by the pod
    gce_persistent_disk: GceDisk | None = None
    aws_elastic_block_store: AwsDisk | None = None
    iscsi: Iscsi | None = None
    rbd: Rbd | None = None


class Named(Piece, frozen=True):
    name: str = ""


class PodSpec(Piece, frozen=True):
    node_name: str = ""
    scheduler_name: str = ""
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    resources: ResourceRequirements | None = None  # of the pod as a whole
    overhead: dict[str, str] = {}
    priority: Int32 = 0
    preemption_policy: str = ""  # Never, or PreemptLowerPriority when empty
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    volumes: tuple[Volume, ...] = ()
    scheduling_gates: tuple[Named, ...] = ()
    resource_claims: tuple[Named, ...] = ()
    scheduling_group: dict[str, Any] | None = None
    workload_ref: dict[str, Any] | None = None  # what Kubernetes 1.35 had in place of schedulingGroup
    host_network: bool = False
    host_users: bool | None = None


class Condition(Piece, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class ContainerStatus(Piece, frozen=True):
    name: str = ""
    resources: ResourceRequirements | None = None  # what the kubelet has actuated
    allocated_resources: dict[str, str] = {}


class PodStatus(Piece, frozen=True):
    phase: str = ""
    conditions: tuple[Condition, ...] = ()
    nominated_node_name: str = ""
    start_time: str | None = None
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    resources: ResourceRequirements | None = None
    allocated_resources: dict[str, str] = {}
    reason: str = ""


class Pod(KubeObject, frozen=True):
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def terminal(self) -> bool:
        """Its containers have ended for good: it takes no more room."""
        return self.status.phase in TERMINAL_PHASES

    @property
    def terminating(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    @property
    def daemon(self) -> bool:
        """A DaemonSet put it on its node."""
        owner = self.metadata.controller
        return owner is not None and owner.kind == "DaemonSet"

    @property
    def static(self) -> bool:
        """A kubelet read it from a file; the API server has only its picture."""
        return "kubernetes.io/config.mirror" in self.metadata.annotations


class Taint(Piece, frozen=True):
    key: str = ""
    effect: str = ""
    value: str = ""


class NodeSpec(Piece, frozen=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class ContainerImage(Piece, frozen=True):
    names: tuple[str, ...] = ()
    size_bytes: Int64 = 0


class NodeStatus(Piece, frozen=True):
    allocatable: dict[str, str] = {}
    conditions: tuple[Condition, ...] = ()
    images: tuple[ContainerImage, ...] = ()
    declared_features: tuple[str, ...] = ()


class Node(KubeObject, frozen=True):
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Namespace(KubeObject, frozen=True):
    pass


class ServiceSpec(Piece, frozen=True):
    selector: dict[str, str] = {}


class Service(KubeObject, frozen=True):
    spec: ServiceSpec = ServiceSpec()


class ReplicationControllerSpec(Piece, frozen=True):
    selector: dict[str, str] = {}


class ReplicationController(KubeObject, frozen=True):
    spec: ReplicationControllerSpec = ReplicationControllerSpec()


class WorkloadSpec(Piece, frozen=True):
    selector: LabelSelector | None = None


class ReplicaSet(KubeObject, frozen=True):
    spec: WorkloadSpec = WorkloadSpec()


class StatefulSet(KubeObject, frozen=True):
    spec: WorkloadSpec = WorkloadSpec()


class DisruptionBudgetSpec(Piece, frozen=True):
    selector: LabelSelector | None = None  # None matches nothing, an empty one all pods of the namespace


class DisruptionBudgetStatus(Piece, frozen=True):
    disruptions_allowed: Int32 = 0
    disrupted_pods: dict[str, str] = {}  # evictions that were granted but not seen yet


class PodDisruptionBudget(KubeObject, frozen=True):
    spec: DisruptionBudgetSpec = DisruptionBudgetSpec()
    status: DisruptionBudgetStatus = DisruptionBudgetStatus()


class DeviceClassSpec(Piece, frozen=True):
    extended_resource_name: str = ""  # pods that ask for this resource get devices of the class


class DeviceClass(KubeObject, frozen=True):
    spec: DeviceClassSpec = DeviceClassSpec()
