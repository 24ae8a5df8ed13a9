"""When an aggregator's garbage collector traverses all objects."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from carico.aggregator import garbage
from carico.testing import ManualClock


class Part:
    """Refers to itself."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_old_objects_are_traversed_once_an_hour_and_not_in_between() -> None:
    async def play() -> tuple[int, ...]:
        clock = ManualClock()
        task = asyncio.create_task(garbage.run(clock))
        old = Part()
        await clock.turn(0.0)
        gc.collect(1)
        gc.collect(1)  # the oldest generation has it now
        gone = weakref.ref(old)
        del old
        before = gc.get_stats()[2]["collections"]
        kept = [[i] for i in range(200_000)]
        still = gone() is not None
        between = gc.get_stats()[2]["collections"] - before
        await clock.turn(garbage.FULL_EVERY)
        task.cancel()
        return len(kept), still, between, gone() is None

    assert asyncio.run(play()) == (200_000, True, 0, True)


def test_young_objects_are_collected_as_ever() -> None:
    async def play() -> tuple[int, ...]:
        task = asyncio.create_task(garbage.run(ManualClock()))
        await asyncio.sleep(0)
        gone = weakref.ref(Part())
        kept = [[i] for i in range(2 * garbage.YOUNG)]
        task.cancel()
        return len(kept), gone() is None

    assert asyncio.run(play()) == (2 * garbage.YOUNG, True)
