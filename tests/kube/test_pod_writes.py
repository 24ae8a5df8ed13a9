"""Conditions, nominations and evictions, with an API server that answers as it likes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest

from carico.errors import ApiError, FencedError
from carico.kube import pod_writes
from carico.kube.objects import Pod
from carico.kube.writes import Urgency
from carico.testing import make_pod
from harness.kube.scripted import Answer, Desk, Sent, bad, good, one_after_the_other

VICTIM = make_pod("victim", node="n")
WAITS = make_pod("p", status={"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]})


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


def by_method(**answers: Answer) -> Answer:
    """What is answered to PATCH, DELETE and GET."""

    async def answer(sent: Sent) -> bytes:
        return await answers.get(sent.method.lower(), good)(sent)

    return answer


def the_pod(pod: Pod) -> Answer:
    async def answer(_: Sent) -> bytes:
        return msgspec.json.encode(pod)

    return answer


def play(answer: Answer, seconds: float, *, victim: Pod = VICTIM) -> tuple[list[str], list[Exception | None]]:
    """The requests of one eviction, and how it ended."""
    ended: list[Exception | None] = []
    desk = Desk()

    async def scenario() -> None:
        desk.api.answer = answer
        async with desk.at_work():
            write = pod_writes.eviction(desk.client, victim, "carico", desk.clock, on_end=ended.append)
            desk.writer.put(write)
            await desk.clock.turn(seconds)

    run(scenario)
    return [sent.method for sent in desk.api.sent], ended


def test_an_eviction_with_retry_after_is_tried_again() -> None:
    methods, ended = play(by_method(delete=one_after_the_other(bad(429, 5.0), bad(429, 5.0), good)), 11.0)
    assert (methods, ended) == (["PATCH", "DELETE", "DELETE", "DELETE"], [None])


@pytest.mark.parametrize("status", [429, 500, 503])
def test_an_eviction_whose_first_half_failed(status: int) -> None:
    methods, ended = play(by_method(patch=one_after_the_other(bad(status), good)), 1.0)
    assert (methods, ended) == (["PATCH", "PATCH", "DELETE"], [None])


def test_a_victim_that_is_leaving_already_is_not_deleted_again() -> None:
    leaving = make_pod("victim", node="n", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    assert play(good, 1.0, victim=leaving) == ([], [None])


@pytest.mark.parametrize("half", ["patch", "delete"])
def test_a_victim_that_is_gone_needs_nothing_more(half: str) -> None:
    methods, ended = play(by_method(**{half: bad(404)}), 1.0)
    assert ended == [None]
    assert methods[-1] == half.upper()


@pytest.mark.parametrize("half", ["patch", "delete"])
@pytest.mark.parametrize("status", [409, 422])
def test_another_pod_under_the_victims_name_is_left_alone(half: str, status: int) -> None:
    another = make_pod("victim", uid="another")
    methods, ended = play(by_method(get=the_pod(another), **{half: bad(status)}), 60.0)
    assert ended == [None]
    assert methods[-2:] == [half.upper(), "GET"]


def test_a_concurrent_write_of_the_victim_costs_one_more_try() -> None:
    answer = by_method(get=the_pod(VICTIM), delete=one_after_the_other(bad(409), good))
    methods, ended = play(answer, 1.0)
    assert (methods, ended) == (["PATCH", "DELETE", "GET", "DELETE"], [None])


@pytest.mark.parametrize("status", [400, 403, 422])
def test_an_eviction_that_is_refused_for_good(status: int) -> None:
    methods, [error] = play(by_method(get=the_pod(VICTIM), delete=bad(status)), 60.0)
    assert isinstance(error, ApiError)
    assert (error.status, methods.count("DELETE")) == (status, 1)


def test_a_replica_that_lost_its_lease_between_the_two_halves_deletes_no_pod() -> None:
    async def scenario() -> None:
        desk = Desk()
        ended: list[Any] = []

        async def answer(_: Sent) -> bytes:
            desk.leads = False
            return b"{}"

        desk.api.answer = answer
        async with desk.at_work():
            write = pod_writes.eviction(desk.client, VICTIM, "carico", desk.clock, on_end=ended.append)
            desk.writer.put(write)
            await desk.clock.turn(60)
        assert [sent.method for sent in desk.api.sent] == ["PATCH"]
        assert [type(error) for error in ended] == [FencedError]

    run(scenario)


def said(pod: Pod) -> Any:
    """The condition that is sent of a pod."""
    desk = Desk()

    async def scenario() -> None:
        async with desk.at_work():
            write = pod_writes.condition(desk.client, pod, "Unschedulable", "no node", desk.clock)
            desk.writer.put(write)
            await desk.clock.turn(1)

    run(scenario)
    [sent] = desk.api.sent
    assert sent.body["metadata"] == {"uid": pod.uid}
    [condition] = sent.body["status"]["conditions"]
    return condition


def test_the_time_of_a_condition_is_that_of_its_status() -> None:
    assert said(make_pod("p"))["lastTransitionTime"] == "2023-11-14T22:13:20Z"
    assert "lastTransitionTime" not in said(WAITS), "a new message is no transition"


def test_a_nomination_does_not_stand_behind_conditions_and_is_not_replaced_by_one() -> None:
    async def scenario() -> None:
        desk = Desk(workers=1)
        pods = [make_pod(f"p{i}") for i in range(20)]
        for pod in pods:
            desk.writer.put(pod_writes.condition(desk.client, pod, "Unschedulable", "no", desk.clock))
        desk.writer.put(pod_writes.nomination(desk.client, pods[-1], "n"))
        desk.writer.put(pod_writes.condition(desk.client, pods[-1], "Unschedulable", "again", desk.clock))
        assert desk.writer.counts()[Urgency.CONDITION] == 20
        async with desk.at_work():
            await desk.until(lambda: not len(desk.writer))
        first, *_, last = (sent.body["status"] for sent in desk.api.sent)
        assert first == {"nominatedNodeName": "n"}
        assert last["conditions"][0]["message"] == "again"

    run(scenario)
