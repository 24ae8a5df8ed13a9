"""Smoothing: constants by hand, spikes that vanish, change that arrives."""

from __future__ import annotations

import random

import pytest

from carico.estimate.smooth import ChangeAware, DynamicEma
from carico.types import NO_PODS, PodCount

QUIET = PodCount(running=3, churn=False, unsettled=0)


def test_the_moving_average_by_hand() -> None:
    ema = DynamicEma(1)
    expected = [0.2]
    for alpha in (0.09, 0.09, 0.09, 0.333, 0.333):
        expected.append(expected[-1] + alpha * (1.0 - expected[-1]))
    for alpha in (0.0625, 0.0625, 0.0625, 0.2):
        expected.append(expected[-1] + alpha * (0.0 - expected[-1]))
    seen = []
    for x in [0.2, *[1.0] * 5, *[0.0] * 4]:
        ema.update((x,), NO_PODS)
        seen.append(ema.usage[0])
    assert seen == pytest.approx(expected)


def test_each_dimension_of_the_moving_average_has_its_own_age() -> None:
    alone, beside = DynamicEma(1), DynamicEma(2)
    for tick in range(20):
        alone.update((min(1.0, tick / 10),), NO_PODS)
        beside.update((min(1.0, tick / 10), 0.5 + 0.1 * (-1) ** tick), NO_PODS)
    assert beside.usage[0] == alone.usage[0]


def feed(smoother: ChangeAware, x: float, pods: PodCount, ticks: int) -> None:
    for _ in range(ticks):
        smoother.update((x,), pods)


def test_an_announced_spike_leaves_no_trace() -> None:
    smoother = ChangeAware(1, rate_hz=10)
    feed(smoother, 0.2, QUIET, 30)
    feed(smoother, 0.9, PodCount(3, True, 0), 3)
    feed(smoother, 0.2, QUIET, 1)
    assert smoother.usage[0] == pytest.approx(0.2)


def test_after_a_start_the_new_level_is_there_at_once_and_without_the_spike() -> None:
    smoother = ChangeAware(1, rate_hz=10)
    feed(smoother, 0.2, QUIET, 30)
    feed(smoother, 0.8, PodCount(4, False, 1), 3)
    feed(smoother, 0.4, PodCount(4, False, 1), 1)
    assert smoother.fresh
    assert smoother.usage[0] == pytest.approx(0.4)


def test_a_step_without_an_event_is_followed_within_a_second() -> None:
    rng = random.Random(1)
    smoother = ChangeAware(1, rate_hz=10)
    feed(smoother, 0.2, PodCount(2, False, 0), 5)
    for level, ticks in ((0.2, 100), (0.6, 10)):
        for _ in range(ticks):
            feed(smoother, level + rng.gauss(0, 0.02), QUIET, 1)
    assert smoother.usage[0] == pytest.approx(0.6, abs=0.05)


def test_without_any_event_it_is_the_moving_average() -> None:
    rng = random.Random(2)
    smoother, ema = ChangeAware(1, rate_hz=10), DynamicEma(1)
    for _ in range(200):
        x = rng.random()
        smoother.update((x,), NO_PODS)
        ema.update((x,), NO_PODS)
        assert smoother.usage == ema.usage
        assert smoother.fresh


def test_churn_that_never_ends_does_not_blind_it() -> None:
    smoother = ChangeAware(1, rate_hz=10)
    feed(smoother, 0.2, QUIET, 30)
    feed(smoother, 0.9, PodCount(3, True, 0), 150)
    assert smoother.usage[0] == pytest.approx(0.9, abs=0.01)


def test_it_measures_the_noise_of_a_sample_and_not_the_steps() -> None:
    rng = random.Random(3)
    smoother = ChangeAware(1, rate_hz=10)
    for tick in range(2000):
        feed(smoother, 0.3 + 0.2 * (tick // 200 % 2) + rng.gauss(0, 0.03), QUIET, 1)
    assert smoother.noise[0] ** 0.5 == pytest.approx(0.03, rel=0.25)


@pytest.mark.parametrize("rate_hz", [1.0, 20.0, 50.0])
def test_the_moving_average_follows_in_seconds_not_in_samples(rate_hz: float) -> None:
    """After two seconds of a step it stands where it does at ten samples a second."""
    found = []
    for rate in (10.0, rate_hz):
        ema = DynamicEma(1, rate)
        for x in (0.0, *[1.0] * round(2 * rate)):
            ema.follow((x,))
        found.append(ema.usage[0])
    assert found[1] == pytest.approx(found[0], abs=0.03)
