"""Defaults and validation of pods. The defaults are those of kube-apiserver."""

from __future__ import annotations

from typing import Any

from carico.embedded.apiserver.history import Plain
from carico.embedded.apiserver.kinds import ApiKind
from carico.embedded.apiserver.status_error import invalid
from carico.kube import quantity

GATED = {
    "type": "PodScheduled",
    "status": "False",
    "lastProbeTime": None,
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}
_SPEC: Plain = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "serviceAccountName": "default",
    "serviceAccount": "default",
    "schedulerName": "default-scheduler",
    "enableServiceLinks": True,
}
_CONTAINER: Plain = {"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}
_PATIENCE = tuple(
    {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for what in ("not-ready", "unreachable")
)
_CHANGEABLE = ("activeDeadlineSeconds", "tolerations", "schedulingGates", "terminationGracePeriodSeconds")


def default(pod: Plain) -> None:
    """Set omitted fields. `pod` is modified, nested objects are replaced."""
    spec = pod["spec"] = _SPEC | {k: v for k, v in (pod.get("spec") or {}).items() if v is not None}
    spec.setdefault("securityContext", {})
    for field in ("containers", "initContainers"):
        if isinstance(spec.get(field), list):
            spec[field] = [_container(one) if isinstance(one, dict) else one for one in spec[field]]
    present = [one for one in spec.get("tolerations") or [] if isinstance(one, dict)]
    spec["tolerations"] = present + [one for one in _PATIENCE if not any(_covers(old, one) for old in present)]


def template(spec: Plain) -> Plain:
    """The defaults of a pod template; the others are set when the pod is created."""
    early = ("restartPolicy", "terminationGracePeriodSeconds", "dnsPolicy", "schedulerName")
    whole = {field: _SPEC[field] for field in early} | spec
    for field in ("containers", "initContainers"):
        if isinstance(whole.get(field), list):
            whole[field] = [_container(one) if isinstance(one, dict) else one for one in whole[field]]
    return whole


def _container(given: Plain) -> Plain:
    container = _CONTAINER | given
    tag = str(container.get("image", "")).rpartition("/")[2].partition(":")[2]
    container.setdefault("imagePullPolicy", "IfNotPresent" if tag not in ("", "latest") else "Always")
    resources = dict(container.get("resources") or {})
    if limits := resources.get("limits"):
        resources["requests"] = limits | (resources.get("requests") or {})
    container["resources"] = resources
    if ports := container.get("ports"):
        container["ports"] = [{"protocol": "TCP"} | port if isinstance(port, dict) else port for port in ports]
    return container


def _covers(old: Plain, new: Plain) -> bool:
    same_key = old.get("key", "") in ("", new["key"])
    return same_key and old.get("effect", "") in ("", new["effect"])


def check(kind: ApiKind, pod: Plain) -> None:
    name, spec = pod["metadata"]["name"], pod["spec"]
    containers = spec.get("containers")
    if not isinstance(containers, list) or not containers:
        raise invalid(kind, name, "spec.containers", "Required value", "FieldValueRequired")
    seen: set[str] = set()
    for field in ("containers", "initContainers"):
        for i, container in enumerate(spec.get(field) or []):
            _check_container(kind, name, f"spec.{field}[{i}]", container, seen)
    if spec["restartPolicy"] not in ("Always", "OnFailure", "Never"):
        why = f'Unsupported value: "{spec["restartPolicy"]}": supported values: "Always", "OnFailure", "Never"'
        raise invalid(kind, name, "spec.restartPolicy", why, "FieldValueNotSupported")


def _check_container(kind: ApiKind, pod: str, where: str, container: Any, seen: set[str]) -> None:
    for field in ("name", "image"):
        if not isinstance(container, dict) or not container.get(field):
            raise invalid(kind, pod, f"{where}.{field}", "Required value", "FieldValueRequired")
    if container["name"] in seen:
        why = f'Duplicate value: "{container["name"]}"'
        raise invalid(kind, pod, f"{where}.name", why, "FieldValueDuplicate")
    seen.add(container["name"])


def check_update(kind: ApiKind, new: Plain, old: Plain) -> None:
    """Reject changes of a pod's spec, except for a few fields."""
    name = old["metadata"]["name"]
    gates = {gate["name"] for gate in old["spec"].get("schedulingGates") or []}
    for gate in new["spec"].get("schedulingGates") or []:
        if gate.get("name") not in gates:
            why = "Forbidden: only deletion is allowed, but found new scheduling gate"
            raise invalid(kind, name, "spec.schedulingGates", why, "FieldValueForbidden")
    if _fixed(new["spec"]) != _fixed(old["spec"]):
        why = (
            "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
            "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to "
            "existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously "
            "negative)"
        )
        raise invalid(kind, name, "spec", why, "FieldValueForbidden")


def _fixed(spec: Plain) -> Plain:
    """The part of a spec that no update may change."""
    fixed = {key: value for key, value in spec.items() if key not in _CHANGEABLE}
    for field in ("containers", "initContainers"):
        if field in fixed:
            fixed[field] = [{k: v for k, v in one.items() if k != "image"} for one in fixed[field]]
    return fixed


def quality(spec: Plain) -> str:
    """
    >>> quality({"containers": [{"resources": {}}]})
    'BestEffort'
    >>> quality({"containers": [{"resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1"}}}]})
    'Burstable'
    >>> both = {"cpu": "1", "memory": "1Gi"}
    >>> quality({"containers": [{"resources": {"limits": both, "requests": {"cpu": "1000m", "memory": "1024Mi"}}}]})
    'Guaranteed'
    """
    guaranteed, anything = True, False
    for container in [*(spec.get("initContainers") or []), *spec["containers"]]:
        resources = container.get("resources") or {}
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        anything = anything or bool(limits or requests)
        whole = {"cpu", "memory"}
        guaranteed = guaranteed and whole <= limits.keys() and all(_same(requests.get(r), limits[r]) for r in whole)
    if not anything:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _same(one: Any, other: Any) -> bool:
    """Equal as quantities; requests and limits may be written in different ways."""
    try:
        return one is not None and quantity.parse(str(one)) == quantity.parse(str(other))
    except ValueError:
        return bool(one == other)
