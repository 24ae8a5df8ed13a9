"""The baseline of a node from its usage and the sum of its pods' demands."""

# mypy: disable-error-code="comparison-overlap"
# Tuples are compared with those of pytest.approx.

from __future__ import annotations

import pytest

from carico.estimate.baseline import Baseline

NOISE = 0.01**2


def learned(*seconds: tuple[float, float], saturated: bool = False, may_miss: bool = False) -> Baseline:
    """After a quiet minute at 0.1, and these seconds of (usage, sum of the pods)."""
    node = Baseline()
    for second in range(60):
        pods = 0.1 * (second % 4)
        node.learn(0.1 + pods, pods, NOISE, 1.0, saturated=False)
    for usage, pods in seconds:
        node.learn(usage, pods, NOISE, 1.0, saturated=saturated, may_miss=may_miss)
    return node


def test_waits_that_pressure_does_not_show_change_nothing() -> None:
    """Four busy threads on two processors, three of them on one: usage 0.75 where the pods demand 1.0."""
    node = learned(*[(0.75, 1.0)] * 60, may_miss=True)
    assert (node.b, node.gamma) == (pytest.approx(0.1, abs=0.01), pytest.approx(1.0, abs=0.02))


def test_with_idle_processors_the_same_usage_is_a_baseline_that_fell() -> None:
    assert learned(*[(0.3, 0.3)] * 60).b == pytest.approx(0.0, abs=0.02)


@pytest.mark.parametrize("may_miss", [False, True])
def test_load_that_is_no_pods_is_followed_within_seconds(may_miss: bool) -> None:
    assert learned(*[(0.9, 0.55)] * 5, may_miss=may_miss).b == pytest.approx(0.35, abs=0.05)


def test_pressure_of_a_throttled_pod_that_was_not_read_yet_is_no_baseline() -> None:
    """Its limit throttles it for 80 % of the time, which is load until its counters are read."""
    node = Baseline()
    for _ in range(60):
        node.learn(0.1, 0.0, NOISE, 1.0, saturated=False)
    for _ in range(2):
        node.learn(0.5, 0.05, NOISE, 1.0, saturated=False, unread=True)
    assert node.b == pytest.approx(0.1, abs=0.1)


def test_the_first_second_after_a_full_one_is_no_change_of_the_baseline() -> None:
    node = Baseline()
    for _ in range(60):
        node.learn(0.1, 0.0, NOISE, 1.0, saturated=False)
    for _ in range(10):
        node.learn(1.0, 1.1, NOISE, 1.0, saturated=True, may_miss=True)
    for usage in (0.45, 0.4):
        node.learn(usage, 0.15, NOISE, 1.0, saturated=False)
    assert node.b == pytest.approx(0.1, abs=0.1)
