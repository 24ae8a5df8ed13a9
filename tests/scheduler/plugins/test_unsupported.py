"""Unsupported: filters and scores by the plugin's own rule; tests/conformance compares with kube-scheduler."""

from __future__ import annotations

import msgspec
import pytest

from carico.kube.objects import DeviceClass
from carico.testing import make_node, make_pod
from harness.scheduler.worlds import World


def device_class(name: str, resource: str) -> DeviceClass:
    return msgspec.convert({"metadata": {"name": name}, "spec": {"extendedResourceName": resource}}, DeviceClass)


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        ({"resourceClaims": [{"name": "gpu"}]}, "resourceClaims"),
        ({"schedulingGroup": {"podGroupName": "g"}}, "pod groups"),
        ({"workloadRef": {"name": "w", "podGroup": "g"}}, "pod groups (spec.workloadRef)"),
    ],
)
def test_what_is_not_supported_is_refused_loudly(spec: object, word: str) -> None:
    found = World([make_node("a")]).judge(make_pod("p", spec=spec))
    assert word in found.message()
    assert "use another schedulerName" in found.message()
    assert found.refusing == {"Unsupported"}


def test_devices_that_only_a_class_serves_are_refused_by_name() -> None:
    """Not as "Insufficient …": no node will ever offer them, and kube-scheduler would allocate them."""
    world = World([make_node("a")], things=[device_class("gpus", "example.com/gpu")])
    for resource in ("example.com/gpu", "deviceclass.resource.kubernetes.io/gpus"):
        found = world.judge(make_pod("p", requests={"cpu": "1", resource: "1"}))
        assert f"(an extended resource of a DeviceClass): {resource}; use another schedulerName" in found.message()
        assert found.refusing == {"Unsupported"}
    assert world.feasible(make_pod("q", requests={"example.com/gpu": "0"})) == {"a"}
    other = world.judge(make_pod("r", requests={"example.com/fpga": "1"}))
    assert other.message() == "0/1 nodes are available: 1 Insufficient example.com/fpga."


def test_devices_of_a_device_plugin_are_taken_although_a_class_serves_them_elsewhere() -> None:
    plugged = make_node("plugged", **{"example.com/gpu": "2"})
    world = World([make_node("a"), plugged], things=[device_class("gpus", "example.com/gpu")])
    assert world.feasible(make_pod("p", requests={"example.com/gpu": "1"})) == {"plugged"}
