"""Reads a pod manifest, and applies the API server's defaults that a scheduler depends on.

The API server accepts amounts as numbers and sets defaults. A dry-run create returns exactly what it would store
(kube/dry_run.py). Where that is not possible, `completed` sets what needs no other object of the cluster: requests from
limits, host ports, selectors by `matchLabelKeys`. What a PriorityClass, a RuntimeClass, a LimitRange or other admission
would add stays unknown, and the answer has a note about it (`UNKNOWN`).
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml

from carico.errors import UsageError
from carico.kube import quantity
from carico.kube.objects import Pod
from carico.scheduler.http import bounded_yaml

Plain = dict[str, Any]

DEFAULT_NAMESPACE = "default"
# Metadata that the API server sets itself; a copy of a stored pod has them.
STORED = ("uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "generation", "managedFields", "selfLink")
UNKNOWN = "what a PriorityClass, a RuntimeClass, a LimitRange or other admission would set is not taken into account"
SYSTEM_PRIORITY = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}
LABEL_KEYS = (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))


def read(file: str, namespace: str = DEFAULT_NAMESPACE) -> Plain:
    """A Pod from a YAML or JSON file, ready to be created; - is standard input.

    `namespace` is for a pod that names none.
    """
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text()
        plain = bounded_yaml.load(text)
    except OSError as error:
        raise UsageError(f"{file}: cannot be read ({error.strerror})") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{file}: is not a pod: {_in_one_line(error)}") from error
    if not isinstance(plain, dict) or plain.get("kind", "Pod") != "Pod":
        raise UsageError(f"{file}: is not a Pod but {plain.get('kind') if isinstance(plain, dict) else 'no object'}")
    return as_new(json.loads(json.dumps(plain, default=str)), file, namespace)


def _in_one_line(error: Exception) -> str:
    """PyYAML's own text quotes the source over several lines."""
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return str(error)
    about = ", ".join(part for part in (error.context, error.problem) if part)
    return f"{about} (line {error.problem_mark.line + 1})"


def as_new(plain: Plain, where: str, namespace: str = DEFAULT_NAMESPACE) -> Plain:
    """Without the fields that only a stored pod has, and with a namespace and a name or generateName."""
    wanted: Plain = _without_nulls(plain)
    meta, spec = wanted.setdefault("metadata", {}), wanted.setdefault("spec", {})
    if not isinstance(meta, dict) or not isinstance(spec, dict):
        raise UsageError(f"{where}: is not a pod: metadata and spec are objects")
    for name in STORED:
        meta.pop(name, None)
    wanted.pop("status", None)
    spec.pop("nodeName", None)
    meta.setdefault("namespace", namespace)
    if not meta.get("name"):
        meta.setdefault("generateName", "simulated-")
    return wanted | {"apiVersion": "v1", "kind": "Pod"}


def completed(plain: Plain) -> Plain:
    """The pod with the defaults that need no other object; a pod that was stored already stays unchanged."""
    pod: Plain = _without_nulls(plain)
    meta, spec = _object(pod, "metadata"), _object(pod, "spec")
    meta.setdefault("namespace", DEFAULT_NAMESPACE)
    if not meta.get("name"):
        meta["name"] = f"{meta.get('generateName') or 'simulated-'}00000"
    containers = [*_list(spec, "containers"), *_list(spec, "initContainers")]
    for container in containers:
        _complete_container(container, host_network=spec.get("hostNetwork") is True)
    _complete_whole_pod(spec, containers)
    spec["overhead"] = _amounts(spec.get("overhead"))
    if spec.get("priorityClassName") in SYSTEM_PRIORITY:
        spec.setdefault("priority", SYSTEM_PRIORITY[spec["priorityClassName"]])
    for term in _pod_terms(spec):
        _apply_label_keys(term, meta.get("labels") or {})
    return pod


def as_pod(plain: Plain, where: str) -> Pod:
    """The completed pod, decoded; UsageError if it is not a pod."""
    try:
        return msgspec.convert(completed(plain), type=Pod)
    except (msgspec.ValidationError, TypeError, ValueError, KeyError, AttributeError) as error:
        raise UsageError(f"{where}: is not a pod: {error}") from error


def as_stranger(pod: Pod) -> Pod:
    """The pod with a UID of its own and on no node: a body must not name a pod of the cluster and move it."""
    metadata = msgspec.structs.replace(pod.metadata, uid=f"simulated-{uuid.uuid4()}")
    return msgspec.structs.replace(pod, metadata=metadata, spec=msgspec.structs.replace(pod.spec, node_name=""))


def _complete_container(container: Plain, *, host_network: bool) -> None:
    resources = container["resources"] = dict(container.get("resources") or {})
    limits = resources["limits"] = _amounts(resources.get("limits"))
    resources["requests"] = limits | _amounts(resources.get("requests"))
    for port in _list(container, "ports"):
        if host_network and not port.get("hostPort"):
            port["hostPort"] = port.get("containerPort", 0)


def _complete_whole_pod(spec: Plain, containers: list[Plain]) -> None:
    """A pod-level limit becomes the pod-level request, unless a container requests that resource; hugepages always."""
    if spec.get("resources") is None:
        return
    whole = spec["resources"] = dict(spec["resources"])
    limits, requests = _amounts(whole.get("limits")), _amounts(whole.get("requests"))
    requested = {name for container in containers for name in container["resources"]["requests"]}
    huge = {name for name in limits if name.startswith("hugepages-")}
    own = {name: amount for name, amount in limits.items() if name in huge or name not in requested}
    whole["limits"], whole["requests"] = limits, own | requests


def _amounts(amounts: Any) -> dict[str, str]:
    """Amounts as text: `cpu: 1` and `cpu: 0.5` are valid, as is `cpu: "1"`.

    >>> _amounts({"cpu": 0.5, "memory": "1Gi", "example.com/gpu": 1})
    {'cpu': '0.5', 'memory': '1Gi', 'example.com/gpu': '1'}
    """
    found = {name: str(amount) for name, amount in (amounts or {}).items()}
    for text in found.values():
        quantity.parse(text)  # raises for an invalid quantity
    return found


def _pod_terms(spec: Plain) -> Iterator[Plain]:
    affinity = spec.get("affinity") or {}
    for side in ("podAffinity", "podAntiAffinity"):
        terms = affinity.get(side) or {}
        yield from _list(terms, "requiredDuringSchedulingIgnoredDuringExecution")
        for weighted in _list(terms, "preferredDuringSchedulingIgnoredDuringExecution"):
            yield weighted["podAffinityTerm"]


def _apply_label_keys(term: Plain, labels: dict[str, str]) -> None:
    """As the API server does: merges the keys into the selector. Idempotent."""
    if term.get("labelSelector") is None:
        return
    selector = term["labelSelector"]
    for field, operator in LABEL_KEYS:
        for key in (key for key in term.get(field) or () if key in labels):
            wanted = {"key": key, "operator": operator, "values": [labels[key]]}
            if wanted not in _list(selector, "matchExpressions"):
                selector.setdefault("matchExpressions", []).append(wanted)


def _object(plain: Plain, name: str) -> Plain:
    found = plain.setdefault(name, {})
    if not isinstance(found, dict):
        raise TypeError(f"{name} is not an object")
    return found


def _list(plain: Plain, name: str) -> list[Plain]:
    found = plain.get(name) or []
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise TypeError(f"{name} is not a list of objects")
    return found


def _without_nulls(value: Any) -> Any:
    """A copy without null values: to the API server they are the same as absent ones."""
    if isinstance(value, dict):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value if item is not None]
    return value
