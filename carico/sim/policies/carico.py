"""Carico as shipped, and in the configuration of the report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from carico.sim.policies.contract import PolicyView
from carico.sim.scheduler import PolicyPlugins

RATE = 700.0  # attempts per second; `make bench NAME=scheduler-throughput`


def shipped(view: PolicyView, args: Mapping[str, Any]) -> PolicyPlugins:  # noqa: ARG001
    return PolicyPlugins(profile={}, pods_per_second=RATE, agents=True)


def report(view: PolicyView, args: Mapping[str, Any]) -> PolicyPlugins:  # noqa: ARG001
    """One number per node, released when a pod leaves Pending. REPORT_AGENT has the agents' part."""
    profile = {
        "plugins": ["PrioritySort", "NodeUnschedulable", "Capacity"],
        "args": {"Capacity": {"release": "pending"}},
    }
    return PolicyPlugins(profile=profile, pods_per_second=RATE, agents=True)


REPORT_AGENT: Mapping[str, Any] = {"estimator": "signal", "smoothing": "ema"}
REPORT_MERGE = "running"
