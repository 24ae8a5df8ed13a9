"""The table of all kinds of objects that the embedded API server keeps.

Most are only kept: whoever needs a controller for them brings one. `rules.py` has what is special about the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from carico.local.api import event_forms

Plain = dict[str, Any]  # an object as JSON has it


@dataclass(frozen=True)
class View:
    """Another group's form of objects that are kept in the form of the first."""

    inward: Callable[[Plain], Plain]
    outward: Callable[[Plain], Plain]


@dataclass(frozen=True, eq=False)
class Kind:
    group: str  # "" is the core group
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    short: tuple[str, ...] = ()
    status: bool = False  # has a subresource of that name, which alone writes the field `status`
    more: tuple[str, ...] = ()  # further subresources
    categories: tuple[str, ...] = ()
    shelf: str = ""  # kept together with another kind's objects
    view: View | None = None
    make_on_put: bool = False  # a PUT to a name that is not there creates it
    blind_put: bool = True  # a PUT may leave out the version that it is based on
    gives_deleted: bool = False  # DELETE answers with the object instead of a Status
    hidden: bool = False  # answered by code of its own, not kept

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self) -> str:
        """
        >>> PODS.root, LEASES.root
        ('/api/v1', '/apis/coordination.k8s.io/v1')
        """
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    @property
    def resource(self) -> str:
        """How messages name it: `pods`, `leases.coordination.k8s.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def place(self) -> str:
        return self.shelf or self.resource

    @property
    def singular(self) -> str:
        return self.kind.lower()


_ALL = ("all",)
_EVENT_VIEW = View(event_forms.to_core, event_forms.from_core)
PODS = Kind(
    "", "v1", "pods", "Pod", short=("po",), status=True, more=("binding", "log"), categories=_ALL, gives_deleted=True
)
NODES = Kind("", "v1", "nodes", "Node", namespaced=False, short=("no",), status=True)
NAMESPACES = Kind(
    "", "v1", "namespaces", "Namespace", namespaced=False, short=("ns",), status=True, gives_deleted=True
)  # fmt: skip
EVENTS = Kind("", "v1", "events", "Event", short=("ev",), make_on_put=True)
NEW_EVENTS = Kind(
    "events.k8s.io", "v1", "events", "Event", short=("ev",), shelf="events", view=_EVENT_VIEW, make_on_put=True
)  # fmt: skip
LEASES = Kind("coordination.k8s.io", "v1", "leases", "Lease", make_on_put=True, blind_put=False)
JOBS = Kind("batch", "v1", "jobs", "Job", status=True, categories=_ALL)
PRIORITY_CLASSES = Kind("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False, short=("pc",))
TOKEN_REVIEWS = Kind("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False, hidden=True)
SUBJECT_ACCESS_REVIEWS = Kind(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False, hidden=True
)  # fmt: skip

KINDS: tuple[Kind, ...] = (
    PODS,
    NODES,
    NAMESPACES,
    EVENTS,
    Kind("", "v1", "services", "Service", short=("svc",), status=True, categories=_ALL),
    Kind("", "v1", "configmaps", "ConfigMap", short=("cm",)),
    Kind("", "v1", "secrets", "Secret"),
    Kind("", "v1", "serviceaccounts", "ServiceAccount", short=("sa",), gives_deleted=True),
    Kind("", "v1", "replicationcontrollers", "ReplicationController", short=("rc",), status=True, categories=_ALL),
    Kind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", short=("pvc",), status=True, gives_deleted=True),
    Kind(
        "", "v1", "persistentvolumes", "PersistentVolume", namespaced=False, short=("pv",), status=True,
        gives_deleted=True,
    ),
    NEW_EVENTS,
    LEASES,
    JOBS,
    Kind("apps", "v1", "deployments", "Deployment", short=("deploy",), status=True, categories=_ALL),
    Kind("apps", "v1", "daemonsets", "DaemonSet", short=("ds",), status=True, categories=_ALL),
    Kind("apps", "v1", "replicasets", "ReplicaSet", short=("rs",), status=True, categories=_ALL),
    Kind("apps", "v1", "statefulsets", "StatefulSet", short=("sts",), status=True, categories=_ALL),
    Kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", short=("pdb",), status=True),
    PRIORITY_CLASSES,
    Kind("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False, short=("sc",), gives_deleted=True),
    Kind("storage.k8s.io", "v1", "csinodes", "CSINode", namespaced=False, gives_deleted=True),
    Kind("storage.k8s.io", "v1", "csidrivers", "CSIDriver", namespaced=False, gives_deleted=True),
    Kind("storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity", gives_deleted=True),
    Kind(
        "storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", namespaced=False, status=True,
        gives_deleted=True,
    ),
    TOKEN_REVIEWS,
    SUBJECT_ACCESS_REVIEWS,
    Kind(
        "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False,
        hidden=True,
    ),
    Kind("carico.dev", "v1alpha1", "nodecapacities", "NodeCapacity", namespaced=False, short=("ncap",), status=True),
)  # fmt: skip
