"""Conversion between core/v1 and events.k8s.io/v1 Events: stored as core/v1, returned as either."""

from __future__ import annotations

from typing import Any

# events.k8s.io to core
_NAMES = {
    "note": "message",
    "regarding": "involvedObject",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_BACK = {core: new for new, core in _NAMES.items()}


def to_core(new: dict[str, Any]) -> dict[str, Any]:
    """
    >>> to_core({"apiVersion": "events.k8s.io/v1", "note": "n", "reason": "r"})
    {'apiVersion': 'v1', 'message': 'n', 'reason': 'r'}
    """
    return {_NAMES.get(name, name): value for name, value in new.items()} | {"apiVersion": "v1"}


def from_core(core: dict[str, Any]) -> dict[str, Any]:
    """
    >>> from_core({"apiVersion": "v1", "message": "n"})
    {'apiVersion': 'events.k8s.io/v1', 'note': 'n'}
    """
    shown = {_BACK.get(name, name): value for name, value in core.items() if value != ""}
    return shown | {"apiVersion": "events.k8s.io/v1"}
