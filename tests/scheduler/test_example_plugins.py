"""The example plugins: what a plugin may register besides extension points, on the scheduler's own parts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from carico.errors import UsageError
from carico.kube.calls import NeededBy
from carico.kube.meta import ObjectMeta
from carico.kube.objects import PodDisruptionBudget
from carico.kube.roles import manifests
from carico.kube.watch import WatchedResource
from carico.scheduler.assembly import registered_calls
from carico.scheduler.informers import Informers
from carico.scheduler.plugins import registry
from carico.testing import check_plugin, embedded_api_server, make_node, make_pod
from harness.scheduler.example_plugins import CAPACITIES, COLOR, EXAMPLES, GANG, SIZE, Colors, NodeCapacity
from harness.scheduler.offline import World
from harness.scheduler.resting import World as RestingWorld

PATIENCE = 60.0  # s
OBJECTS = "/apis/carico.dev/v1alpha1/nodecapacities"


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, factory in EXAMPLES.items():
        monkeypatch.setitem(registry.BUILT_IN, name, factory)


def world(plugin: str, nodes: dict[str, float], **settings: Any) -> World:
    disable = ["DefaultPreemption"] if plugin == "KeepsRoom" else []
    return World(nodes, profiles={"carico": {"enable": [plugin], "disable": disable}}, **settings)


def plugin_of(world: World | RestingWorld, name: str) -> Any:
    return next(plugin for plugin in world.parts.profiles["carico"].plugins if plugin.name == name)


def member(name: str, size: int = 3, **more: Any) -> Any:
    return make_pod(name, labels={GANG: "g", SIZE: str(size)}, **more)


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_the_examples_keep_the_contract(name: str) -> None:
    check_plugin(EXAMPLES[name], seeds=range(2))


# --- a gang ---


def test_a_gang_waits_until_all_its_pods_are_there_and_is_placed_as_one() -> None:
    gang = world("Gang", {"a": 2.0, "b": 2.0})
    gang.see(member("p0"))
    gang.see(member("p1"))
    assert (gang.place("p0"), gang.place("p1"), gang.queue.counts()["gated"]) == ("gated", "grouped", 2)
    assert gang.drain() == []
    gang.see(member("p2"))
    assert gang.queue.counts()["active"] == 3
    assert sorted(gang.drain()) == ["p0", "p1", "p2"]
    assert len(gang.parts.cluster.assumed) == 3


def test_a_gang_that_does_not_fit_whole_leaves_no_trace_and_is_woken_up_by_room_for_one_of_its_pods() -> None:
    gang = world("Gang", {"a": 2.0})
    for number in range(3):
        gang.see(member(f"p{number}"))
    assert gang.drain() == []
    assert (gang.free("a"), gang.parts.cluster.assumed, gang.queue.counts()["waiting"]) == (2.0, {}, 3)
    assert not plugin_of(gang, "Gang").index.pods
    assert (later(gang, a=2.5), gang.queue.counts()["waiting"]) == ([], 3)  # room for a pod, which is not enough
    assert sorted(later(gang, a=3.0)) == ["p0", "p1", "p2"]


def test_a_gang_whose_pods_differ_is_woken_up_where_only_its_smallest_fits() -> None:
    """With room for the small pod on b, the large one has all of a, on which the small one was planned before."""
    gang = world("Gang", {"a": 9.0, "b": 9.0}, cpu="4")
    gang.see(make_pod("there", node="b", cpu="4"))
    gang.see(member("small", 2, cpu="1", nodeSelector={"kubernetes.io/hostname": "b"}))
    gang.see(member("large", 2, cpu="4"))
    assert gang.drain() == []
    assert (later(gang, a=9.0, b=9.0), gang.place("small")) == ([], "waiting")
    gang.see(None, "default/there")
    assert sorted(later(gang, a=9.0, b=9.0)) == ["large", "small"]


def test_a_pod_that_leaves_shuts_the_gate_again_and_the_next_one_is_first() -> None:
    gang = world("Gang", {"a": 2.0})
    for number in range(3):
        gang.see(member(f"p{number}"))
    assert gang.drain() == []
    gang.see(None, next(iter(gang.seen)))
    assert later(gang, a=2.0) == []
    assert (gang.place("p0"), gang.place("p1"), gang.place("p2")) == ("", "gated", "grouped")
    assert later(gang, a=9.0) == []
    gang.see(member("p3"))
    assert len(gang.drain()) == 3


def test_a_pod_whose_binding_failed_is_in_its_group_again_and_counts_the_others_as_there() -> None:
    gang = world("Gang", {"a": 4.0})
    for number in range(3):
        gang.see(member(f"p{number}"))
    queued, decision = gang.attempt_group()
    assert len(queued) == 3
    gang.fail_binding(queued[1], decision[1])
    assert gang.place("p1") == "backoff"
    assert plugin_of(gang, "Gang").index.pods == {"g": 2}
    assert later(gang, a=4.0) == ["p1"]


# --- a kind of a CRD ---


def test_a_followed_kind_wakes_up_pods_and_is_in_the_generated_roles() -> None:
    needs = world("NeedsObject", {"a": 4.0, "b": 4.0})
    needs.refuse(make_pod("p"))
    needs.cluster.thing_changed(None, NodeCapacity(metadata=ObjectMeta(name="b")))
    assert later(needs, a=4.0, b=4.0) == ["p"]
    assert needs.parts.cluster.assumed == {"uid-p": "b"}
    calls = registered_calls(needs.settings)
    assert [str(call) for call in calls] == ["list nodecapacities.carico.dev", "watch nodecapacities.carico.dev"]
    text = manifests({NeededBy.SCHEDULER}, "kube-system", also=calls)
    assert "# list, watch: an example\n" in text
    assert 'apiGroups: ["carico.dev"]\n  resources: [nodecapacities]\n  verbs: [list, watch]' in text
    assert "an example" not in manifests({NeededBy.SCHEDULER}, "kube-system")


async def follow_the_api_server(folder: Path) -> None:
    async with embedded_api_server(folder) as (_, client):
        needs = world("NeedsObject", {"a": 4.0, "b": 4.0})
        needs.refuse(make_pod("p"))
        await create(client, "b", labels={"is": "good"})
        parts = needs.parts
        watches = Informers(client, parts.cluster, needs.clock, parts.metrics, registered=parts.registrations.kinds)
        following = asyncio.create_task(watches.run())
        try:
            await until(lambda: needs.place("p") in ("active", "backoff"))
            assert set(parts.snapshot.store.table(NodeCapacity)) == {"b"}
            await create(client, "a", labels={})
            await until(lambda: "a" in parts.snapshot.store.table(NodeCapacity))
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


def test_a_followed_kind_comes_from_the_api_server(tmp_path: Path) -> None:
    asyncio.run(follow_the_api_server(tmp_path))


async def create(client: Any, name: str, **metadata: Any) -> None:
    body = {"apiVersion": "carico.dev/v1alpha1", "kind": "NodeCapacity", "metadata": {"name": name, **metadata}}
    await client.call("POST", OBJECTS, msgspec.json.encode(body))


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110 - what is waited for is behind a socket
            await asyncio.sleep(0.01)


def test_two_profiles_share_a_kind_and_a_kind_of_another_type_is_rejected() -> None:
    profiles: dict[str, Any] = {name: {"enable": ["NeedsObject"]} for name in ("carico", "other")}
    two = World({"a": 4.0}, profiles=profiles)
    assert two.parts.registrations.kinds == [CAPACITIES]
    with pytest.raises(UsageError, match="kind PodDisruptionBudget is followed already"):
        two.parts.registrations.follow(WatchedResource(CAPACITIES.followed, PodDisruptionBudget))


# --- a background task ---


async def learn_colors() -> None:
    colors = world("Colors", {"a": 4.0})
    plugin: Colors = plugin_of(colors, "Colors")
    colors.refuse(make_pod("red", labels={COLOR: "red"}), make_pod("blue", labels={COLOR: "blue"}))
    running = asyncio.create_task(colors.parts.registrations.run())
    plugin.learned.put_nowait("")
    await until(lambda: errors(colors) == 1)
    plugin.learned.put_nowait("red")
    await colors.clock.turn(2.0)
    await until(lambda: "red" in plugin.known)
    assert (colors.place("red"), colors.place("blue")) == ("active", "waiting")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert plugin.state == "cancelled"


def test_a_background_task_wakes_up_pods_is_started_again_after_an_error_and_cancelled_at_the_end() -> None:
    asyncio.run(learn_colors())


def errors(world: World) -> float:
    return world.parts.registry.get_sample_value("carico_scheduler_plugin_errors_total", {"plugin": "Colors"}) or 0.0


# --- an index, and other answers of PostFilter ---


def test_an_index_that_raises_is_contained() -> None:
    gang = world("Gang", {"a": 4.0})

    class Broken(type(plugin_of(gang, "Gang").index)):  # type: ignore[misc]
        def add(self, _: object, __: int) -> None:
            raise ValueError("broken")

    gang.parts.registrations.index(Broken())
    gang.see(make_pod("p", node="a", labels={GANG: "g"}))
    assert "uid-p" in gang.parts.snapshot.pods
    assert plugin_of(gang, "Gang").index.pods == {"g": 1}


def test_a_post_filter_nominates_without_evicting_holds_room_and_wakes_another_pod() -> None:
    asyncio.run(keep_room())


async def keep_room() -> None:
    profile = {"enable": ["KeepsRoom"], "disable": ["DefaultPreemption"]}
    async with RestingWorld(profiles={"carico": profile}) as resting:
        resting.api.set_node("a", make_node("a", cpu="4"))
        for name, cpu, node in (("there", "4", "a"), ("other", "100", ""), ("big", "4", "")):
            pod = make_pod(name, cpu=cpu, node=node, scheduler_name="carico", uid=name)
            resting.api.change_pod(name, lambda _, pod=pod: msgspec.to_builtins(pod))
        resting.deliver()
        resting.report("a")
        plugin_of(resting, "KeepsRoom").wakes = ("other",)
        await resting.schedule()
        await resting.clock.turn(1.0)
        ledger = resting.parts.ledger
        assert [(hold.name, hold.node) for hold in ledger.holds()] == [("for big", "a")]
        assert resting.api.pods["big"]["status"]["nominatedNodeName"] == "a"
        assert not resting.api.deleted
        await resting.rest(31)
        assert not list(ledger.holds())


def later(world: World, **reports: float) -> list[str]:
    """Back-offs have ended and agents have reported; returns the pods that were placed."""
    world.clock.advance(11)
    for node, room in reports.items():
        world.report(node, room)
    return world.drain()
