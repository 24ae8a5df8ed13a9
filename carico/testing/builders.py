"""Nodes, pods, reports and class costs with only the fields that a test needs."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec

from carico.kube.objects import Node, Pod
from carico.types import ClassCost, ClassKey, Estimate, Mode, NodeReport

_numbers = itertools.count(1)


def make_node(name: str, *, labels: Any = None, spec: Any = None, **allocatable: str) -> Node:
    """A node with room for 110 pods, 8 cores and 16 GiB unless `allocatable` overrides it.

    >>> make_node("n", cpu="2").status.allocatable["cpu"]
    '2'
    """
    room = {"cpu": "8", "memory": "16Gi", "pods": "110"} | {key.replace("_", "-"): v for key, v in allocatable.items()}
    meta = {"name": name, "uid": f"uid-{name}", "resourceVersion": "1"}
    plain = {
        "metadata": meta | {"labels": {"kubernetes.io/hostname": name} | (labels or {})},
        "spec": spec or {},
        "status": {"allocatable": room, "capacity": room},
    }
    return msgspec.convert(plain, Node)


def make_pod(
    name: str = "",
    *,
    namespace: str = "default",
    uid: str = "",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    owner: str = "",
    units: object = None,
    requests: dict[str, str] | None = None,
    cpu: str = "",
    node: str = "",
    nominated: str = "",
    phase: str = "Pending",
    spec: Any = None,
    status: Any = None,
    metadata: Any = None,
    **more: Any,
) -> Pod:
    """A pod of one container and of the scheduler `carico`; `spec` and `more` add fields, with names as in YAML.

    `owner` is the kind of its controller, `units` the annotation for Capacity, `cpu` short for a request of it.

    >>> make_pod("p", cpu="1", nodeSelector={"disk": "ssd"}).spec.node_selector
    {'disk': 'ssd'}
    """
    name = name or f"pod-{next(_numbers)}"
    meta: dict[str, Any] = {"name": name, "namespace": namespace, "uid": uid or f"uid-{name}", "resourceVersion": "1"}
    meta |= {"labels": labels or {}, "annotations": dict(annotations or {})}
    if units is not None:
        meta["annotations"]["carico.dev/units"] = str(units)
    if owner:
        meta["ownerReferences"] = [{"kind": owner, "name": "o", "uid": "o", "controller": True}]
    wanted = (requests or {}) | ({"cpu": cpu} if cpu else {})
    container = {"name": "main", "image": "example.com/work:1", "resources": {"requests": wanted}}
    plain = {
        "metadata": meta | (metadata or {}),
        "spec": {"schedulerName": "carico", "containers": [container], "nodeName": node} | (spec or {}) | more,
        "status": {"phase": phase, "nominatedNodeName": nominated} | (status or {}),
    }
    return msgspec.convert(plain, Pod)


def make_cost(family: str, *mean: float, revision: str = "", **changes: Any) -> ClassCost:
    """A class whose pods all cost the same: cores and bytes."""
    key = ClassKey(family.partition("/")[0], family, revision)
    fields: dict[str, Any] = {"pods": 1, "weight": 10.0, "variance": (0.0,) * len(mean), "high": mean, "use_high": mean}
    return ClassCost(key=key, mean=mean, **(fields | {"ramp": 0.0} | changes))


def make_estimate(**changes: Any) -> Estimate:
    """Of a settled node with room for ten more pods."""
    fields: dict[str, Any] = {
        "at": 0.0, "usage": (0.2, 0.2), "signal_k": 1.0, "baseline_ratio": (0.1, 0.1), "cost_ratio": (0.1, 0.1),
        "baseline_scalar": 9.0, "cost_scalar": 0.1, "pods": 0, "pod_capacity": 10.0, "mode": Mode.SETTLED,
        "rejecting": False,
    }  # fmt: skip
    return Estimate(**(fields | changes))


def make_report(node: str, capacity: float, counted: Any = (), finished: Any = (), **changes: Any) -> NodeReport:
    """A report with room for `capacity` pods; `at`, `usage`, `cost_ratio` and `room` are of its estimate."""
    of_estimate = {name: changes.pop(name) for name in ("at", "usage", "cost_ratio", "room") if name in changes}
    estimate = make_estimate(pods=len(counted), pod_capacity=capacity, **of_estimate)
    fields: dict[str, Any] = {
        "start_id": 1, "sequence": 1, "sampled_at": 0.0, "age": 0.0, "dimensions": ("cpu", "memory"), "churn": False,
        "cost_absolute": (0.1, 1e8), "agent_version": "test",
    }  # fmt: skip
    fields |= {"counted": frozenset(counted), "finished": frozenset(finished), "estimate": estimate} | changes
    return NodeReport(node=node, **fields)
