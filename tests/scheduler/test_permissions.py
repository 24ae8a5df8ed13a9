"""Pods that wait for a permission of a plugin, and plugins that break."""

from __future__ import annotations

from typing import Any

import pytest

from carico.scheduler.framework.cluster_events import Action, EventInterest
from carico.scheduler.framework.contract import OK, PermitWait, Status, error, unschedulable
from carico.scheduler.framework.in_flight import WaitingPods
from carico.scheduler.plugins import registry
from carico.testing import make_node, make_pod
from harness.scheduler.binding_world import BindingWorld, playing

# --- permissions ---


class Plugin:
    """A plugin of another package whose answers a test sets."""

    interests = (EventInterest("Node", Action.ADD),)

    def __init__(self, name: str, answers: dict[str, Any]) -> None:
        self.name, self._answers = name, answers

    def _answer(self, point: str, default: Any) -> Any:
        answer = self._answers.get(point, default)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def permit(self, *_: Any) -> Status | PermitWait:
        answer: Status | PermitWait = self._answer("permit", OK)
        return answer

    async def pre_bind(self, *_: Any) -> Status:
        status: Status = self._answer("pre_bind", OK)
        return status

    def post_bind(self, *_: Any) -> None:
        self._answer("post_bind", None)


class Binds(Plugin):
    async def bind(self, *_: Any) -> Status:
        status: Status = self._answer("bind", OK)
        return status


class Packages:
    """Plugins that are installed beside Carico's own; `waiting` is the handle that each of them got."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.waiting: WaitingPods
        self.names: list[str] = []

    def install(self, name: str, kind: type[Plugin] = Plugin, **answers: Any) -> None:
        def make(tools: registry.PluginTools) -> Plugin:
            assert tools.waiting is not None
            self.waiting = tools.waiting
            return kind(name, answers)

        self._monkeypatch.setitem(registry.BUILT_IN, name, make)
        self.names.append(name)

    @property
    def profiles(self) -> dict[str, Any]:
        return {"carico": {"enable": self.names}, "other": {}}


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> Packages:
    return Packages(monkeypatch)


async def one_waits(world: BindingWorld) -> None:
    world.see(make_pod("p"))
    world.decide()
    await world.clock.turn(0)
    assert world.server.posts == []
    assert world.parts.waiting.counts() == {"permit": 1}
    assert world.free("a") == 4


def test_a_pod_waits_until_every_plugin_has_allowed_it(packages: Packages) -> None:
    packages.install("Gang", permit=PermitWait(60))
    packages.install("Quota", permit=PermitWait(60))

    async def scenario(world: BindingWorld) -> None:
        await one_waits(world)
        (waiting,) = packages.waiting
        assert (waiting.info.uid, waiting.node, waiting.pending) == ("uid-p", "a", ("Gang", "Quota"))
        waiting.allow("Gang")
        await world.clock.turn(59)
        assert world.server.posts == []
        waiting.allow("Quota")
        await world.clock.turn(0)
        assert world.server.posts == ["p"]
        assert not list(packages.waiting)
        await world.clock.turn(100)  # no time-out is left behind
        assert world.server.node_of("p") == "a"

    playing(scenario, {"a": 5.0}, profiles=packages.profiles)


def test_a_rejection_is_a_verdict_and_the_pod_waits_for_what_could_turn_it(packages: Packages) -> None:
    packages.install("Gang", permit=PermitWait(60))

    async def scenario(world: BindingWorld) -> None:
        await one_waits(world)
        (waiting,) = packages.waiting
        waiting.reject("Gang", "only 2 of 7 members have a node")
        await world.clock.turn(0)
        assert world.last("p") == ("rejected", "only 2 of 7 members have a node")
        assert (world.place("p"), world.free("a")) == ("waiting", 5)
        queued = world.queue.get("uid-p")
        assert queued is not None
        assert queued.refusal.plugins == {"Gang"}
        await world.clock.turn(30)
        assert world.decide() == 0  # no blind retry
        world.cluster.node_changed(None, make_node("b"))
        assert world.decide() == 1

    playing(scenario, {"a": 5.0}, profiles=packages.profiles)


def test_a_permission_that_does_not_come_is_a_rejection(packages: Packages) -> None:
    packages.install("Gang", permit=PermitWait(60))

    async def scenario(world: BindingWorld) -> None:
        await one_waits(world)
        await world.clock.turn(59)
        assert world.place("p") == "flight"
        await world.clock.turn(1)
        assert world.last("p") == ("rejected", "rejected due to timeout after waiting 60 s at plugin Gang")
        assert world.place("p") == "waiting"

    playing(scenario, {"a": 5.0}, profiles=packages.profiles)


def test_a_refusal_without_a_wait(packages: Packages) -> None:
    packages.install("Gang", permit=unschedulable("no group of this name"))

    async def scenario(world: BindingWorld) -> None:
        world.see(make_pod("p"))
        world.decide()
        assert world.last("p") == ("rejected", "no group of this name")
        assert (world.place("p"), world.free("a"), world.binder.in_flight) == ("waiting", 5, 0)

    playing(scenario, {"a": 5.0}, profiles=packages.profiles)


def test_a_pod_that_is_deleted_while_it_waits_for_a_permission(packages: Packages) -> None:
    packages.install("Gang", permit=PermitWait(60))

    async def scenario(world: BindingWorld) -> None:
        await one_waits(world)
        world.see_deleted("p")
        await world.clock.turn(0)
        assert (world.binder.in_flight, len(packages.waiting), world.free("a")) == (0, 0, 5)

    playing(scenario, {"a": 5.0}, profiles=packages.profiles)


def test_pods_that_wait_for_a_permission_hold_no_slot(packages: Packages) -> None:
    packages.install("Gang", permit=PermitWait(60))

    async def scenario(world: BindingWorld) -> None:
        for i in range(10):
            world.see(make_pod(f"p{i}"))
        while world.decide():
            await world.clock.turn(0)
        assert len(list(packages.waiting)) == 10
        world.see(make_pod("plain", schedulerName="other"))
        world.decide()
        await world.clock.turn(0)
        assert world.server.posts == ["plain"]

    playing(scenario, {"a": 50.0}, profiles=packages.profiles, binders=1)


# --- plugins that break ---


@pytest.mark.parametrize("point", ["permit", "pre_bind"])
@pytest.mark.parametrize("answer", [RuntimeError("oops"), error("oops")], ids=["raises", "says so"])
def test_a_plugin_that_breaks_before_the_binding_fails_that_pod_alone(
    packages: Packages, point: str, answer: Any
) -> None:
    packages.install("Fragile", **{point: answer})

    async def scenario(world: BindingWorld) -> None:
        world.see(make_pod("p"))
        world.see(make_pod("q", schedulerName="other"))
        world.decide()
        await world.clock.turn(0)
        result, why = world.last("p")
        assert (result, "oops" in why) == ("failed", True)
        assert world.place("p") == "backoff"
        assert (world.server.posts, world.free("a")) == (["q"], 4)

    playing(scenario, {"a": 5.0}, profiles=packages.profiles)


def test_a_plugin_that_breaks_while_it_binds_may_have_bound(packages: Packages) -> None:
    packages.install("Fragile", Binds, bind=RuntimeError("oops"))

    async def scenario(world: BindingWorld) -> None:
        for name in ("p", "q"):
            world.see(make_pod(name))
        world.decide()
        world.server.store("q", "uid-q", "a")  # this one arrived
        await world.clock.turn(1)
        assert world.free("a") == 3
        await world.clock.turn(30)
        assert (world.place("p"), world.place("q"), world.free("a")) == ("backoff", "", 4)

    playing(scenario, {"a": 5.0}, profiles=packages.profiles)


def test_a_plugin_that_breaks_after_the_binding_changes_nothing(packages: Packages) -> None:
    packages.install("Fragile", post_bind=RuntimeError("oops"))

    async def scenario(world: BindingWorld) -> None:
        for i in range(3):
            world.see(make_pod(f"p{i}"))
        world.decide()
        await world.clock.turn(0)
        assert (world.binder.bound, len(world.scheduler.recorder), world.binder.in_flight) == (3, 3, 0)
        counted = world.parts.registry.get_sample_value
        assert counted("scheduler_schedule_attempts_total", {"result": "scheduled", "profile": "carico"}) == 3
        assert counted("carico_scheduler_plugin_errors_total", {"plugin": "Fragile"}) == 3

    playing(scenario, {"a": 5.0}, profiles=packages.profiles)
