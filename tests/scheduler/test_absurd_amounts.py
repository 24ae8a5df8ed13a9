"""Absurd amounts in objects break no sum of a node."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from carico.kube.objects import Node, Pod
from carico.scheduler.assembly import Components, assemble
from carico.scheduler.cache import requests
from carico.scheduler.cycle.scheduling_cycle import decide
from carico.settings import SchedulerSettings
from carico.testing import ManualClock, make_node, make_pod

ABSURD = ("10P", "9223372036854775807", "1e8000000", "-1e8000000", "-5", "99999999999999999999999Ei", "nonsense", "")


def world(*nodes: Node) -> Components:
    parts = assemble(SchedulerSettings(validate=True, on_stale="requests"), ManualClock(), None)
    for node in nodes:
        parts.cluster.node_changed(None, node)
    return parts


def placed(parts: Components, pod: Pod) -> str:
    parts.cluster.pod_changed(None, pod)
    queued = parts.queue.pop(0.0)
    assert queued is not None
    return decide(parts.profiles["carico"], parts.cluster, queued.info, np.random.default_rng(1)).node


def asking(name: str, node: str, amounts: dict[str, str]) -> Pod:
    containers = [{"name": f"c{i}", "resources": {"requests": amounts}} for i in range(2)]
    spec = {"nodeName": node, "containers": containers, "schedulerName": "carico"}
    return msgspec.convert({"metadata": {"name": name, "namespace": "d", "uid": name}, "spec": spec}, Pod)


@pytest.mark.parametrize("resource", ["cpu", "memory", "example.com/gpu"])
@pytest.mark.parametrize("amount", ABSURD)
def test_pods_that_ask_for_them_come_and_go(resource: str, amount: str) -> None:
    parts = world(make_node("a"))
    for node in ("a", "nowhere"):
        pods = [asking(f"{node}{i}", node, {resource: amount}) for i in range(500)]
        for pod in pods:
            parts.cluster.pod_changed(None, pod)
        for pod in pods:
            parts.cluster.pod_changed(pod, None)
    assert placed(parts, make_pod("p", cpu="1")) == "a"
    assert parts.snapshot.unrequested("cpu")[0] == 7000


@pytest.mark.parametrize("amount", ["10P", "1e8000000", "99999999999999999999999Ei", "nonsense"])
def test_a_pod_that_requests_too_much_waits(amount: str) -> None:
    assert placed(world(make_node("a")), asking("p", "", {"cpu": amount})) == ""


@pytest.mark.parametrize("amount", ["-5", "-10P", "-1e8000000"])
def test_a_negative_request_counts_as_zero(amount: str) -> None:
    assert requests.of_pod(asking("p", "", {"cpu": amount}), running=False) == {"cpu": 0}


@pytest.mark.parametrize("amount", ["nonsense", "-5", ""])
def test_an_invalid_allocatable_amount_counts_as_zero(amount: str) -> None:
    assert placed(world(make_node("a", cpu=amount)), make_pod("p", cpu="1")) == ""


@pytest.mark.parametrize("amount", ["1e8000000", "99999E"])
def test_a_node_may_offer_any_amount(amount: str) -> None:
    assert placed(world(make_node("a", cpu=amount)), make_pod("p", cpu="1")) == "a"
