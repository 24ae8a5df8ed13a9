"""The extender's bindings whose answer is lost or late: the charge stands until it is known what came of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from carico.http.message import Request
from carico.kube.objects import Pod
from carico.scheduler.assembly import assemble
from carico.scheduler.extender.extender import Extender
from carico.scheduler.extender.reservations import BOUND
from carico.settings import SchedulerSettings
from carico.testing import ManualClock, make_node, make_pod, make_report
from harness.scheduler.binding_world import AWAY, DROP, LOSE, TAKE, PlayedServer


class Tandem:
    def __init__(self, nodes: dict[str, float]) -> None:
        self.clock, self.server = ManualClock(), PlayedServer()
        self.parts = assemble(SchedulerSettings(validate=True, heartbeat=1000.0), self.clock, None)
        for name, capacity in nodes.items():
            self.parts.cluster.node_changed(None, make_node(name))
            self.parts.ledger.report(make_report(name, capacity), self.clock.monotonic())
        self.pods: dict[str, Pod] = {}  # as the watch has them
        self.extender = Extender(self.parts, self.clock, self.pods, self.server.network.client(clock=self.clock))

    def pod(self, name: str) -> Pod:
        pod = make_pod(name, schedulerName="default-scheduler")
        self.server.add(pod)
        self.pods[pod.key] = pod
        self.parts.cluster.pod_changed(None, pod)
        return pod

    def see(self, old: Pod, new: Pod | None) -> None:
        self.parts.cluster.pod_changed(old, new)

    def filter(self, pod: Pod, *names: str) -> Any:
        body = msgspec.json.encode({"Pod": msgspec.to_builtins(pod), "NodeNames": names})
        return json.loads(self.extender.filter(Request("POST", {}, body)).body)

    def good(self, pod: Pod, *names: str) -> list[str]:
        return list(self.filter(pod, *names)["NodeNames"])

    def bind(self, pod: Pod, node: str) -> asyncio.Task[Any]:
        asked = {"PodName": pod.name, "PodNamespace": pod.namespace, "PodUID": pod.uid, "Node": node}
        return asyncio.create_task(self.extender.bind(Request("POST", {}, msgspec.json.encode(asked))))

    def free(self, node: str) -> float:
        account = self.parts.ledger.account(node)
        assert account is not None
        return float(self.parts.ledger.free[account.row])


def playing(scenario: Callable[[Tandem], Awaitable[None]]) -> None:
    async def whole() -> None:
        tandem = Tandem({"a": 1.0, "b": 1.0})
        try:
            await scenario(tandem)
        finally:
            await tandem.extender.close()

    asyncio.run(whole())


async def lost(tandem: Tandem, mode: str) -> Pod:
    """A binding to node a whose outcome is unknown, and an API server that is unavailable."""
    pod = tandem.pod("p")
    assert tandem.good(pod, "a", "b") == ["a", "b"]
    tandem.server.mode = mode
    answer = tandem.bind(pod, "a")
    await tandem.clock.turn(0)
    tandem.server.mode = AWAY
    await tandem.clock.turn(10)
    assert tandem.free("a") == 0
    assert "it is not known yet whether a got the pod" in json.loads(answer.result().body)["Error"]
    return pod


def test_the_charge_stands_however_long_it_takes() -> None:
    async def scenario(tandem: Tandem) -> None:
        await lost(tandem, DROP)
        for _ in range(10):
            await tandem.clock.turn(BOUND / 5)
            tandem.extender.reservations.let_go()
            assert (tandem.free("a"), tandem.good(make_pod("q"), "a")) == (0, [])

    playing(scenario)


def test_no_other_node_is_good_for_the_pod_until_it_is_known() -> None:
    async def scenario(tandem: Tandem) -> None:
        pod = await lost(tandem, DROP)
        answer = tandem.filter(pod, "a", "b")
        assert answer["NodeNames"] == ["a"]
        assert answer["FailedNodes"] == {"b": "waits for the outcome of the pod's binding to a"}
        again = tandem.bind(pod, "b")
        await tandem.clock.turn(0)
        assert json.loads(again.result().body)["Error"] == "its binding to a is in flight"
        assert (tandem.free("a"), tandem.free("b"), tandem.server.posts) == (0, 1, ["p"])

    playing(scenario)


def test_a_kube_scheduler_that_gave_up_on_a_slow_binding_cannot_undo_the_charge() -> None:
    async def scenario(tandem: Tandem) -> None:
        pod = tandem.pod("p")
        tandem.server.open.clear()
        answer = tandem.bind(pod, "a")
        await tandem.clock.turn(6)  # its own patience is 5 s
        assert tandem.good(pod, "a", "b") == ["a"]
        assert tandem.free("a") == 0
        tandem.server.open.set()
        await tandem.clock.turn(0)
        assert json.loads(answer.result().body)["Error"] == ""
        assert (tandem.free("a"), tandem.server.node_of("p")) == (0, "a")

    playing(scenario)


@pytest.mark.parametrize("by", ["look", "watch"])
def test_it_was_bound(by: str) -> None:
    async def scenario(tandem: Tandem) -> None:
        pod = await lost(tandem, LOSE)
        if by == "look":
            tandem.server.mode = TAKE
            await tandem.clock.turn(20)
            assert (len(tandem.extender.reservations), tandem.free("a")) == (1, 0)
        tandem.see(pod, make_pod("p", node="a"))
        await tandem.clock.turn(BOUND)
        tandem.extender.reservations.let_go()
        assert (len(tandem.extender.reservations), len(tandem.parts.waiting), tandem.free("a")) == (0, 0, 0)

    playing(scenario)


@pytest.mark.parametrize("by", ["look", "watch"])
def test_the_pod_is_gone(by: str) -> None:
    async def scenario(tandem: Tandem) -> None:
        pod = await lost(tandem, LOSE)
        if by == "look":
            del tandem.server.pods["p"]
            tandem.server.mode = TAKE
            await tandem.clock.turn(20)
        else:
            tandem.see(pod, None)
            await tandem.clock.turn(0)
        assert (len(tandem.extender.reservations), tandem.free("a")) == (0, 1)

    playing(scenario)


def test_another_scheduler_bound_it_elsewhere() -> None:
    async def scenario(tandem: Tandem) -> None:
        pod = await lost(tandem, DROP)
        tandem.server.store("p", pod.uid, "b")
        tandem.server.mode = TAKE
        await tandem.clock.turn(20)
        assert (tandem.free("a"), tandem.free("b")) == (1, 0)

    playing(scenario)


def test_a_replica_that_ends_waits_for_its_bindings_and_takes_no_more() -> None:
    """The Lease is given back after that: the next leader must not bind the same pods."""

    async def scenario(tandem: Tandem) -> None:
        await lost(tandem, LOSE)
        draining = asyncio.create_task(tandem.extender.drain())
        late = tandem.bind(tandem.pod("late"), "b")
        await tandem.clock.turn(0)
        assert "does not hold the Lease; try again" in json.loads(late.result().body)["Error"]
        assert (tandem.extender.in_flight, draining.done()) == (1, False)
        tandem.server.mode = TAKE
        for _ in range(10):
            await tandem.clock.turn(30)
        assert (tandem.extender.in_flight, draining.done()) == (0, True)

    playing(scenario)
