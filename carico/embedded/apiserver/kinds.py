"""The table of all kinds of objects that the embedded API server stores.

Most are only stored: no controller acts on them unless a client runs one. `strategies.py` has the special rules of
others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from carico.embedded.apiserver import event_forms

Plain = dict[str, Any]  # an object as decoded JSON


@dataclass(frozen=True)
class KindView:
    """Another API group's view of objects that are stored in the form of the first group."""

    inward: Callable[[Plain], Plain]
    outward: Callable[[Plain], Plain]


@dataclass(frozen=True, eq=False)
class ApiKind:
    group: str  # "" is the core group
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    short: tuple[str, ...] = ()
    status: bool = False  # has a status subresource, and only that writes the field `status`
    more: tuple[str, ...] = ()  # further subresources
    categories: tuple[str, ...] = ()
    stored_with: str = ""  # stored together with another kind's objects
    view: KindView | None = None
    make_on_put: bool = False  # a PUT to a name that does not exist creates it
    blind_put: bool = True  # a PUT may leave out the resourceVersion
    gives_deleted: bool = False  # the response to DELETE is the object instead of a Status
    hidden: bool = False  # answered by separate code, not stored

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
        """The name in messages: `pods`, `leases.coordination.k8s.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def place(self) -> str:
        return self.stored_with or self.resource

    @property
    def singular(self) -> str:
        return self.kind.lower()


_ALL = ("all",)
_EVENT_VIEW = KindView(event_forms.to_core, event_forms.from_core)
PODS = ApiKind(
    "",
    "v1",
    "pods",
    "Pod",
    short=("po",),
    status=True,
    more=("binding", "eviction", "log"),
    categories=_ALL,
    gives_deleted=True,
)
NODES = ApiKind("", "v1", "nodes", "Node", namespaced=False, short=("no",), status=True)
NAMESPACES = ApiKind(
    "", "v1", "namespaces", "Namespace", namespaced=False, short=("ns",), status=True, gives_deleted=True
)  # fmt: skip
EVENTS = ApiKind("", "v1", "events", "Event", short=("ev",), make_on_put=True)
NEW_EVENTS = ApiKind(
    "events.k8s.io", "v1", "events", "Event", short=("ev",), stored_with="events", view=_EVENT_VIEW, make_on_put=True
)  # fmt: skip
LEASES = ApiKind("coordination.k8s.io", "v1", "leases", "Lease", make_on_put=True, blind_put=False)
JOBS = ApiKind("batch", "v1", "jobs", "Job", status=True, categories=_ALL)
PRIORITY_CLASSES = ApiKind(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False, short=("pc",)
)
DISRUPTION_BUDGETS = ApiKind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", short=("pdb",), status=True)
TOKEN_REVIEWS = ApiKind("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False, hidden=True)
SUBJECT_ACCESS_REVIEWS = ApiKind(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False, hidden=True
)  # fmt: skip
NODE_CAPACITIES = ApiKind(
    "carico.dev", "v1alpha1", "nodecapacities", "NodeCapacity", namespaced=False, short=("ncap",), status=True
)

KINDS: tuple[ApiKind, ...] = (
    PODS,
    NODES,
    NAMESPACES,
    EVENTS,
    ApiKind("", "v1", "services", "Service", short=("svc",), status=True, categories=_ALL),
    ApiKind("", "v1", "configmaps", "ConfigMap", short=("cm",)),
    ApiKind("", "v1", "secrets", "Secret"),
    ApiKind("", "v1", "serviceaccounts", "ServiceAccount", short=("sa",), gives_deleted=True),
    ApiKind("", "v1", "replicationcontrollers", "ReplicationController", short=("rc",), status=True, categories=_ALL),
    ApiKind(
        "", "v1", "persistentvolumeclaims", "PersistentVolumeClaim",
        short=("pvc",), status=True, gives_deleted=True,
    ),
    ApiKind(
        "", "v1", "persistentvolumes", "PersistentVolume", namespaced=False, short=("pv",), status=True,
        gives_deleted=True,
    ),
    NEW_EVENTS,
    LEASES,
    JOBS,
    ApiKind("apps", "v1", "deployments", "Deployment", short=("deploy",), status=True, categories=_ALL),
    ApiKind("apps", "v1", "daemonsets", "DaemonSet", short=("ds",), status=True, categories=_ALL),
    ApiKind("apps", "v1", "replicasets", "ReplicaSet", short=("rs",), status=True, categories=_ALL),
    ApiKind("apps", "v1", "statefulsets", "StatefulSet", short=("sts",), status=True, categories=_ALL),
    DISRUPTION_BUDGETS,
    PRIORITY_CLASSES,
    ApiKind(
        "storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False,
        short=("sc",), gives_deleted=True,
    ),
    ApiKind("storage.k8s.io", "v1", "csinodes", "CSINode", namespaced=False, gives_deleted=True),
    ApiKind("storage.k8s.io", "v1", "csidrivers", "CSIDriver", namespaced=False, gives_deleted=True),
    ApiKind("storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity", gives_deleted=True),
    ApiKind(
        "storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", namespaced=False, status=True,
        gives_deleted=True,
    ),
    TOKEN_REVIEWS,
    SUBJECT_ACCESS_REVIEWS,
    ApiKind(
        "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False,
        hidden=True,
    ),
    NODE_CAPACITIES,
)  # fmt: skip
