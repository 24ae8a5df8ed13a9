"""Helpers for tests of the scheduler: pods, nodes and reports with only the fields that a test needs."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec

from carico.kube.objects import Node, Pod
from carico.types import ClassCost, ClassKey, Estimate, Mode, NodeReport

_numbers = itertools.count(1)


def make_pod(name: str = "", **changes: Any) -> Pod:
    """A pending pod of the scheduler `carico`; `node`, `phase`, `units`, `priority`, `labels` and any spec field."""
    name = name or f"pod-{next(_numbers)}"
    meta: dict[str, Any] = {"name": name, "namespace": changes.pop("namespace", "default"), "resourceVersion": "1"}
    meta["uid"] = changes.pop("uid", f"uid-{name}")
    meta["labels"] = changes.pop("labels", {})
    if (units := changes.pop("units", None)) is not None:
        meta["annotations"] = {"carico.dev/units": str(units)}
    if (owner := changes.pop("owner", None)) is not None:
        meta["ownerReferences"] = [{"kind": owner, "name": "o", "uid": "o", "controller": True}]
    status: dict[str, Any] = {"phase": changes.pop("phase", "Pending")}
    if nominated := changes.pop("nominated", ""):
        status["nominatedNodeName"] = nominated
    spec: dict[str, Any] = {"schedulerName": "carico", "containers": [{"name": "c", "image": "i"}]}
    if node := changes.pop("node", ""):
        spec["nodeName"] = node
    if cpu := changes.pop("cpu", ""):
        spec["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
    return msgspec.convert({"metadata": meta, "spec": spec | changes, "status": status}, Pod)


def make_node(name: str, cpu: str = "8", pods: str = "110", **changes: Any) -> Node:
    room = {"cpu": cpu, "memory": "32Gi", "pods": pods}
    labels = {"kubernetes.io/hostname": name} | changes.pop("labels", {})
    meta = {"name": name, "uid": f"uid-{name}", "resourceVersion": "1", "labels": labels}
    return msgspec.convert({"metadata": meta, "spec": changes, "status": {"allocatable": room, "capacity": room}}, Node)


def make_cost(family: str, *mean: float, revision: str = "", **changes: Any) -> ClassCost:
    """A class whose pods all cost the same: cores and bytes."""
    key = ClassKey(family.partition("/")[0], family, revision)
    fields: dict[str, Any] = {"pods": 1, "weight": 10.0, "variance": (0.0,) * len(mean), "high": mean, "use_high": mean}
    return ClassCost(key=key, mean=mean, **(fields | {"ramp": 0.0} | changes))


def make_report(node: str, capacity: float, counted: Any = (), finished: Any = (), **changes: Any) -> NodeReport:
    estimate = Estimate(
        at=changes.pop("at", 0.0),
        usage=changes.pop("usage", (0.2, 0.2)),
        signal_k=1.0,
        baseline_ratio=(0.1, 0.1),
        cost_ratio=changes.pop("cost_ratio", (0.1, 0.1)),
        baseline_scalar=9.0,
        cost_scalar=0.1,
        pods=len(counted),
        pod_capacity=capacity,
        mode=Mode.SETTLED,
        rejecting=False,
        room=changes.pop("room", ()),
    )
    fields: dict[str, Any] = {
        "start_id": 1, "sequence": 1, "sampled_at": 0.0, "age": 0.0, "dimensions": ("cpu", "memory"), "churn": False,
        "cost_absolute": (0.1, 1e8), "agent_version": "test",
    }  # fmt: skip
    fields |= {"counted": frozenset(counted), "finished": frozenset(finished), "estimate": estimate} | changes
    return NodeReport(node=node, **fields)
