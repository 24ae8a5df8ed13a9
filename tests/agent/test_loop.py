"""The tick_metrics: samples are held back until a second is whole, and the estimate is the one of that moment."""

# mypy: disable-error-code="comparison-overlap"
# Tuples are compared with those of pytest.approx.

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from carico.agent.exporter import TickMetrics
from carico.agent.loop import SILENCE, Loop
from carico.estimate.pipeline import Pipeline
from carico.settings import EstimateSettings
from carico.testing import ManualClock
from carico.types import NO_PODS, Estimate, MeasuredPod, PodCount, Sample

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
    received: list[Estimate] = []
    counts = lambda now: PodCount(running=4, churn=int(now) % 2 > 0, unsettled=0)  # noqa: E731
    tick_metrics = TickMetrics(CollectorRegistry())
    made = Loop(clock, 10.0, Readings(values), counts, pipeline, tick_metrics, received.append)  # type: ignore[arg-type]
    return made, received


def play(made: Loop, clock: ManualClock, ticks: int) -> None:
    for _ in range(ticks):
        clock.advance(0.1)
        made.step(clock.monotonic())


def test_the_estimates_are_those_of_samples_taken_one_by_one() -> None:
    values = [(0.1 + 0.001 * i, 0.3) for i in range(50)]
    clock = ManualClock()
    made, received = loop(values, Pipeline(EstimateSettings(), DIMENSIONS), clock)
    play(made, clock, 50)
    alone, expected, now = Pipeline(EstimateSettings(), DIMENSIONS), [], 0.0
    for each in values:
        now += 0.1
        estimate = alone.update(Sample(now, each), PodCount(4, int(now) % 2 > 0, 0))
        expected += [estimate] if estimate else []
    assert received == expected
    assert made.estimate == expected[-1]


def test_a_missed_sample_delays_the_estimate_and_nothing_else() -> None:
    clock = ManualClock()
    made, received = loop([None] * 3 + [(0.2, 0.2)] * 10, Pipeline(EstimateSettings(), DIMENSIONS), clock)
    play(made, clock, 12)
    assert received == []
    assert made.why_not_ready() == "no estimate yet"
    play(made, clock, 1)
    assert [estimate.at for estimate in received] == [pytest.approx(1.3)]


def test_after_a_restore_in_the_middle_of_a_batch_the_estimate_is_still_of_the_last_sample() -> None:
    before = Pipeline(EstimateSettings(), DIMENSIONS)
    for i in range(7):
        before.update(Sample(i / 10, (0.2, 0.2)), PodCount(0, False, 0))
    restored = Pipeline(EstimateSettings(), DIMENSIONS)
    restored.restore(before.save())
    clock = ManualClock(now=10.0)
    made, received = loop([(0.2, 0.2)] * 13, restored, clock)
    play(made, clock, 13)
    assert [estimate.at for estimate in received] == [pytest.approx(10.3), pytest.approx(11.3)]
    assert [estimate.pods for estimate in received] == [4, 4]


def test_silence_is_noticed() -> None:
    clock = ManualClock()
    made, _ = loop([None] * 10, Pipeline(EstimateSettings(), DIMENSIONS), clock)
    assert made.why_not_alive() is None
    clock.advance(SILENCE + 1)
    assert made.why_not_alive() == "no sample for 11 s; the log names the source"


def test_a_slow_beat_is_worked_off_tick_by_tick() -> None:
    clock = ManualClock()
    pipeline = Pipeline(EstimateSettings(), DIMENSIONS, 0.2)
    readings: Any = Readings([(0.2, 0.2)] * 3)
    made = Loop(clock, 0.2, readings, lambda _: NO_PODS, pipeline, TickMetrics(CollectorRegistry()), print)
    for _ in range(3):
        clock.advance(5.0)
        made.step(clock.monotonic())
        assert made.sample_age() == 0.0


def test_pods_that_come_or_go_are_reported_before_the_second_is_over() -> None:
    clock, running = ManualClock(), [0]
    received: list[Estimate] = []
    pipeline = Pipeline(EstimateSettings(), DIMENSIONS)
    sampler, tick_metrics = Readings([(0.2, 0.2)] * 25), TickMetrics(CollectorRegistry())
    made = Loop(clock, 10.0, sampler, lambda _: PodCount(running[0], True, 0), pipeline, tick_metrics, received.append)  # type: ignore[arg-type]
    play(made, clock, 10)
    running[0] = 3
    play(made, clock, 2)
    assert [(estimate.at, estimate.pods) for estimate in received] == [(pytest.approx(1.0), 0), (pytest.approx(1.1), 3)]
    assert (received[0].pod_capacity, received[1].pod_capacity) == (1.0, 0.0), (
        "one pod of unknown cost, and none beside the three"
    )
    play(made, clock, 8)
    assert [estimate.at for estimate in received[2:]] == [pytest.approx(2.0)], "and the seconds go on as they were"


class Measured:
    """Records its calls and their times."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, float]] = []

    def measure(self, now: float) -> tuple[MeasuredPod, ...]:
        self.asked.append(("measure", round(now, 1)))
        return ()

    def present(self, now: float) -> tuple[MeasuredPod, ...]:
        self.asked.append(("present", round(now, 1)))
        return ()


def test_pods_are_measured_at_the_end_of_each_second_and_listed_again_where_they_changed_before() -> None:
    clock, running, measured = ManualClock(), [0], Measured()
    pipeline = Pipeline(EstimateSettings(), DIMENSIONS)
    sampler, tick_metrics = Readings([(0.2, 0.2)] * 30), TickMetrics(CollectorRegistry())
    counts = lambda _: PodCount(running[0], True, 0)  # noqa: E731
    made = Loop(clock, 10.0, sampler, counts, pipeline, tick_metrics, lambda _: None, measured)  # type: ignore[arg-type]
    play(made, clock, 13)
    running[0] = 3
    play(made, clock, 17)
    assert measured.asked == [("measure", 1.0), ("present", 1.4), ("measure", 2.0), ("measure", 3.0)]


def test_an_estimate_between_batches_changes_no_state() -> None:
    often, never = (Pipeline(EstimateSettings(), DIMENSIONS) for _ in range(2))
    for i in range(60):
        sample, pods = Sample(i / 10, (0.2 + 0.1 * (i // 20), 0.3)), PodCount(i // 20, False, 0)
        often.update(sample, pods)
        never.update(sample, pods)
        often.between(sample, pods)
    assert often.save() == never.save()
