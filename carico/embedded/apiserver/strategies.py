"""Rules per kind for creation, update and deletion of objects."""

from __future__ import annotations

from carico.embedded.apiserver import pod_rules
from carico.embedded.apiserver.history import Plain
from carico.embedded.apiserver.kinds import EVENTS, JOBS, NAMESPACES, NODES, PODS, PRIORITY_CLASSES, ApiKind
from carico.embedded.apiserver.metadata import timestamp
from carico.embedded.apiserver.status_error import forbidden, invalid
from carico.embedded.apiserver.store import ApiStore

NODE_INFO = (
    "machineID",
    "systemUUID",
    "bootID",
    "kernelVersion",
    "osImage",
    "containerRuntimeVersion",
    "kubeletVersion",
    "kubeProxyVersion",
    "operatingSystem",
    "architecture",
)


JOB_SPEC: Plain = {
    "parallelism": 1,
    "completionMode": "NonIndexed",
    "backoffLimit": 6,
    "manualSelector": False,
    "suspend": False,
    "podReplacementPolicy": "TerminatingOrFailed",
}


class KindStrategies:
    """The default: `status` is written only through its subresource, and a deletion takes effect at once."""

    def create(self, kind: ApiKind, plain: Plain, store: ApiStore, wall: float) -> None:  # noqa: ARG002
        if kind.status:
            plain["status"] = {}

    def update(self, kind: ApiKind, new: Plain, old: Plain) -> None:
        """Check `new`, which is about to replace `old`; both are complete objects."""

    def grace(self, plain: Plain, requested: int | None) -> int | None:  # noqa: ARG002
        """Seconds of the deletion's grace period; None for kinds without one."""
        return None


class PodRules(KindStrategies):
    def create(self, kind: ApiKind, plain: Plain, store: ApiStore, wall: float) -> None:
        pod_rules.default(plain)
        pod_rules.check(kind, plain)
        _give_priority(kind, plain, store)
        plain["status"] = {"phase": "Pending", "qosClass": pod_rules.quality(plain["spec"])}
        if plain["spec"].get("schedulingGates"):
            plain["status"]["conditions"] = [pod_rules.GATED | {"lastTransitionTime": timestamp(wall)}]
        plain["metadata"]["generation"] = 1

    def update(self, kind: ApiKind, new: Plain, old: Plain) -> None:
        pod_rules.default(new)
        pod_rules.check_update(kind, new, old)

    def grace(self, plain: Plain, requested: int | None) -> int | None:
        if not plain["spec"].get("nodeName") or plain["status"].get("phase") in ("Succeeded", "Failed"):
            return 0
        seconds = plain["spec"]["terminationGracePeriodSeconds"] if requested is None else requested
        return 1 if seconds < 0 else int(seconds)


class NodeRules(KindStrategies):
    """A kubelet registers its node including the status."""

    def create(self, kind: ApiKind, plain: Plain, store: ApiStore, wall: float) -> None:  # noqa: ARG002
        status = plain.setdefault("status", {})
        plain.setdefault("spec", {})
        status["nodeInfo"] = dict.fromkeys(NODE_INFO, "") | (status.get("nodeInfo") or {})
        status.setdefault("daemonEndpoints", {"kubeletEndpoint": {"Port": 0}})
        if "capacity" in status and "allocatable" not in status:
            status["allocatable"] = status["capacity"]


class NamespaceRules(KindStrategies):
    def create(self, kind: ApiKind, plain: Plain, store: ApiStore, wall: float) -> None:  # noqa: ARG002
        meta = plain["metadata"]
        meta["labels"] = (meta.get("labels") or {}) | {"kubernetes.io/metadata.name": meta["name"]}
        plain["spec"] = {"finalizers": ["kubernetes"]}
        plain["status"] = {"phase": "Active"}


class JobRules(KindStrategies):
    """Only stored: no controller creates its pods. kubectl shows it from these fields."""

    def create(self, kind: ApiKind, plain: Plain, store: ApiStore, wall: float) -> None:  # noqa: ARG002
        spec, meta = plain.get("spec"), plain["metadata"]
        if not isinstance(spec, dict) or not isinstance(spec.get("template"), dict):
            raise invalid(kind, meta["name"], "spec.template", "Required value", "FieldValueRequired")
        spec = plain["spec"] = JOB_SPEC | ({} if "parallelism" in spec else {"completions": 1}) | spec
        if not spec["manualSelector"]:
            _own_selector(spec, meta)
        spec["template"] = spec["template"] | {"spec": pod_rules.template(spec["template"].get("spec") or {})}
        meta.setdefault("labels", (spec["template"].get("metadata") or {}).get("labels") or {})
        meta["generation"] = 1
        plain["status"] = {}


def _own_selector(spec: Plain, meta: Plain) -> None:
    """Make a Job select its pods by its UID."""
    own = {"batch.kubernetes.io/controller-uid": meta["uid"]}
    labels = {"controller-uid": meta["uid"], "batch.kubernetes.io/job-name": meta["name"], "job-name": meta["name"]}
    inner = spec["template"].get("metadata") or {}
    spec["selector"] = {"matchLabels": own}
    spec["template"] = spec["template"] | {"metadata": inner | {"labels": (inner.get("labels") or {}) | own | labels}}


class EventRules(KindStrategies):
    def create(self, kind: ApiKind, plain: Plain, store: ApiStore, wall: float) -> None:  # noqa: ARG002
        plain.setdefault("reportingComponent", "")
        plain.setdefault("reportingInstance", "")


class PriorityRules(KindStrategies):
    def create(self, kind: ApiKind, plain: Plain, store: ApiStore, wall: float) -> None:  # noqa: ARG002
        plain.setdefault("preemptionPolicy", "PreemptLowerPriority")
        plain.setdefault("value", 0)
        plain["metadata"]["generation"] = 1

    def update(self, kind: ApiKind, new: Plain, old: Plain) -> None:
        if new.get("value", 0) != old.get("value", 0):
            why = "Forbidden: may not be changed in an update."
            raise invalid(kind, old["metadata"]["name"], "value", why, "FieldValueForbidden")


_RULES: dict[str, KindStrategies] = {
    PODS.resource: PodRules(),
    NODES.resource: NodeRules(),
    NAMESPACES.resource: NamespaceRules(),
    JOBS.resource: JobRules(),
    EVENTS.resource: EventRules(),
    PRIORITY_CLASSES.resource: PriorityRules(),
}
_PLAIN = KindStrategies()


def of(kind: ApiKind) -> KindStrategies:
    return _RULES.get(kind.resource, _PLAIN)


def first_objects(wall: float) -> list[tuple[ApiKind, Plain]]:
    """The objects that every cluster has from the start."""
    names = ("default", "kube-node-lease", "kube-public", "kube-system")
    classes = (("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000))
    made = {"creationTimestamp": timestamp(wall)}
    spaces: list[tuple[ApiKind, Plain]] = [(NAMESPACES, {"metadata": {"name": name} | made}) for name in names]
    return spaces + [(PRIORITY_CLASSES, {"metadata": {"name": name} | made, "value": value}) for name, value in classes]


def _give_priority(kind: ApiKind, pod: Plain, store: ApiStore) -> None:
    """As the admission controller `Priority`: resolves priorityClassName to a number."""
    spec, name = pod["spec"], pod["metadata"]["name"]
    wanted = spec.get("priorityClassName") or _default_class(store)
    found: Plain = {}
    if wanted:
        record = store.get(PRIORITY_CLASSES, ("", wanted))
        if record is None:
            raise forbidden(kind, name, f"no PriorityClass with name {wanted} was found")
        found, spec["priorityClassName"] = record.plain, wanted
    value = found.get("value", 0)
    if spec.get("priority", value) != value:
        message = (
            f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; "
            f"priority admission controller computed {value} from the given PriorityClass name"
        )
        raise forbidden(kind, name, message)
    spec["priority"] = value
    spec.setdefault("preemptionPolicy", found.get("preemptionPolicy", "PreemptLowerPriority"))


def _default_class(store: ApiStore) -> str:
    classes = store.collection(PRIORITY_CLASSES).records.values()
    return next((record.plain["metadata"]["name"] for record in classes if record.plain.get("globalDefault")), "")
