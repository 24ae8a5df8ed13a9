"""Pods that wait for volumes: they block no other pod, and stop waiting when it is of no use."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from carico.testing import make_node, make_pod
from harness.kube.network import Asked
from harness.scheduler.binding_world import BindingWorld, a_claim, a_class, a_volume, of_claim, playing

MANY = 450  # pods that wait; more than there are slots


async def hang(world: BindingWorld, count: int = MANY) -> None:
    """So many pods get a node and wait for a provisioner that does nothing."""
    world.see_object(a_class())
    for i in range(count):
        world.see_object(a_claim(f"c{i}"))
        world.see(make_pod(f"db{i}", volumes=of_claim(f"c{i}")))
    while world.decide():
        await world.clock.turn(0)


def test_a_provisioner_that_hangs_blocks_no_other_pod() -> None:
    async def scenario(world: BindingWorld) -> None:
        await hang(world)
        assert world.binder.in_flight == MANY
        world.see(make_pod("plain"))
        assert world.decide() == 1
        await world.clock.turn(0)
        assert world.server.node_of("plain") == "a"
        assert world.server.posts == ["plain"]

    playing(scenario, {"a": 900.0})


def test_pods_that_are_deleted_while_they_wait_are_in_flight_no_longer() -> None:
    async def scenario(world: BindingWorld) -> None:
        await hang(world)
        for i in range(MANY):
            world.see_deleted(f"db{i}")
        await world.clock.turn(0)
        assert world.binder.in_flight == 0
        assert len(world.parts.waiting) == 0
        assert world.free("a") == 900
        assert not world.cluster.assumed

    playing(scenario, {"a": 900.0})


def test_a_pod_that_is_terminating_gives_its_node_back() -> None:
    async def scenario(world: BindingWorld) -> None:
        await hang(world, 1)
        pod = make_pod("db0", volumes=of_claim("c0"))
        meta = msgspec.structs.replace(pod.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
        world.see(msgspec.structs.replace(pod, metadata=meta))
        await world.clock.turn(0)
        assert world.binder.in_flight == 0
        assert world.free("a") == 5
        assert world.last("db0")[0] == "gone"

    playing(scenario, {"a": 5.0})


def test_a_pod_that_was_deleted_while_its_volumes_were_written_does_not_begin_to_wait() -> None:
    async def scenario(world: BindingWorld) -> None:
        answer = asyncio.Event()

        async def slow(asked: Asked) -> bytes:
            await answer.wait()
            return await world.server.answer(asked)

        world.server.network.answer = slow
        await hang(world, 1)
        world.see_deleted("db0")
        answer.set()
        await world.clock.turn(0)
        assert world.binder.in_flight == 0

    playing(scenario, {"a": 5.0})


def test_a_pod_whose_node_is_deleted_while_it_waits_is_tried_again() -> None:
    async def scenario(world: BindingWorld) -> None:
        await hang(world, 1)
        world.cluster.node_changed(make_node("a"), None)
        await world.clock.turn(0)
        assert world.binder.in_flight == 0
        assert world.place("db0") == "backoff"
        assert world.last("db0") == ("failed", "binding volumes: node a was deleted")

    playing(scenario, {"a": 5.0})


@pytest.mark.parametrize("recreated", [False, True], ids=["deleted", "re-created"])
def test_a_pod_whose_claim_is_deleted_while_it_waits_is_tried_again(recreated: bool) -> None:
    async def scenario(world: BindingWorld) -> None:
        await hang(world, 1)
        if recreated:
            world.see_object(a_claim("c0", node="a", version="9", uid="another"))
        else:
            world.see_thing_deleted(a_claim("c0"))
        await world.clock.turn(0)
        assert world.last("db0") == ("failed", "binding volumes: claim default/c0 was deleted")

    playing(scenario, {"a": 5.0})


def test_volumes_that_come_are_noticed_at_once() -> None:
    """No clock is advanced: the event itself ends the wait."""

    async def scenario(world: BindingWorld) -> None:
        await hang(world, 2)
        world.see_object(a_claim("c0", bound="v", node="a", version="9"))
        await world.clock.turn(0)
        assert world.server.posts == []  # the claim is bound, and its volume not known yet
        world.see_object(a_volume("v", claim="c0"))
        await world.clock.turn(0)
        assert world.server.posts == ["db0"]
        assert world.binder.in_flight == 1

    playing(scenario, {"a": 5.0})


def test_a_provisioner_that_made_the_volume_in_another_zone() -> None:
    """The pod is not bound to a node that can never mount its volume, and then goes where the volume is."""

    async def scenario(world: BindingWorld) -> None:
        await hang(world, 1)
        world.see_object(a_volume("v", zone="2", claim="c0"))
        world.see_object(a_claim("c0", bound="v", node="a", version="9"))
        await world.clock.turn(0)
        why = "binding volumes: volume v of claim default/c0 cannot be used from the node (node affinity)"
        assert world.last("db0") == ("failed", why)
        assert world.server.posts == []
        await world.clock.turn(1)
        world.decide()
        await world.clock.turn(0)
        assert world.server.node_of("db0") == "b"

    playing(scenario, {"a": 5.0, "b": 1.5}, labels={"a": {"zone": "1"}, "b": {"zone": "2"}})


@pytest.mark.parametrize(
    ("claimed", "why"),
    [
        ("", "the claimRef of volume v was reset"),
        ("rival", "volume v was taken by claim default/rival"),
        (None, "volume v was deleted"),
    ],
)
def test_the_volume_controller_takes_the_volume_back(claimed: str | None, why: str) -> None:
    async def scenario(world: BindingWorld) -> None:
        world.see_object(a_class("kubernetes.io/no-provisioner"))
        world.see_object(a_volume("v"))
        world.see_object(a_claim("c"))
        world.see(make_pod("db", volumes=of_claim("c")))
        world.decide()
        await world.clock.turn(0)
        world.see_object(a_volume("v", claim="c", version="4"))  # what was written comes back
        await world.clock.turn(0)
        assert world.binder.in_flight == 1
        if claimed is None:
            world.see_thing_deleted(a_volume("v"))
        else:
            world.see_object(a_volume("v", claim=claimed, version="5"))
        await world.clock.turn(0)
        assert world.last("db") == ("failed", f"binding volumes: {why}")

    playing(scenario, {"a": 5.0})


def test_a_leader_that_fell_writes_no_volumes() -> None:
    async def scenario(world: BindingWorld) -> None:
        await hang(world, 1)
        assert world.last("db0") == ("failed", "binding volumes: this replica no longer leads")
        assert world.server.writes == []

    playing(scenario, {"a": 5.0}, leader_elect=True)


def test_slots_bound_requests_and_how_far_decisions_run_ahead() -> None:
    async def scenario(world: BindingWorld) -> None:
        world.server.open.clear()
        for i in range(20):
            world.see(make_pod(f"p{i}"))
        while world.decide():
            await world.clock.turn(0)
        assert (world.server.most, world.queue.counts()["active"]) == (4, 16)
        world.server.open.set()
        await world.clock.turn(0)
        while world.decide():
            await world.clock.turn(0)
        assert (world.server.most, len(world.server.posts)) == (4, 20)

    playing(scenario, {"a": 50.0}, binders=4)


def test_pods_that_all_stop_waiting_at_once_still_take_slots() -> None:
    async def scenario(world: BindingWorld) -> None:
        await hang(world, 30)
        world.server.open.clear()
        for i in range(30):
            world.see_object(a_volume(f"v{i}", claim=f"c{i}"))
            world.see_object(a_claim(f"c{i}", bound=f"v{i}", node="a", version="9"))
        await world.clock.turn(0)
        assert (world.server.most, world.binder.has_place) == (4, False)
        world.server.open.set()
        await world.clock.turn(0)
        assert (world.server.most, len(world.server.posts), world.binder.has_place) == (4, 30, True)

    playing(scenario, {"a": 50.0}, binders=4)


def test_what_happens_while_a_pod_waits_for_a_slot_counts() -> None:
    async def scenario(world: BindingWorld) -> None:
        await hang(world, 8)
        world.server.open.clear()
        for i in range(8):
            world.see_object(a_volume(f"v{i}", claim=f"c{i}"))
            world.see_object(a_claim(f"c{i}", bound=f"v{i}", node="a", version="9"))
        await world.clock.turn(0)
        sent = set(world.server.posts)
        late = sorted({f"db{i}" for i in range(8)} - sent)
        assert len(sent) == 4
        world.see_deleted(late[0])
        world.parts.waiting.close()  # this process ends
        world.server.open.set()
        await world.clock.turn(0)
        assert set(world.server.posts) == sent
        assert world.binder.in_flight == 0

    playing(scenario, {"a": 50.0}, binders=4)
