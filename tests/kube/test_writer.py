"""The one writer: order, retries, the fence, bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from carico.errors import ApiError, FencedError, HttpError, QueueFullError
from carico.kube.client import Fence
from carico.kube.writer import LAST_WAIT
from carico.kube.writes import Urgency, Write
from harness.kube.scripted import Desk, says


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


class Tries:
    """A write whose attempts end as listed, the last entry repeatedly; None is success."""

    def __init__(self, desk: Desk, key: str, urgency: Urgency, *ends: Exception | None, **options: Any) -> None:
        self._desk, self._ends = desk, list(ends) or [None]
        self.at: list[float] = []  # s, of each try
        self.ended: list[Exception | None] = []
        desk.writer.put(Write(key, urgency, self._send, on_end=self.ended.append, **options))

    async def _send(self, fence: Fence) -> None:
        if not fence():
            raise FencedError
        self.at.append(self._desk.clock.monotonic())
        end = self._ends.pop(0) if len(self._ends) > 1 else self._ends[0]
        if end is not None:
            raise end


def test_retry_after_of_the_api_server_is_honoured() -> None:
    async def scenario() -> None:
        desk = Desk()
        async with desk.at_work():
            eviction = Tries(desk, "a", Urgency.EVICTION, says(429, 7.0), says(429), None)
            await desk.clock.turn(30)
            assert (eviction.at, eviction.ended, len(desk.writer)) == ([0.0, 7.0, 7.2], [None], 0)

    run(scenario)


@pytest.mark.parametrize(
    "error", [says(500), says(503), says(401), HttpError("gone"), ConnectionRefusedError(), TimeoutError()]
)
def test_an_api_server_that_is_away_for_a_minute(error: Exception) -> None:
    async def scenario() -> None:
        desk = Desk()
        async with desk.at_work():
            write = Tries(desk, "a", Urgency.CONDITION, error)
            await desk.clock.turn(60)
            assert not write.ended
            assert len(write.at) < 15
            write._ends[:] = [None]
            await desk.clock.turn(LAST_WAIT)
            assert write.ended == [None]
            gaps = [after - before for before, after in zip(write.at, write.at[1:], strict=False)]
            assert gaps == pytest.approx([min(LAST_WAIT, 0.1 * 2**i) for i in range(len(gaps))])

    run(scenario)


@pytest.mark.parametrize("status", [400, 403, 404, 405, 409, 413, 415, 422])
def test_answers_that_no_later_try_can_change(status: int) -> None:
    async def scenario() -> None:
        desk = Desk()
        async with desk.at_work():
            write = Tries(desk, "a", Urgency.CONDITION, says(status))
            await desk.clock.turn(60)
            [error] = write.ended
            assert isinstance(error, ApiError)
            assert (error.status, len(write.at)) == (status, 1)

    run(scenario)


def test_patience_ends() -> None:
    async def scenario() -> None:
        desk = Desk()
        async with desk.at_work():
            short = Tries(desk, "short", Urgency.CONDITION, says(500), patience=30.0)
            none = Tries(desk, "none", Urgency.CONDITION, says(500), patience=0.0)
            endless = Tries(desk, "endless", Urgency.CONDITION, says(500), patience=float("inf"))
            await desk.clock.turn(3600)
            assert [type(error) for error in short.ended + none.ended] == [ApiError, ApiError]
            assert len(none.at) == 1
            assert 30 <= short.at[-1] - short.at[0] <= 30 + LAST_WAIT
            assert not endless.ended

    run(scenario)


def test_a_lease_that_is_lost_while_a_write_rests() -> None:
    async def scenario() -> None:
        desk = Desk()
        async with desk.at_work():
            rests = Tries(desk, "rests", Urgency.EVICTION, says(429, 20.0), None)
            await desk.clock.turn(1)
            desk.leads = False
            fresh = Tries(desk, "fresh", Urgency.NOMINATION)
            anybody = Tries(desk, "anybody", Urgency.ANNOTATION, fenced=False)
            await desk.clock.turn(60)
            assert (len(rests.at), len(fresh.at), len(anybody.at)) == (1, 0, 1)
            assert [type(error) for error in rests.ended + fresh.ended] == [FencedError, FencedError]
            assert anybody.ended == [None]

    run(scenario)


def test_the_same_key_three_times_while_one_is_in_flight() -> None:
    async def scenario() -> None:
        desk = Desk()
        log: list[str] = []
        go_on = asyncio.Event()

        def write(name: str) -> Write:
            async def send(_: Fence) -> None:
                log.append(f"{name} begins")
                await go_on.wait()
                log.append(f"{name} is written")

            return Write("pod", Urgency.CONDITION, send, on_end=lambda _: log.append(f"{name} has ended"))

        async with desk.at_work():
            desk.writer.put(write("first"))
            await desk.until(lambda: bool(log))
            for name in ("second", "third", "fourth"):
                desk.writer.put(write(name))
            assert len(desk.writer) == 2
            go_on.set()
            await desk.until(lambda: not len(desk.writer))
            both = ("first", "fourth")
            assert log == [f"{name} {word}" for name in both for word in ("begins", "is written", "has ended")]

    run(scenario)


def test_a_newer_write_takes_over_the_back_off_and_not_the_failure() -> None:
    async def scenario() -> None:
        desk = Desk()
        async with desk.at_work():
            old = Tries(desk, "pod", Urgency.CONDITION, says(429, 10.0))
            await desk.clock.turn(1)
            new = Tries(desk, "pod", Urgency.CONDITION)
            await desk.clock.turn(8)
            assert not new.at
            await desk.clock.turn(2)
            assert (old.ended, new.at, new.ended) == ([], [10.0], [None])

    run(scenario)


def test_what_rests_takes_no_place_and_what_hangs_takes_only_those_of_its_own_kind() -> None:
    async def scenario() -> None:
        desk = Desk(workers=2, event_workers=4)
        never = asyncio.Event()

        async def hang(_: Fence) -> None:
            await never.wait()

        async with desk.at_work():
            for i in range(50):
                desk.writer.put(Write(f"event {i}", Urgency.EVENT, hang))
                desk.writer.put(Write(f"condition {i}", Urgency.CONDITION, hang))
                Tries(desk, f"resting {i}", Urgency.EVICTION, says(429, 1000.0))
            await desk.until(lambda: desk.writer.counts()[Urgency.EVICTION] == 50)
            last = Tries(desk, "last", Urgency.EVICTION)
            await desk.until(lambda: last.ended == [None])

    run(scenario)


def test_no_longer_wanted() -> None:
    async def scenario() -> None:
        desk = Desk()
        wanted = True
        async with desk.at_work():
            write = Tries(desk, "a", Urgency.CONDITION, says(500), wanted=lambda: wanted)
            await desk.clock.turn(5)
            tries, wanted = len(write.at), False
            await desk.clock.turn(60)
            assert (len(write.at), write.ended, len(desk.writer)) == (tries, [], 0)

    run(scenario)


def test_when_too_many_wait_the_oldest_of_that_kind_goes() -> None:
    async def scenario() -> None:
        desk = Desk(most={Urgency.EVENT: 3})
        events = [Tries(desk, f"event {i}", Urgency.EVENT) for i in range(5)]
        conditions = [Tries(desk, f"condition {i}", Urgency.CONDITION) for i in range(5)]
        assert [type(event.ended[0]) for event in events[:2]] == [QueueFullError] * 2
        async with desk.at_work():
            await desk.clock.turn(1)
        assert [one.ended for one in events[2:] + conditions] == [[None]] * 8
        assert not any(event.at for event in events[:2])

    run(scenario)


def test_callbacks_may_put_the_same_key_again() -> None:
    async def scenario() -> None:
        desk = Desk()
        last: list[Tries] = []

        def again(_: Exception | None = None) -> bool:
            last.append(Tries(desk, "a", Urgency.NOMINATION))
            return False

        async with desk.at_work():
            Tries(desk, "a", Urgency.CONDITION, wanted=again)
            await desk.clock.turn(1)
            desk.writer.put(Write("a", Urgency.EVICTION, good, on_end=again))
            await desk.clock.turn(1)
            assert [write.ended for write in last] == [[None], [None]]
            assert not len(desk.writer)

    run(scenario)


async def good(_: Fence) -> None:
    """It is written."""


def test_nothing_in_a_write_ends_the_writer(caplog: pytest.LogCaptureFixture) -> None:
    def breaks(*_: object) -> bool:
        raise ZeroDivisionError

    async def scenario() -> None:
        desk = Desk()
        async with desk.at_work():
            sends = Tries(desk, "sends", Urgency.CONDITION, ZeroDivisionError("a bug"))
            asks = Tries(desk, "asks", Urgency.CONDITION, wanted=breaks)
            desk.writer.put(Write("ends", Urgency.CONDITION, good, on_end=breaks))
            last = Tries(desk, "last", Urgency.ANNOTATION)
            await desk.clock.turn(1)
            assert [type(error) for error in sends.ended + asks.ended] == [ZeroDivisionError] * 2
            assert last.ended == [None]
            assert not len(desk.writer)

    run(scenario)
    assert caplog.text.count("ZeroDivisionError") >= 3


def test_draining_waits_for_the_kinds_that_are_named() -> None:
    async def scenario() -> None:
        desk = Desk(busy=lambda: True)
        event = Tries(desk, "event", Urgency.EVENT, says(500))
        scheduled = Tries(desk, "scheduled", Urgency.SCHEDULED_EVENT)
        eviction = Tries(desk, "eviction", Urgency.EVICTION, says(429, 5.0), None)
        async with desk.at_work():
            drained = asyncio.ensure_future(desk.writer.drain([Urgency.EVICTION, Urgency.CONDITION]))
            await desk.clock.turn(4)
            assert not drained.done()
            assert scheduled.ended == [None], "Events no longer wait for bindings"
            await desk.clock.turn(2)
            assert drained.done()
            assert (eviction.ended, event.ended) == ([None], [])

    run(scenario)


def test_events_wait_for_bindings_but_not_for_ever() -> None:
    async def scenario() -> None:
        binding = True
        desk = Desk(busy=lambda: binding, most={Urgency.EVENT: 100})
        async with desk.at_work():
            first = Tries(desk, "first", Urgency.SCHEDULED_EVENT)
            await desk.clock.turn(4)
            desk.clock.step_wall(-3600)  # only monotonic time counts here
            assert not first.at
            await desk.clock.turn(1.1)
            assert first.ended == [None]
            second = Tries(desk, "second", Urgency.SCHEDULED_EVENT)
            await desk.clock.turn(1)
            assert not second.at
            binding = False
            await desk.clock.turn(0.1)
            assert second.ended == [None]
            binding = True
            many = [Tries(desk, f"{i}", Urgency.SCHEDULED_EVENT) for i in range(50)]
            await desk.clock.turn(0.1)
            assert many[0].ended == [None], "half of what may wait is waiting"

    run(scenario)


def test_a_store_of_events_that_is_down_gets_few_requests_and_is_used_at_once_when_it_is_back() -> None:
    async def scenario() -> None:
        desk = Desk(event_workers=100)
        async with desk.at_work():
            writes = [Tries(desk, f"{i}", Urgency.SCHEDULED_EVENT, says(503), patience=3600.0) for i in range(1000)]
            await desk.clock.turn(600)
            assert sum(len(write.at) for write in writes) <= 100 + 600 / 5 * 1.2 + 10
            for write in writes:
                write._ends[:] = [None]
            await desk.until(lambda: not len(desk.writer), within=20.0)
            assert all(write.ended == [None] for write in writes)

    run(scenario)
