"""Every request to the API server that Carico makes, who needs it, and why.

Paths of the API are built here and nowhere else: a function that sends a request takes its path from one of these
entries. What `carico doctor` checks and what the scheduler's ClusterRole grants is generated from the list (rights.py,
roles.py), so neither can lack a request that the code makes. `/version` is in no list: every client may read it.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from enum import Enum

from carico.errors import CaricoError
from carico.kube.paths import segment

VERSION_PATH = "/version"
_METHODS = {
    "get": "GET",
    "list": "GET",
    "watch": "GET",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
    "deletecollection": "DELETE",
}
_ON_COLLECTIONS = ("list", "watch", "deletecollection")


class NeededBy(Enum):
    """The part of Carico that sends a request. The first six are one process, depending on its settings."""

    SCHEDULER = "scheduler"
    ELECTION = "leader election"
    EXTENDER = "extender"
    PRIVATE_PAGES = "private pages"  # on an address that other hosts reach
    TOKENS = "token reviews"  # of callers over gRPC; by the aggregator too
    NODE_CAPACITIES = "node capacities"
    CERTIFICATES = "certificates"  # made by the leader
    DESCHEDULING = "descheduling"
    COMMANDS = "commands"  # `carico explain`, `doctor` and others, with the rights of the user who runs them
    EMBEDDED = "embedded cluster"  # its nodes, the simulated nodes and the demo


@dataclass(frozen=True)
class ApiResource:
    group: str  # "": the core group
    version: str
    plural: str
    namespaced: bool = True
    root: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        object.__setattr__(self, "root", root)

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """
        >>> PODS.path(), PODS.path("a"), NODES.path(name="n", subresource="status")
        ('/api/v1/pods', '/api/v1/namespaces/a/pods', '/api/v1/nodes/n/status')
        """
        where = f"/namespaces/{segment(namespace)}" if namespace else ""
        what = f"/{segment(name)}" if name else ""
        sub = f"/{subresource}" if subresource else ""
        return f"{self.root}{where}/{self.plural}{what}{sub}"


@dataclass(frozen=True, eq=False)
class ApiCall:
    """A verb of RBAC on a resource. `optional`: without this right, or this resource, everything else works."""

    verb: str
    resource: ApiResource
    subresource: str
    why: Mapping[NeededBy, str]  # who needs it, and for what
    optional: bool = False

    @property
    def needed_by(self) -> Set[NeededBy]:
        return self.why.keys()

    @property
    def method(self) -> str:
        return _METHODS[self.verb]

    def path(self, namespace: str = "", name: str = "") -> str:
        """The path of one such request.

        An empty name would make another request of it: to delete one object without a name is to delete all of them.

        >>> BIND_POD.path("team", "web"), CREATE_TOKEN_REVIEW.path()
        ('/api/v1/namespaces/team/pods/web/binding', '/apis/authentication.k8s.io/v1/tokenreviews')
        """
        collection = self.verb in _ON_COLLECTIONS
        named = not collection and (self.verb != "create" or bool(self.subresource))
        if named != bool(name):
            raise CaricoError(f"{self} {'needs' if named else 'takes no'} name of an object")
        if self.resource.namespaced and not collection and not namespace:
            raise CaricoError(f"{self} needs a namespace")
        return self.resource.path(namespace, name, self.subresource)

    def __str__(self) -> str:
        """
        >>> str(BIND_POD), str(CREATE_EVENT)
        ('create pods/binding', 'create events.events.k8s.io')
        """
        resource = self.resource
        name = f"{resource.plural}/{self.subresource}" if self.subresource else resource.plural
        return f"{self.verb} {name}{f'.{resource.group}' if resource.group else ''}"


@dataclass(frozen=True)
class FollowedResource:
    """A resource that is listed and then watched."""

    list: ApiCall
    watch: ApiCall

    @property
    def resource(self) -> ApiResource:
        return self.list.resource


_calls: list[ApiCall] = []


def _call(
    verb: str, resource: ApiResource, why: Mapping[NeededBy, str], sub: str = "", *, optional: bool = False
) -> ApiCall:
    call = ApiCall(verb, resource, sub, why, optional)
    _calls.append(call)
    return call


def _followed(resource: ApiResource, why: Mapping[NeededBy, str], *, optional: bool = False) -> FollowedResource:
    return FollowedResource(
        _call("list", resource, why, optional=optional), _call("watch", resource, why, optional=optional)
    )


def followed(resource: ApiResource, why: str, *, optional: bool = False) -> FollowedResource:
    """For a plugin of another package: listing and watching a kind, in no list here but in that of its scheduler."""
    needed = dict.fromkeys((NeededBy.SCHEDULER, NeededBy.COMMANDS), why)
    return FollowedResource(
        ApiCall("list", resource, "", needed, optional), ApiCall("watch", resource, "", needed, optional)
    )


SCHEDULER, ELECTION, EXTENDER, PRIVATE_PAGES, *_rest = NeededBy
TOKENS, NODE_CAPACITIES, CERTIFICATES, DESCHEDULING, COMMANDS, EMBEDDED = _rest


def _to_place(why: str) -> dict[NeededBy, str]:
    """For the scheduler, and for `carico explain` where no scheduler can be reached."""
    return {SCHEDULER: why, COMMANDS: why}


PODS = ApiResource("", "v1", "pods")
NODES = ApiResource("", "v1", "nodes", namespaced=False)
CLAIMS = ApiResource("", "v1", "persistentvolumeclaims")
VOLUMES = ApiResource("", "v1", "persistentvolumes", namespaced=False)
EVENTS = ApiResource("events.k8s.io", "v1", "events")
LEASES = ApiResource("coordination.k8s.io", "v1", "leases")
TOKEN_REVIEWS = ApiResource("authentication.k8s.io", "v1", "tokenreviews", namespaced=False)
SUBJECT_ACCESS_REVIEWS = ApiResource("authorization.k8s.io", "v1", "subjectaccessreviews", namespaced=False)
NODE_CAPACITY_OBJECTS = ApiResource("carico.dev", "v1alpha1", "nodecapacities", namespaced=False)
SELF_REVIEWS = ApiResource("authorization.k8s.io", "v1", "selfsubjectaccessreviews", namespaced=False)
SECRETS = ApiResource("", "v1", "secrets")
CONFIG_MAPS = ApiResource("", "v1", "configmaps")

# Objects of Carico's own, in its own namespace. Rights on these resources are for these names only.
AUTHORITY_SECRET = BUNDLE_CONFIG_MAP = "carico-ca"
AGGREGATOR_SECRET, SCHEDULER_SECRET = "carico-aggregator-tls", "carico-scheduler-tls"
OWN_NAMES = {SECRETS: (AGGREGATOR_SECRET, AUTHORITY_SECRET, SCHEDULER_SECRET), CONFIG_MAPS: (BUNDLE_CONFIG_MAP,)}

FOLLOW_PODS = _followed(
    PODS, _to_place("pods to place, and what placed pods take of their nodes") | {EMBEDDED: "pods bound to its nodes"}
)
FOLLOW_NODES = _followed(NODES, _to_place("labels, taints and allocatable resources"))
FOLLOW_NAMESPACES = _followed(
    ApiResource("", "v1", "namespaces", namespaced=False), _to_place("namespaceSelector of pod affinity terms")
)
FOLLOW_SERVICES = _followed(ApiResource("", "v1", "services"), _to_place("default spread of a service's pods"))
FOLLOW_REPLICATION_CONTROLLERS = _followed(
    ApiResource("", "v1", "replicationcontrollers"), _to_place("default spread of its pods")
)
FOLLOW_REPLICA_SETS = _followed(ApiResource("apps", "v1", "replicasets"), _to_place("default spread of its pods"))
FOLLOW_STATEFUL_SETS = _followed(ApiResource("apps", "v1", "statefulsets"), _to_place("default spread of its pods"))
FOLLOW_DISRUPTION_BUDGETS = _followed(
    ApiResource("policy", "v1", "poddisruptionbudgets"), _to_place("victims of preemption that no budget protects")
)
FOLLOW_DEVICE_CLASSES = _followed(
    ApiResource("resource.k8s.io", "v1", "deviceclasses", namespaced=False),
    _to_place("extended resources that a device class provides"),
    optional=True,
)
FOLLOW_CLAIMS = _followed(CLAIMS, _to_place("volumes of a pod"))
FOLLOW_VOLUMES = _followed(VOLUMES, _to_place("volumes that a claim can get, and the nodes that reach them"))
FOLLOW_STORAGE_CLASSES = _followed(
    ApiResource("storage.k8s.io", "v1", "storageclasses", namespaced=False),
    _to_place("when a claim is bound, and in which topology"),
)
FOLLOW_CSI_NODES = _followed(
    ApiResource("storage.k8s.io", "v1", "csinodes", namespaced=False), _to_place("how many volumes a node can attach")
)
FOLLOW_CSI_DRIVERS = _followed(
    ApiResource("storage.k8s.io", "v1", "csidrivers", namespaced=False), _to_place("whether a driver reports capacity")
)
FOLLOW_STORAGE_CAPACITIES = _followed(
    ApiResource("storage.k8s.io", "v1", "csistoragecapacities"), _to_place("room for a new volume, by topology")
)
FOLLOW_ATTACHMENTS = _followed(
    ApiResource("storage.k8s.io", "v1", "volumeattachments", namespaced=False), _to_place("volumes that are attached")
)

GET_POD = _call(
    "get",
    PODS,
    {SCHEDULER: "the outcome of a request whose response was lost", COMMANDS: "the pod that a command is asked about"},
)
CREATE_POD = _call(
    "create", PODS, {COMMANDS: "dry run: what a new pod would be stored as", EMBEDDED: "the demo's pods"}
)
BIND_POD = _call("create", PODS, {SCHEDULER: "assigns a pod to its node"}, "binding")
EVICT_POD = _call("create", PODS, {DESCHEDULING: "evicts a pod within its PodDisruptionBudget"}, "eviction")
DELETE_POD = _call(
    "delete", PODS, {SCHEDULER: "victims of preemption", EMBEDDED: "a deleted pod whose processes have ended"}
)
DELETE_PODS = _call("deletecollection", PODS, {EMBEDDED: "the pods of one run of the demo"})
PATCH_POD_STATUS = _call(
    "patch", PODS, {SCHEDULER: "conditions and the nominated node", EMBEDDED: "what its containers do"}, "status"
)

GET_NODE = _call("get", NODES, {EMBEDDED: "a Node from an earlier start"})
CREATE_NODE = _call("create", NODES, {EMBEDDED: "registers a node"})
PATCH_NODE = _call("patch", NODES, {EXTENDER: "an annotation that makes kube-scheduler retry pods"})
PATCH_NODE_STATUS = _call("patch", NODES, {EMBEDDED: "conditions and sizes"}, "status")

PATCH_CLAIM = _call("patch", CLAIMS, {SCHEDULER: "the node for which a volume is to be provisioned"})
PATCH_VOLUME = _call("patch", VOLUMES, {SCHEDULER: "the claim that a volume is reserved for"})

CREATE_EVENT = _call("create", EVENTS, {SCHEDULER: "Scheduled, FailedScheduling, Preempted"})
PATCH_EVENT = _call("patch", EVENTS, {SCHEDULER: "the count of a repeated Event"})

GET_LEASE = _call("get", LEASES, {ELECTION: "who leads", COMMANDS: "who leads", EMBEDDED: "a node's heartbeat"})
CREATE_LEASE = _call("create", LEASES, {ELECTION: "the first leader's Lease", EMBEDDED: "a node's heartbeat"})
UPDATE_LEASE = _call("update", LEASES, {ELECTION: "takes, renews and releases it", EMBEDDED: "a node's heartbeat"})

CREATE_NODE_CAPACITY = _call(
    "create", NODE_CAPACITY_OBJECTS, {NODE_CAPACITIES: "what `kubectl get ncap` shows"}, optional=True
)
PATCH_NODE_CAPACITY_STATUS = _call(
    "patch", NODE_CAPACITY_OBJECTS, {NODE_CAPACITIES: "what `kubectl get ncap` shows"}, "status", optional=True
)
GET_SECRET = _call("get", SECRETS, {CERTIFICATES: "the authority's key, and the certificates of the servers"})
CREATE_SECRET = _call("create", SECRETS, {CERTIFICATES: "the first ones"})
UPDATE_SECRET = _call("update", SECRETS, {CERTIFICATES: "renews them"})
GET_CONFIG_MAP = _call("get", CONFIG_MAPS, {CERTIFICATES: "the authorities that clients trust"})
CREATE_CONFIG_MAP = _call("create", CONFIG_MAPS, {CERTIFICATES: "the first ones"})
UPDATE_CONFIG_MAP = _call("update", CONFIG_MAPS, {CERTIFICATES: "old and new ones together"})

CREATE_TOKEN_REVIEW = _call(
    "create",
    TOKEN_REVIEWS,
    {PRIVATE_PAGES: "authenticates callers of the private pages", TOKENS: "authenticates callers over gRPC"},
)
CREATE_SUBJECT_ACCESS_REVIEW = _call(
    "create", SUBJECT_ACCESS_REVIEWS, {PRIVATE_PAGES: "authorizes callers of the private pages"}
)
CREATE_SELF_REVIEW = _call("create", SELF_REVIEWS, {COMMANDS: "`carico doctor`: which rights a user has"})

CALLS: tuple[ApiCall, ...] = tuple(_calls)
