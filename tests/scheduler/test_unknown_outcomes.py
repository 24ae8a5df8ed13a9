"""Bindings whose answer is lost: a node with room for one pod never gets two, and the pod is never forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from flights import AWAY, DROP, LOSE, TAKE, Flights
from scheduling import make_pod


def playing(scenario: Callable[[Flights], Awaitable[None]], nodes: dict[str, float], **settings: Any) -> None:
    async def whole() -> None:
        flights = Flights(nodes, heartbeat=100.0, **settings)
        try:
            await scenario(flights)
        finally:
            await flights.stop()

    asyncio.run(whole())


async def lost(flights: Flights, mode: str, seconds: float) -> None:
    """One pod is sent to the only node, `mode` says what becomes of it, and then the API server is away for a while."""
    flights.server.mode = mode
    flights.see(make_pod("first"))
    flights.decide()
    await flights.clock.turn(0)
    assert flights.server.posts == ["first"]
    flights.server.mode = AWAY
    flights.see(make_pod("second", priority=5))
    await no_room(flights, seconds)


async def no_room(flights: Flights, seconds: float) -> None:
    """The second pod finds no room, however often it looks."""
    for _ in range(10):
        await flights.clock.turn(seconds / 10)
        flights.decide()
        assert flights.free("a") == 0
        assert (flights.place("first"), flights.place("second")) == ("flight", "waiting")


AWAY_FOR = pytest.mark.parametrize("seconds", [3.0, 60.0])


@AWAY_FOR
def test_the_watch_confirms_it(seconds: float) -> None:
    async def scenario(flights: Flights) -> None:
        await lost(flights, LOSE, seconds)
        flights.see(make_pod("first", node="a"))
        await flights.clock.turn(0)
        assert (flights.binder.under_way, flights.binder.bound) == (0, 1)
        flights.decide()
        assert (flights.free("a"), flights.place("second")) == (0, "waiting")

    playing(scenario, {"a": 1.0})


@AWAY_FOR
def test_a_look_finds_it(seconds: float) -> None:
    async def scenario(flights: Flights) -> None:
        await lost(flights, LOSE, seconds)
        flights.server.mode = TAKE
        await flights.clock.turn(20)
        assert (flights.binder.under_way, flights.binder.bound) == (0, 1)
        assert flights.server.posts == ["first"]  # nothing had to be sent again
        assert flights.free("a") == 0  # assumed, until the watch says so too

    playing(scenario, {"a": 1.0})


@AWAY_FOR
def test_it_did_not_arrive_and_is_sent_again(seconds: float) -> None:
    async def scenario(flights: Flights) -> None:
        await lost(flights, DROP, seconds)
        flights.server.mode = TAKE
        await flights.clock.turn(20)
        assert (flights.server.posts, flights.server.node_of("first")) == (["first", "first"], "a")
        assert (flights.binder.bound, flights.free("a")) == (1, 0)

    playing(scenario, {"a": 1.0})


@AWAY_FOR
@pytest.mark.parametrize("by", ["look", "watch"])
def test_the_pod_is_gone(seconds: float, by: str) -> None:
    async def scenario(flights: Flights) -> None:
        await lost(flights, LOSE, seconds)
        if by == "watch":
            flights.see_deleted("first")
            await flights.clock.turn(0)
        else:
            del flights.server.pods["first"]
            flights.server.mode = TAKE
            await flights.clock.turn(20)
        assert (flights.binder.under_way, flights.last("first")[0]) == (0, "gone")
        flights.server.mode = TAKE
        flights.decide()
        await flights.clock.turn(0)
        assert flights.server.node_of("second") == "a"

    playing(scenario, {"a": 1.0})


@AWAY_FOR
@pytest.mark.parametrize("by", ["look", "watch"])
def test_somebody_else_bound_it_elsewhere(seconds: float, by: str) -> None:
    async def scenario(flights: Flights) -> None:
        await lost(flights, DROP, seconds)
        flights.server.store("first", "uid-first", "b")
        if by == "watch":
            flights.see(make_pod("first", node="b"))
            await flights.clock.turn(0)
        else:
            flights.server.mode = TAKE
            await flights.clock.turn(20)
        assert (flights.binder.under_way, flights.last("first")[0]) == (0, "elsewhere")
        assert (flights.free("a"), flights.free("b")) == (1, -0.5)  # the room goes where the pod is
        flights.see(make_pod("first", node="b"))
        assert flights.free("b") == -0.5

    playing(scenario, {"a": 1.0, "b": 0.5})


def test_a_pod_without_a_node_proves_nothing_while_its_binding_may_still_arrive() -> None:
    """The request is lost to us, but not to the API server: it is stored later than we look."""

    async def scenario(flights: Flights) -> None:
        await lost(flights, DROP, 1)
        flights.server.mode = DROP  # looks are answered: there is no node yet
        await no_room(flights, 40)
        flights.server.store("first", "uid-first", "a")
        await flights.clock.turn(20)
        assert (flights.binder.under_way, flights.binder.bound, flights.free("a")) == (0, 1, 0)

    playing(scenario, {"a": 1.0})


def test_what_cannot_arrive_any_more_is_given_up() -> None:
    """A minute after the last try the API server has ended it; then a pod without a node is proof."""

    async def scenario(flights: Flights) -> None:
        await lost(flights, DROP, 100)
        flights.server.mode = TAKE
        flights.server.modes["first"] = 403
        await flights.clock.turn(20)
        assert flights.last("first")[0] == "failed"
        assert flights.server.posts == ["first"]

    playing(scenario, {"a": 1.0})


def test_a_server_error_is_in_doubt_for_seconds() -> None:
    """A webhook that fails binds nothing: the pod does not keep a node for ever that it cannot be bound to."""

    async def scenario(flights: Flights) -> None:
        flights.server.mode = 500
        flights.see(make_pod("first"))
        flights.decide()
        await flights.clock.turn(5)
        assert (flights.free("a"), flights.place("first")) == (0, "flight")
        await flights.clock.turn(15)
        assert (flights.free("a"), flights.place("first")) == (1, "backoff")

    playing(scenario, {"a": 1.0})


def test_what_was_never_sent_is_given_back_at_once() -> None:
    async def scenario(flights: Flights) -> None:
        flights.server.mode = AWAY
        flights.see(make_pod("first"))
        flights.decide()
        await flights.clock.turn(4)
        assert (flights.free("a"), flights.last("first")[0]) == (1, "failed")

    playing(scenario, {"a": 1.0})


def test_an_unknown_outcome_holds_no_slot() -> None:
    async def scenario(flights: Flights) -> None:
        flights.server.modes["first"] = DROP
        flights.see(make_pod("first"))
        flights.decide()
        assert not flights.binder.has_place
        await flights.clock.turn(5)
        assert flights.parts.waiting.counts() == {"outcome": 1}
        flights.see(make_pod("second"))
        flights.decide()
        await flights.clock.turn(0)
        assert flights.server.node_of("second") == "a"

    playing(scenario, {"a": 5.0}, binders=1)


def test_a_pod_that_was_bound_and_is_being_deleted_takes_its_room_until_it_is_gone() -> None:
    async def scenario(flights: Flights) -> None:
        await lost(flights, LOSE, 3)
        flights.server.pods["first"]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        flights.server.mode = TAKE
        await flights.clock.turn(20)
        assert (flights.binder.under_way, flights.free("a")) == (0, 0)
        flights.see_deleted("first")
        assert flights.free("a") == 1

    playing(scenario, {"a": 1.0})


def test_a_leader_that_falls_sends_nothing_more_and_gives_nothing_back() -> None:
    async def scenario(flights: Flights) -> None:
        election = flights.scheduler.election
        election.leading, election.renewed_at = True, flights.clock.monotonic()
        await lost(flights, DROP, 3)
        election.leading = False
        flights.server.mode = TAKE
        await flights.clock.turn(40)
        assert (flights.server.posts, flights.free("a"), flights.place("first")) == (["first"], 0, "flight")

    playing(scenario, {"a": 1.0}, leader_elect=True)
