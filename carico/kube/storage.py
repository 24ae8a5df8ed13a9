"""Claims, volumes and their drivers: the fields that placement depends on."""

from __future__ import annotations

from carico.kube.meta import Int32, KubeObject, KubeStruct, LabelSelector
from carico.kube.objects import NodeSelector, ResourceRequirements

BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
BETA_CLASS = "volume.beta.kubernetes.io/storage-class"


class ClaimSpec(KubeStruct, frozen=True):
    volume_name: str = ""
    storage_class_name: str | None = None
    access_modes: tuple[str, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    selector: LabelSelector | None = None
    volume_mode: str = "Filesystem"
    volume_attributes_class_name: str | None = None


class ClaimStatus(KubeStruct, frozen=True):
    phase: str = ""


class PersistentVolumeClaim(KubeObject, frozen=True):
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()

    @property
    def bound(self) -> bool:
        """A volume is chosen and the volume controller has completed the binding."""
        return self.spec.volume_name != "" and BIND_COMPLETED in self.metadata.annotations

    @property
    def class_name(self) -> str:
        """The beta annotation still takes precedence over the field."""
        return self.metadata.annotations.get(BETA_CLASS, self.spec.storage_class_name or "")


class ClaimRef(KubeStruct, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""


class CsiSource(KubeStruct, frozen=True):
    driver: str = ""
    volume_handle: str = ""


class VolumeNodeAffinity(KubeStruct, frozen=True):
    required: NodeSelector | None = None


class VolumeSpec(KubeStruct, frozen=True):
    capacity: dict[str, str] = {}
    access_modes: tuple[str, ...] = ()
    claim_ref: ClaimRef | None = None
    storage_class_name: str = ""
    volume_mode: str = "Filesystem"
    node_affinity: VolumeNodeAffinity | None = None
    csi: CsiSource | None = None
    volume_attributes_class_name: str | None = None


class VolumeStatus(KubeStruct, frozen=True):
    phase: str = ""


class PersistentVolume(KubeObject, frozen=True):
    spec: VolumeSpec = VolumeSpec()
    status: VolumeStatus = VolumeStatus()

    @property
    def class_name(self) -> str:
        return self.metadata.annotations.get(BETA_CLASS, self.spec.storage_class_name)


class TopologyTerm(KubeStruct, frozen=True):
    match_label_expressions: tuple[TopologyExpression, ...] = ()


class TopologyExpression(KubeStruct, frozen=True):
    key: str = ""
    values: tuple[str, ...] = ()


class StorageClass(KubeObject, frozen=True):
    provisioner: str = ""
    volume_binding_mode: str = ""  # Immediate or WaitForFirstConsumer
    allowed_topologies: tuple[TopologyTerm, ...] = ()


class DriverAllocatable(KubeStruct, frozen=True):
    count: Int32 | None = None  # volumes that one node can attach


class CsiNodeDriver(KubeStruct, frozen=True):
    name: str = ""
    allocatable: DriverAllocatable | None = None


class CsiNodeSpec(KubeStruct, frozen=True):
    drivers: tuple[CsiNodeDriver, ...] | None = None  # the API server writes null for none


class CSINode(KubeObject, frozen=True):
    spec: CsiNodeSpec = CsiNodeSpec()

    def limits(self) -> dict[str, int]:
        """Volumes per driver; a driver without a limit is left out."""
        counted = ((d.name, d.allocatable) for d in self.spec.drivers or ())
        return {name: room.count for name, room in counted if room is not None and room.count is not None}


class CsiDriverSpec(KubeStruct, frozen=True):
    storage_capacity: bool = False


class CSIDriver(KubeObject, frozen=True):
    spec: CsiDriverSpec = CsiDriverSpec()


class CSIStorageCapacity(KubeObject, frozen=True):
    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    capacity: str | None = None
    maximum_volume_size: str | None = None


class AttachmentSource(KubeStruct, frozen=True):
    persistent_volume_name: str | None = None


class AttachmentSpec(KubeStruct, frozen=True):
    attacher: str = ""
    node_name: str = ""
    source: AttachmentSource = AttachmentSource()


class VolumeAttachment(KubeObject, frozen=True):
    spec: AttachmentSpec = AttachmentSpec()
