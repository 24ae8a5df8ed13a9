"""Moments in a node's life in which Pod-Capacity must do the right thing."""

from __future__ import annotations

import random

import pytest

from carico.estimate.pipeline import Pipeline
from carico.settings import EstimateSettings
from carico.types import Estimate, Mode, PodCount, Sample

BASE, COST = (0.05, 0.12), (0.08, 0.03)


class Node:
    """A node whose usage is made up: base + cost · pods that show, and noise."""

    def __init__(self, seed: int = 1) -> None:
        self.pipeline = Pipeline(EstimateSettings(), ("cpu", "memory"))
        self.rng = random.Random(seed)
        self.tick = 0
        self.latest: Estimate | None = None

    def run(
        self, seconds: float, pods: int, *, showing: float | None = None, unsettled: int = 0, churn: bool = False,
        extra: tuple[float, float] = (0.0, 0.0),
    ) -> Estimate:  # fmt: skip
        """The latest estimate, of this stretch or of one before."""
        for _ in range(round(seconds * 10)):
            self.tick += 1
            shows = pods if showing is None else showing
            noise = (self.rng.gauss(0, 0.02), self.rng.gauss(0, 0.001))
            values = [b + c * shows + e + w for b, c, e, w in zip(BASE, COST, extra, noise, strict=True)]
            sample = Sample(self.tick / 10, tuple(min(max(x, 0.0), 1.0) for x in values))
            self.latest = self.pipeline.update(sample, PodCount(pods, churn, unsettled)) or self.latest
        assert self.latest is not None
        return self.latest

    def learn(self) -> None:
        for i in range(24):
            self.run(5, pods=i % 7)
        self.run(5, pods=3)


def fits(pods: float) -> float:
    return min((0.99 - b) / c - pods for b, c in zip(BASE, COST, strict=True))


def test_it_learns_the_cost_and_counts_the_room() -> None:
    node = Node()
    node.learn()
    estimate = node.run(5, pods=4)
    assert estimate.cost_ratio == pytest.approx(COST, rel=0.1)
    assert estimate.baseline_ratio == pytest.approx(BASE, abs=0.02)
    assert estimate.pod_capacity == pytest.approx(fits(4), abs=0.5)
    assert estimate.mode is Mode.SETTLED


def test_pods_whose_load_is_not_in_the_usage_yet_are_subtracted() -> None:
    node = Node()
    node.learn()
    estimate = node.run(1, pods=6, showing=3, unsettled=3)
    assert estimate.pod_capacity == pytest.approx(fits(6), abs=0.6)


def test_pods_whose_load_is_already_in_the_usage_are_not_subtracted_twice() -> None:
    node = Node()
    node.learn()
    estimate = node.run(1, pods=6, unsettled=3)
    assert estimate.pod_capacity == pytest.approx(fits(6), abs=0.6)


def test_in_churn_the_pod_count_is_used_and_not_the_usage() -> None:
    node = Node()
    node.learn()
    estimate = node.run(1, pods=5, churn=True, extra=(0.3, 0.0))
    assert estimate.mode is Mode.CHURN
    assert estimate.pod_capacity == pytest.approx(fits(5), abs=0.6)


@pytest.mark.parametrize("running", [6, 11])
def test_pods_that_ended_a_moment_ago_are_not_taken_for_load_that_is_still_there(running: int) -> None:
    """In churn the lowest samples of 3 s are a lower bound of the usage, but most of them are of before the end."""
    node = Node()
    node.learn()
    node.run(9.5, pods=running)
    estimate = node.run(0.5, pods=0, showing=running, churn=True)  # the runtime's spikes hide that it is gone
    assert estimate.mode is Mode.CHURN
    assert estimate.pod_capacity == pytest.approx(fits(0), abs=0.6)


def test_a_full_resource_in_churn_leaves_no_room_though_a_pod_has_ended() -> None:
    node = Node()
    node.learn()
    assert node.run(4, pods=5, churn=True, extra=(1.0, 0.0)).pod_capacity == pytest.approx(0.0, abs=0.3)
    assert node.run(1, pods=4, churn=True, extra=(1.0, 0.0)).pod_capacity < 3.0


@pytest.mark.parametrize("churn", [False, True])
def test_a_memory_jump_is_in_the_very_next_estimate(churn: bool) -> None:
    node = Node()
    node.learn()
    node.run(0.8, pods=3)
    estimate = node.run(0.2, pods=3, churn=churn, extra=(0.0, 0.75))
    assert estimate.pod_capacity < 2.5
    node.run(0.8, pods=3, extra=(0.0, 0.75))
    assert node.run(0.2, pods=3, churn=churn, extra=(0.0, 0.79)).pod_capacity == pytest.approx(0.0, abs=0.3)


def test_a_load_that_no_pod_brought_lowers_the_room_at_once_and_the_next_pods_show_that_pods_cost_the_same() -> None:
    node = Node()
    node.learn()
    assert node.run(2, pods=3, extra=(0.4, 0.0)).pod_capacity < fits(3) - 5 + 1
    for pods in (2, 3, 4, 3, 2, 1, 2, 3):
        estimate = node.run(5, pods=pods, extra=(0.4, 0.0))
    assert estimate.pod_capacity == pytest.approx(fits(3) - 5, abs=1.0)
    assert estimate.cost_ratio == pytest.approx(COST, rel=0.2)


def test_pods_that_come_up_over_ten_seconds_keep_their_cost() -> None:
    node = Node()
    for pods in [0, 1, 2, 3, 4, 5, 6] * 4:
        before = max(pods - 1, 0) if pods else 0
        for step in range(10):
            node.run(1, pods=pods, showing=before + (pods - before) * step / 10, unsettled=int(pods > 0 and step < 2))
        node.run(4, pods=pods)
    estimate = node.run(1, pods=7, showing=6, unsettled=1)
    assert estimate.cost_ratio == pytest.approx(COST, rel=0.12)
    assert estimate.pod_capacity == pytest.approx(fits(7), abs=0.8)


def test_saturation_cannot_lower_the_cost() -> None:
    node = Node()
    node.learn()
    before = node.run(3, pods=8).cost_ratio[0]
    for pods in (14, 18, 22, 26, 30):
        estimate = node.run(10, pods=pods)
        assert estimate.pod_capacity < 0.5
    assert estimate.cost_ratio[0] > 0.9 * before


def test_cpu_as_two_real_cores_show_it() -> None:
    """Mean of utilisation and pressure with 0 to 5 busy processes on two cores: bent, then flat."""
    measured = (0.01, 0.27, 0.52, 0.76, 0.98, 1.0)
    pipeline, rng, tick = Pipeline(EstimateSettings(), ("cpu", "memory")), random.Random(3), 0
    errors = []
    for round_ in range(8):
        for pods in (0, 1, 2, 3, 4, 5, 4, 3, 2, 1):
            for _ in range(60):
                tick += 1
                cpu = min(max(measured[pods] + rng.gauss(0, 0.03), 0.0), 1.0)
                estimate = pipeline.update(Sample(tick / 10, (cpu, 0.3)), PodCount(pods, False, 0))
                if estimate and round_ > 1:
                    errors.append(estimate.pod_capacity - max(0, 4 - pods))
    assert max(map(abs, errors)) < 1.0
