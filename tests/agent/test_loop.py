"""The beat: samples are held back until a second is whole, and the estimate is the one of that moment."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from prometheus_client import CollectorRegistry

from carico.agent.exporter import Beat
from carico.agent.loop import SILENCE, Loop
from carico.estimate.pipeline import Pipeline
from carico.settings import EstimateSettings
from carico.testing import ManualClock
from carico.types import NO_PODS, Estimate, PodCount, Sample

DIMENSIONS = ("cpu", "memory")


class Readings:
    """A sampler with a list of what it will read; None is a missed sample."""

    def __init__(self, values: Sequence[tuple[float, float] | None]) -> None:
        self._values = list(values)

    def fetch(self) -> tuple[float, float] | None:
        return self._values.pop(0)

    def sample(self, fetched: tuple[float, float] | None, now: float) -> Sample | None:
        return None if fetched is None else Sample(now, fetched)


def loop(
    values: Sequence[tuple[float, float] | None], pipeline: Pipeline, clock: ManualClock
) -> tuple[Loop, list[Estimate]]:
    heard: list[Estimate] = []
    counts = lambda now: PodCount(running=int(now), churn=False, unsettled=0)  # noqa: E731  one more pod every second
    beat = Beat(CollectorRegistry())
    made = Loop(clock, 10.0, Readings(values), counts, pipeline, beat, heard.append)  # type: ignore[arg-type]
    return made, heard


def play(made: Loop, clock: ManualClock, ticks: int) -> None:
    for _ in range(ticks):
        clock.advance(0.1)
        made.step(clock.monotonic())


def test_the_estimates_are_those_of_samples_taken_one_by_one() -> None:
    values = [(0.1 + 0.001 * i, 0.3) for i in range(50)]
    clock = ManualClock()
    made, heard = loop(values, Pipeline(EstimateSettings(), DIMENSIONS), clock)
    play(made, clock, 50)
    alone, expected, now = Pipeline(EstimateSettings(), DIMENSIONS), [], 0.0
    for each in values:
        now += 0.1
        estimate = alone.update(Sample(now, each), PodCount(int(now), False, 0))
        expected += [estimate] if estimate else []
    assert heard == expected
    assert made.estimate == expected[-1]


def test_a_missed_sample_delays_the_estimate_and_nothing_else() -> None:
    clock = ManualClock()
    made, heard = loop([None] * 3 + [(0.2, 0.2)] * 10, Pipeline(EstimateSettings(), DIMENSIONS), clock)
    play(made, clock, 12)
    assert heard == []
    assert made.why_not_ready() == "no estimate yet"
    play(made, clock, 1)
    assert [estimate.at for estimate in heard] == [pytest.approx(1.3)]


def test_after_a_restore_in_the_middle_of_a_batch_the_estimate_is_still_of_the_last_sample() -> None:
    before = Pipeline(EstimateSettings(), DIMENSIONS)
    for i in range(7):
        before.update(Sample(i / 10, (0.2, 0.2)), PodCount(0, False, 0))
    restored = Pipeline(EstimateSettings(), DIMENSIONS)
    restored.restore(before.save())
    clock = ManualClock(now=10.0)
    made, heard = loop([(0.2, 0.2)] * 13, restored, clock)
    play(made, clock, 13)
    assert [estimate.at for estimate in heard] == [pytest.approx(10.3), pytest.approx(11.3)]
    assert [estimate.pods for estimate in heard] == [10, 11]


def test_silence_is_noticed() -> None:
    clock = ManualClock()
    made, _ = loop([None] * 10, Pipeline(EstimateSettings(), DIMENSIONS), clock)
    assert made.why_not_alive() is None
    clock.advance(SILENCE + 1)
    assert made.why_not_alive() == "no sample for 11 s; the log names the source"


def test_a_slow_beat_is_worked_off_tick_by_tick() -> None:
    clock = ManualClock()
    pipeline = Pipeline(EstimateSettings(), DIMENSIONS, 0.2)
    made = Loop(clock, 0.2, Readings([(0.2, 0.2)] * 3), lambda _: NO_PODS, pipeline, Beat(CollectorRegistry()), print)  # type: ignore[arg-type]
    for _ in range(3):
        clock.advance(5.0)
        made.step(clock.monotonic())
        assert made.sample_age() == 0.0
