"""Tables for `kubectl get`: the server defines the columns of a kind and their cells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from carico.embedded.apiserver import pod_table
from carico.embedded.apiserver.ages import since
from carico.embedded.apiserver.history import Plain
from carico.embedded.apiserver.kinds import (
    EVENTS,
    JOBS,
    LEASES,
    NAMESPACES,
    NEW_EVENTS,
    NODE_CAPACITIES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    ApiKind,
)

NONE = "<none>"


class TableSpec(NamedTuple):
    columns: tuple[str, ...]
    wide: tuple[str, ...]  # those among them that only -o wide shows
    cells: Callable[[Plain, float], list[Any]]


def empty() -> Plain:
    return {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {}, "columnDefinitions": [], "rows": []}


def columns(kind: ApiKind) -> list[Plain]:
    sheet = _SHEETS.get(kind.resource, _PLAIN)
    return [
        {
            "name": name,
            "type": "string",
            "format": "name" if name == "Name" else "",
            "description": "",
            "priority": 1 if name in sheet.wide else 0,
        }
        for name in sheet.columns
    ]


def cells(kind: ApiKind, plain: Plain, now: float) -> list[Any]:
    return _SHEETS.get(kind.resource, _PLAIN).cells(plain, now)


def _age(plain: Plain, now: float) -> str:
    return since(plain["metadata"].get("creationTimestamp"), now)


def _plain(plain: Plain, now: float) -> list[Any]:
    return [plain["metadata"]["name"], _age(plain, now)]


def _namespace(plain: Plain, now: float) -> list[Any]:
    return [plain["metadata"]["name"], plain["status"]["phase"], _age(plain, now)]


def _lease(plain: Plain, now: float) -> list[Any]:
    return [plain["metadata"]["name"], (plain.get("spec") or {}).get("holderIdentity", ""), _age(plain, now)]


def _priority(plain: Plain, now: float) -> list[Any]:
    default = bool(plain.get("globalDefault"))
    return [plain["metadata"]["name"], plain["value"], default, _age(plain, now), plain["preemptionPolicy"]]


def _node(plain: Plain, now: float) -> list[Any]:
    meta, spec, status = plain["metadata"], plain.get("spec") or {}, plain.get("status") or {}
    labels, info = meta.get("labels") or {}, status.get("nodeInfo") or {}
    conditions = {c.get("type"): c.get("status") for c in status.get("conditions") or []}
    state = {"True": "Ready", None: "Unknown"}.get(conditions.get("Ready"), "NotReady")
    state += ",SchedulingDisabled" if spec.get("unschedulable") else ""
    prefix = "node-role.kubernetes.io/"
    roles = ",".join(sorted(label.removeprefix(prefix) for label in labels if label.startswith(prefix)))
    addresses = {a.get("type"): a.get("address") for a in reversed(status.get("addresses") or [])}
    return [
        meta["name"],
        state,
        roles or NONE,
        _age(plain, now),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP", NONE),
        addresses.get("ExternalIP", NONE),
        info.get("osImage") or "<unknown>",
        info.get("kernelVersion") or "<unknown>",
        info.get("containerRuntimeVersion") or "<unknown>",
    ]


def _event(plain: Plain, now: float) -> list[Any]:
    series, about = plain.get("series") or {}, plain.get("involvedObject") or {}
    first = plain.get("firstTimestamp") or plain.get("eventTime") or plain["metadata"].get("creationTimestamp")
    last = series.get("lastObservedTime") or plain.get("lastTimestamp") or first
    source = plain.get("source") or {}
    speaker = source.get("component") or plain.get("reportingComponent", "")
    place = source.get("host") or plain.get("reportingInstance", "")
    return [
        since(last, now),
        plain.get("type", ""),
        plain.get("reason", ""),
        f"{about.get('kind', '').lower()}/{about.get('name', '')}",
        about.get("fieldPath", ""),
        f"{speaker}, {place}" if place else speaker,
        str(plain.get("message", "")).strip(),
        since(first, now),
        series.get("count") or plain.get("count") or 1,
        plain["metadata"]["name"],
    ]


def _node_capacity(plain: Plain, now: float) -> list[Any]:
    """As kube-apiserver does by the printer columns of the CRD."""
    status = plain.get("status") or {}
    room = status.get("room") or {}
    return [
        plain["metadata"]["name"],
        status.get("podCapacity"),
        room.get("cpu"),
        room.get("memory"),
        status.get("reserved"),
        status.get("pods"),
        status.get("mode"),
        status.get("stale"),
        since(status["updatedAt"], now) if "updatedAt" in status else None,
        since(status["sampledAt"], now) if "sampledAt" in status else None,
        _age(plain, now),
    ]


def _job(plain: Plain, now: float) -> list[Any]:
    spec, status = plain.get("spec") or {}, plain.get("status") or {}
    done = {c.get("type") for c in status.get("conditions") or [] if c.get("status") == "True"}
    state = next((name for name in ("Complete", "Failed", "Suspended") if name in done), "Running")
    wanted = spec.get("completions")
    completions = f"{status.get('succeeded', 0)}/{wanted if wanted is not None else spec.get('parallelism', 1)}"
    started = status.get("startTime")
    took = since(started, now, until=status.get("completionTime")) if started else ""
    containers = ((spec.get("template") or {}).get("spec") or {}).get("containers") or []
    names, images = (",".join(str(c.get(field, "")) for c in containers) for field in ("name", "image"))
    labels = ((spec.get("selector") or {}).get("matchLabels") or {}).items()
    selector = ",".join(f"{key}={value}" for key, value in labels) or NONE
    return [plain["metadata"]["name"], state, completions, took, _age(plain, now), names, images, selector]


_ABOUT_A_NODE = ("Internal-IP", "External-IP", "OS-Image", "Kernel-Version", "Container-Runtime")
_EVENT_SHEET = TableSpec(
    ("Last Seen", "Type", "Reason", "Object", "Subobject", "Source", "Message", "First Seen", "Count", "Name"),
    ("Subobject", "Source", "First Seen", "Count", "Name"),
    _event,
)
_PLAIN = TableSpec(("Name", "Age"), (), _plain)
_SHEETS: dict[str, TableSpec] = {
    PODS.resource: TableSpec(
        ("Name", "Ready", "Status", "Restarts", "Age", "IP", "Node", "Nominated Node", "Readiness Gates"),
        ("IP", "Node", "Nominated Node", "Readiness Gates"),
        pod_table.cells,
    ),
    NODES.resource: TableSpec(
        ("Name", "Status", "Roles", "Age", "Version", *_ABOUT_A_NODE),
        _ABOUT_A_NODE,
        _node,
    ),
    EVENTS.resource: _EVENT_SHEET,
    NEW_EVENTS.resource: _EVENT_SHEET,
    NAMESPACES.resource: TableSpec(("Name", "Status", "Age"), (), _namespace),
    LEASES.resource: TableSpec(("Name", "Holder", "Age"), (), _lease),
    PRIORITY_CLASSES.resource: TableSpec(("Name", "Value", "Global-Default", "Age", "PreemptionPolicy"), (), _priority),
    NODE_CAPACITIES.resource: TableSpec(
        (
            "Name",
            "Pod-Capacity",
            "CPU",
            "Memory",
            "Reserved",
            "Pods",
            "Mode",
            "Stale",
            "Updated",
            "Sampled",
            "Age",
        ),
        ("Sampled",),
        _node_capacity,
    ),
    JOBS.resource: TableSpec(
        ("Name", "Status", "Completions", "Duration", "Age", "Containers", "Images", "Selector"),
        ("Containers", "Images", "Selector"),
        _job,
    ),
}
