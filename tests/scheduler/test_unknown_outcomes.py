"""Bindings whose answer is lost: a node with room for one pod never gets two, and the pod is never forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from carico.testing import make_pod
from harness.scheduler.binding_world import AWAY, DROP, LOSE, TAKE, BindingWorld


def playing(scenario: Callable[[BindingWorld], Awaitable[None]], nodes: dict[str, float], **settings: Any) -> None:
    async def whole() -> None:
        world = BindingWorld(nodes, heartbeat=100.0, **settings)
        try:
            await scenario(world)
        finally:
            await world.stop()

    asyncio.run(whole())


async def lost(world: BindingWorld, mode: str, seconds: float) -> None:
    """One pod is sent to the only node, `mode` decides the outcome, then the API server is unavailable for a while."""
    world.server.mode = mode
    world.see(make_pod("first"))
    world.decide()
    await world.clock.turn(0)
    assert world.server.posts == ["first"]
    world.server.mode = AWAY
    world.see(make_pod("second", priority=5))
    await no_room(world, seconds)


async def no_room(world: BindingWorld, seconds: float) -> None:
    """The second pod finds no room, however often it looks."""
    for _ in range(10):
        await world.clock.turn(seconds / 10)
        world.decide()
        assert world.free("a") == 0
        assert (world.place("first"), world.place("second")) == ("flight", "waiting")


AWAY_FOR = pytest.mark.parametrize("seconds", [3.0, 60.0])


@AWAY_FOR
def test_the_watch_confirms_it(seconds: float) -> None:
    async def scenario(world: BindingWorld) -> None:
        await lost(world, LOSE, seconds)
        world.see(make_pod("first", node="a"))
        await world.clock.turn(0)
        assert (world.binder.in_flight, world.binder.bound) == (0, 1)
        world.decide()
        assert (world.free("a"), world.place("second")) == (0, "waiting")

    playing(scenario, {"a": 1.0})


@AWAY_FOR
def test_a_look_finds_it(seconds: float) -> None:
    async def scenario(world: BindingWorld) -> None:
        await lost(world, LOSE, seconds)
        world.server.mode = TAKE
        await world.clock.turn(20)
        assert (world.binder.in_flight, world.binder.bound) == (0, 1)
        assert world.server.posts == ["first"]  # nothing had to be sent again
        assert world.free("a") == 0  # assumed, until the watch confirms it

    playing(scenario, {"a": 1.0})


@AWAY_FOR
def test_it_did_not_arrive_and_is_sent_again(seconds: float) -> None:
    async def scenario(world: BindingWorld) -> None:
        await lost(world, DROP, seconds)
        world.server.mode = TAKE
        await world.clock.turn(20)
        assert (world.server.posts, world.server.node_of("first")) == (["first", "first"], "a")
        assert (world.binder.bound, world.free("a")) == (1, 0)

    playing(scenario, {"a": 1.0})


@AWAY_FOR
@pytest.mark.parametrize("by", ["look", "watch"])
def test_the_pod_is_gone(seconds: float, by: str) -> None:
    async def scenario(world: BindingWorld) -> None:
        await lost(world, LOSE, seconds)
        if by == "watch":
            world.see_deleted("first")
            await world.clock.turn(0)
        else:
            del world.server.pods["first"]
            world.server.mode = TAKE
            await world.clock.turn(20)
        assert (world.binder.in_flight, world.last("first")[0]) == (0, "gone")
        world.server.mode = TAKE
        world.decide()
        await world.clock.turn(0)
        assert world.server.node_of("second") == "a"

    playing(scenario, {"a": 1.0})


@AWAY_FOR
@pytest.mark.parametrize("by", ["look", "watch"])
def test_another_scheduler_bound_it_elsewhere(seconds: float, by: str) -> None:
    async def scenario(world: BindingWorld) -> None:
        await lost(world, DROP, seconds)
        world.server.store("first", "uid-first", "b")
        if by == "watch":
            world.see(make_pod("first", node="b"))
            await world.clock.turn(0)
        else:
            world.server.mode = TAKE
            await world.clock.turn(20)
        assert (world.binder.in_flight, world.last("first")[0]) == (0, "elsewhere")
        assert (world.free("a"), world.free("b")) == (1, -0.5)  # the room goes where the pod is
        world.see(make_pod("first", node="b"))
        assert world.free("b") == -0.5

    playing(scenario, {"a": 1.0, "b": 0.5})


def test_a_pod_without_a_node_proves_nothing_while_its_binding_may_still_arrive() -> None:
    """The request is lost to us, but not to the API server: it is stored later than we look."""

    async def scenario(world: BindingWorld) -> None:
        await lost(world, DROP, 1)
        world.server.mode = DROP  # looks are answered: there is no node yet
        await no_room(world, 40)
        world.server.store("first", "uid-first", "a")
        await world.clock.turn(20)
        assert (world.binder.in_flight, world.binder.bound, world.free("a")) == (0, 1, 0)

    playing(scenario, {"a": 1.0})


def test_what_cannot_arrive_any_more_is_given_up() -> None:
    """A minute after the last try the API server has ended it; then a pod without a node is proof."""

    async def scenario(world: BindingWorld) -> None:
        await lost(world, DROP, 100)
        world.server.mode = TAKE
        world.server.modes["first"] = 403
        await world.clock.turn(20)
        assert world.last("first")[0] == "failed"
        assert world.server.posts == ["first"]

    playing(scenario, {"a": 1.0})


def test_a_server_error_is_in_doubt_for_seconds() -> None:
    """A webhook that fails binds nothing: the pod keeps its reservation on that node for a limited time only."""

    async def scenario(world: BindingWorld) -> None:
        world.server.mode = 500
        world.see(make_pod("first"))
        world.decide()
        await world.clock.turn(5)
        assert (world.free("a"), world.place("first")) == (0, "flight")
        await world.clock.turn(15)
        assert (world.free("a"), world.place("first")) == (1, "backoff")

    playing(scenario, {"a": 1.0})


def test_what_was_never_sent_is_given_back_at_once() -> None:
    async def scenario(world: BindingWorld) -> None:
        world.server.mode = AWAY
        world.see(make_pod("first"))
        world.decide()
        await world.clock.turn(4)
        assert (world.free("a"), world.last("first")[0]) == (1, "failed")

    playing(scenario, {"a": 1.0})


def test_an_unknown_outcome_holds_no_slot() -> None:
    async def scenario(world: BindingWorld) -> None:
        world.server.modes["first"] = DROP
        world.see(make_pod("first"))
        world.decide()
        assert not world.binder.has_place
        await world.clock.turn(5)
        assert world.parts.waiting.counts() == {"outcome": 1}
        world.see(make_pod("second"))
        world.decide()
        await world.clock.turn(0)
        assert world.server.node_of("second") == "a"

    playing(scenario, {"a": 5.0}, binders=1)


def test_a_pod_that_was_bound_and_is_being_deleted_takes_its_room_until_it_is_gone() -> None:
    async def scenario(world: BindingWorld) -> None:
        await lost(world, LOSE, 3)
        world.server.pods["first"]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        world.server.mode = TAKE
        await world.clock.turn(20)
        assert (world.binder.in_flight, world.free("a")) == (0, 0)
        world.see_deleted("first")
        assert world.free("a") == 1

    playing(scenario, {"a": 1.0})


def test_a_leader_that_loses_the_lease_sends_nothing_more_and_keeps_its_reservations() -> None:
    async def scenario(world: BindingWorld) -> None:
        election = world.scheduler.election
        election.elected, election.renewed_at = True, world.clock.monotonic()
        await lost(world, DROP, 3)
        election.elected = False
        world.server.mode = TAKE
        await world.clock.turn(40)
        assert (world.server.posts, world.free("a"), world.place("first")) == (["first"], 0, "flight")

    playing(scenario, {"a": 1.0}, leader_elect=True)
