"""The reports of nodes about a class become one cost: honest spread, no node moves it beyond the bound."""

# mypy: disable-error-code="comparison-overlap"
# Tuples are compared with those of pytest.approx.

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carico.aggregator import class_merge
from carico.aggregator.class_merge import ClassReports
from carico.aggregator.costs import CLIP, MAD_TO_SIGMA, SAME
from carico.types import Vector

Numbers = Sequence[float] | Vector


def merged(
    means: Numbers,
    *,
    variances: Numbers | None = None,
    highs: Numbers | None = None,
    weights: Numbers | None = None,
    fading: Numbers | None = None,
    is_peak: bool = True,
) -> tuple[float, float, float]:
    """One class; returns mean, variance and high."""
    mean = np.array([means], dtype=float)
    variance = np.full_like(mean, 0.0) if variances is None else np.array([variances], dtype=float)
    high = mean if highs is None else np.array([highs], dtype=float)
    weight = np.ones_like(mean) if weights is None else np.array([weights], dtype=float)
    left = np.ones_like(mean) if fading is None else np.array([fading], dtype=float)
    trust = class_merge.trust_of(weight, left)
    may = (left > 0) & (np.count_nonzero(left) >= class_merge.LEAST_NODES)
    found = class_merge.merge(ClassReports(mean, variance, high, high), trust, may, is_peak=is_peak)
    return found.mean[0], found.variance[0], found.high[0]


def test_what_all_say_comes_out() -> None:
    assert merged([0.5, 0.5, 0.5], variances=[0.04] * 3) == (pytest.approx(0.5), pytest.approx(0.04), 0.5)


def test_one_node_counts_fully_and_two_are_weighed_by_their_pods() -> None:
    assert merged([3.0], variances=[0.1]) == (3.0, pytest.approx(0.1), 3.0)
    mean, variance, high = merged([1.0, 3.0], weights=[30.0, 10.0])
    assert mean == pytest.approx(1.5)
    assert variance == pytest.approx(0.75)
    assert high == 3.0


def test_the_spread_is_the_true_one() -> None:
    """Half of the nodes run pods that are ten times as dear: clipping before the spread would hide that."""
    _, variance, _ = merged([0.15] * 5 + [1.6] * 5)
    assert np.sqrt(variance) == pytest.approx(0.9, abs=0.3)
    rng = np.random.default_rng(1)
    _, variance, _ = merged(rng.normal(1.0, 0.2, 64))
    assert np.sqrt(variance) == pytest.approx(0.2, rel=0.25)


@pytest.mark.parametrize("lie", [50.0, 0.005], ids=["100 times", "a hundredth"])
@pytest.mark.parametrize("nodes", [3, 5, 10, 30])
def test_one_node_that_forges_a_hundred_times_the_cost(lie: float, nodes: int) -> None:
    """Honest nodes within ±10 %; the forging node also claims a million pods."""
    honest = list(np.random.default_rng(nodes).uniform(0.45, 0.55, nodes - 1))
    before, spread, high = merged(honest)
    mean, variance, highest = merged([*honest, lie], weights=[5.0] * len(honest) + [1e6])
    share = 1.0 / np.ceil(nodes / 2)
    within = max(MAD_TO_SIGMA * (max(honest) - min(honest)), SAME * max(honest))
    assert abs(mean - before) <= CLIP * within * share + (max(honest) - min(honest))
    assert abs(mean - before) <= 0.25 * before
    assert np.sqrt(variance) <= max(honest) - min(honest) + CLIP * within * share
    assert np.sqrt(variance) <= np.sqrt(spread) + 0.3 * before
    assert highest <= 2.0 * high


@given(
    honest=st.lists(st.floats(0.1, 10), min_size=2, max_size=40),
    lie=st.floats(0, 1e6),
    lie_weight=st.floats(1e-3, 1e6),
    lie_variance=st.floats(0, 1e12),
    scale=st.sampled_from([1.0, 1e9]),
    seed=st.integers(0, 99),
    is_peak=st.booleans(),
)
def test_the_stated_bound_holds(
    honest: list[float], lie: float, lie_weight: float, lie_variance: float, scale: float, seed: int, is_peak: bool
) -> None:
    rng = np.random.default_rng(seed)
    variances = rng.uniform(0, 1, len(honest))
    weights = rng.uniform(0.1, 100, len(honest))
    mean, variance, high = merged(
        np.array([*honest, lie]) * scale,
        variances=np.array([*variances, lie_variance]) * scale**2,
        weights=[*weights, lie_weight],
        is_peak=is_peak,
    )
    low, most = min(honest) * scale, max(honest) * scale
    share = 1.0 / np.ceil((len(honest) + 1) / 2)
    spread = max(MAD_TO_SIGMA * (most - low), SAME * most)
    slack = 1e-9 * scale
    assert low - CLIP * spread * share - slack <= mean <= most + CLIP * spread * share + slack
    assert variance <= ((most - low + CLIP * spread * share) ** 2 + max(variances) * scale**2) * (1 + 1e-9) + slack
    assert high <= class_merge.ALONE * most + slack


def test_two_dear_nodes_among_ten_are_in_the_spread_and_in_the_highest() -> None:
    _, variance, high = merged([0.5] * 8 + [2.0] * 2)
    assert np.sqrt(variance) == pytest.approx(0.66, abs=0.1)
    assert high == 2.0


def test_a_fading_node_counts_less_and_one_that_is_gone_not_at_all() -> None:
    mean, _, _ = merged([1.0, 1.0, 1.2])
    fading, _, _ = merged([1.0, 1.0, 1.2], fading=[1, 1, 0.25])
    gone, _, high = merged([1.0, 1.0, 1.2], fading=[1, 1, 0])
    assert mean > fading > gone == 1.0
    assert high == 1.0


@given(data=st.data())
def test_many_classes_at_once_are_each_class_alone(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 6))
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    nodes = rng.integers(1, 9, count)
    left = (np.arange(8) < nodes[:, None]).astype(float)
    reports = ClassReports(*[rng.uniform(0.1, 5, (count, 8)) for _ in range(4)])
    weight = rng.uniform(0.1, 50, (count, 8)) * left
    may = (nodes >= class_merge.LEAST_NODES)[:, None] & (left > 0)
    together = class_merge.merge(reports, class_merge.trust_of(weight, left), may, is_peak=True)
    for i, n in enumerate(nodes):
        one = slice(i, i + 1)
        trust = class_merge.trust_of(weight[one, :n], left[one, :n])
        alone = class_merge.merge(ClassReports(*[part[one, :n] for part in reports]), trust, may[one, :n], is_peak=True)
        for mine, theirs in zip(together, alone, strict=True):
            assert mine[i] == pytest.approx(theirs[0])
