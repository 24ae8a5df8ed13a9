"""Pods and nodes, and the small objects around them that a scheduler reads (storage.py has the volumes).

    Pod → PodSpec → Container, Affinity, Toleration, TopologySpreadConstraint, Volume
    Node → NodeSpec, NodeStatus
    Namespace, Service, ReplicationController, ReplicaSet, StatefulSet, PodDisruptionBudget, DeviceClass

Amounts stay strings here (`"100m"`); quantity.py parses them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from carico.kube.meta import Int32, Int64, KubeObject, KubeStruct, LabelRequirement, LabelSelector

TERMINAL_PHASES = ("Succeeded", "Failed")


class ResourceRequirements(KubeStruct, frozen=True):
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}


class ContainerPort(KubeStruct, frozen=True):
    container_port: Int32 = 0
    host_port: Int32 = 0
    host_ip: str = msgspec.field(name="hostIP", default="")
    protocol: str = "TCP"


class RestartRule(KubeStruct, frozen=True):
    action: str = ""


class Container(KubeStruct, frozen=True):
    name: str = ""
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str = ""  # Always on an init container makes it a sidecar
    restart_policy_rules: tuple[RestartRule, ...] = ()


class NodeSelectorTerm(KubeStruct, frozen=True):
    match_expressions: tuple[LabelRequirement, ...] = ()
    match_fields: tuple[LabelRequirement, ...] = ()


class NodeSelector(KubeStruct, frozen=True):
    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredNodeTerm(KubeStruct, frozen=True):
    weight: Int32 = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinityRules(KubeStruct, frozen=True):
    required: NodeSelector | None = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)
    preferred: tuple[PreferredNodeTerm, ...] = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=()
    )


class PodAffinityTerm(KubeStruct, frozen=True):
    topology_key: str = ""
    label_selector: LabelSelector | None = None  # None matches nothing, an empty one everything
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None  # an empty one means all namespaces
    match_label_keys: tuple[str, ...] = ()  # the API server merges both into the selector when the pod is created
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(KubeStruct, frozen=True):
    weight: Int32 = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(KubeStruct, frozen=True):
    """Also the schema of anti-affinity."""

    required: tuple[PodAffinityTerm, ...] = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=()
    )
    preferred: tuple[WeightedPodAffinityTerm, ...] = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=()
    )


class Affinity(KubeStruct, frozen=True):
    node_affinity: NodeAffinityRules | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(KubeStruct, frozen=True):
    key: str = ""  # with operator Exists an empty key tolerates everything
    operator: str = ""  # Equal when empty
    value: str = ""
    effect: str = ""  # every effect when empty


class TopologySpreadConstraint(KubeStruct, frozen=True):
    max_skew: Int32 = 0
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: Int32 | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] = ()


class ClaimSource(KubeStruct, frozen=True):
    claim_name: str = ""
    read_only: bool = False


class GceDisk(KubeStruct, frozen=True):
    pd_name: str = ""
    read_only: bool = False


class AwsDisk(KubeStruct, frozen=True):
    volume_id: str = msgspec.field(name="volumeID", default="")


class Iscsi(KubeStruct, frozen=True):
    iqn: str = ""
    read_only: bool = False


class Rbd(KubeStruct, frozen=True):
    monitors: tuple[str, ...] = ()
    image: str = ""
    pool: str = ""
    read_only: bool = False


class Volume(KubeStruct, frozen=True):
    name: str = ""
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: dict[str, Any] | None = None  # its claim is called POD-VOLUME and owned by the pod
    gce_persistent_disk: GceDisk | None = None
    aws_elastic_block_store: AwsDisk | None = None
    iscsi: Iscsi | None = None
    rbd: Rbd | None = None


class Named(KubeStruct, frozen=True):
    name: str = ""


class PodSpec(KubeStruct, frozen=True):
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
    workload_ref: dict[str, Any] | None = None  # Kubernetes 1.35's field, before schedulingGroup
    host_network: bool = False
    host_users: bool | None = None


class Condition(KubeStruct, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class ContainerStatus(KubeStruct, frozen=True):
    name: str = ""
    resources: ResourceRequirements | None = None  # what the kubelet has actuated
    allocated_resources: dict[str, str] = {}


class PodStatus(KubeStruct, frozen=True):
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
        """Its containers have ended permanently: it takes no more room."""
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
        """A kubelet read it from a file; the API server has only a mirror pod."""
        return "kubernetes.io/config.mirror" in self.metadata.annotations


class Taint(KubeStruct, frozen=True):
    key: str = ""
    effect: str = ""
    value: str = ""


class NodeSpec(KubeStruct, frozen=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class ContainerImage(KubeStruct, frozen=True):
    names: tuple[str, ...] = ()
    size_bytes: Int64 = 0


class NodeStatus(KubeStruct, frozen=True):
    allocatable: dict[str, str] = {}
    conditions: tuple[Condition, ...] = ()
    images: tuple[ContainerImage, ...] = ()
    declared_features: tuple[str, ...] = ()


class Node(KubeObject, frozen=True):
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Namespace(KubeObject, frozen=True):
    pass


class ServiceSpec(KubeStruct, frozen=True):
    selector: dict[str, str] = {}


class Service(KubeObject, frozen=True):
    spec: ServiceSpec = ServiceSpec()


class ReplicationControllerSpec(KubeStruct, frozen=True):
    selector: dict[str, str] = {}


class ReplicationController(KubeObject, frozen=True):
    spec: ReplicationControllerSpec = ReplicationControllerSpec()


class WorkloadSpec(KubeStruct, frozen=True):
    selector: LabelSelector | None = None


class ReplicaSet(KubeObject, frozen=True):
    spec: WorkloadSpec = WorkloadSpec()


class StatefulSet(KubeObject, frozen=True):
    spec: WorkloadSpec = WorkloadSpec()


class DisruptionBudgetSpec(KubeStruct, frozen=True):
    selector: LabelSelector | None = None  # None matches nothing, an empty one all pods of the namespace


class DisruptionBudgetStatus(KubeStruct, frozen=True):
    disruptions_allowed: Int32 = 0
    disrupted_pods: dict[str, str] = {}  # evictions that were granted but not observed yet


class PodDisruptionBudget(KubeObject, frozen=True):
    spec: DisruptionBudgetSpec = DisruptionBudgetSpec()
    status: DisruptionBudgetStatus = DisruptionBudgetStatus()


class DeviceClassSpec(KubeStruct, frozen=True):
    extended_resource_name: str = ""  # pods that request this resource get devices of the class


class DeviceClass(KubeObject, frozen=True):
    spec: DeviceClassSpec = DeviceClassSpec()
