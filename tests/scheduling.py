"""Helpers for tests of the scheduler: pods, nodes and reports with only the fields that a test needs."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec

from carico.kube.objects import Node, Pod
from carico.testing.builders import make_cost, make_report

__all__ = ["make_cost", "make_node", "make_pod", "make_report"]

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
