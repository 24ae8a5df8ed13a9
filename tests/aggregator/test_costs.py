"""The prior of the cost: what nodes agree on comes out, and no minority moves it beyond the stated bound."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carico.aggregator.costs import CLIP, MAD_TO_SIGMA, POINTS, SAME, median, points, robust
from carico.types import CostPoints, Vector

Numbers = Sequence[float] | Vector


def said(
    costs: Numbers,
    variances: Numbers | None = None,
    weights: Numbers | None = None,
) -> CostPoints:
    cost = np.array(costs, dtype=float)
    variance = np.full(len(cost), 1e-4) if variances is None else np.array(variances, dtype=float)
    return CostPoints(cost, variance, np.ones(len(cost)) if weights is None else np.array(weights, dtype=float))


def prior_of(reported: CostPoints) -> tuple[float, float]:
    found = robust(reported)
    assert found is not None
    return found


def test_what_all_say_comes_out() -> None:
    mean, variance = prior_of(said([0.5, 0.5, 0.5]))
    assert mean == pytest.approx(0.5)
    assert variance == pytest.approx(1e-4)
    assert robust(said([])) is None
    assert robust(said([0.0, 0.0], [0.0, 0.0])) == (0.0, 0.0)


def test_scatter_between_nodes_is_in_the_variance() -> None:
    rng = np.random.default_rng(1)
    mean, variance = prior_of(said(rng.normal(1.0, 0.2, 500)))
    assert mean == pytest.approx(1.0, rel=0.03)
    assert np.sqrt(variance) == pytest.approx(0.2, rel=0.1)


def test_a_node_that_reports_a_hundred_times_its_peers_hardly_moves_it() -> None:
    rng = np.random.default_rng(2)
    honest = rng.uniform(0.45, 0.55, 18)
    before, _ = prior_of(said(honest))
    after, _ = prior_of(said([*honest, 50.0]))
    assert abs(after - before) < 0.02 * before


def test_nodes_that_run_other_pods_are_in_the_spread() -> None:
    """Five nodes with pods of 0.15 cores, five with 1.6: the spread shows it, and the light ones do not win as such.

    The heavy nodes know their own cost to 2 % and must not get 0.165 ± 0.022 as the prior.
    """
    mean, variance = prior_of(said([0.15] * 5 + [1.6] * 5, [0.009**2] * 5 + [0.03**2] * 5))
    assert np.sqrt(variance) == pytest.approx(0.9, abs=0.25)
    assert 0.15 <= mean <= 1.6
    _, variance = prior_of(said([0.15] * 9 + [1.6], [0.009**2] * 9 + [0.03**2]))
    assert np.sqrt(variance) == pytest.approx(0.43, abs=0.1)


@given(
    honest=st.lists(st.floats(0.1, 10), min_size=2, max_size=40),
    lies=st.lists(st.floats(0, 1e6), max_size=15),
    scale=st.sampled_from([1.0, 1e9]),
    seed=st.integers(0, 99),
)
def test_the_stated_bound_holds(honest: list[float], lies: list[float], scale: float, seed: int) -> None:
    """Variances are as they like; φ is the share of trust that the liars can get at most."""
    rng = np.random.default_rng(seed)
    lies = lies[: len(honest) // 8]
    costs = np.array([*honest, *lies]) * scale
    variances = rng.uniform(0, 0.1, len(costs)) * scale**2
    share = 4 * len(lies) / len(costs)
    assert share < 0.5
    mean, _ = prior_of(said(costs, variances))
    low, high = min(honest) * scale, max(honest) * scale
    spread = max(MAD_TO_SIGMA * (high - low), SAME * high)
    assert low - CLIP * spread * share - 1e-9 * scale <= mean <= high + CLIP * spread * share + 1e-9 * scale


def test_better_evidence_counts_more_but_not_for_many() -> None:
    """A third of the nodes are so large that their absolute cost is mostly noise."""
    rng = np.random.default_rng(3)
    truth, sizes = 0.5, np.array([2.0, 8.0, 64.0] * 7)
    sigma = 0.01 * sizes
    mean, _ = prior_of(said(np.maximum(0, rng.normal(truth, sigma)), sigma**2))
    assert mean == pytest.approx(truth, rel=0.05)
    sure, _ = prior_of(said([0.5] * 9 + [0.6], [1e-4] * 9 + [0.0]))
    assert sure < 0.53


def test_many_nodes_are_sent_in_few_points() -> None:
    rng = np.random.default_rng(4)
    costs = rng.lognormal(0, 0.3, 5000)
    few = points(costs, np.full(5000, 1e-4), np.ones(5000))
    assert len(few.cost) == POINTS
    assert few.weight.sum() == pytest.approx(5000)
    everything, thinned = prior_of(said(costs)), prior_of(few)
    assert thinned[0] == pytest.approx(everything[0], rel=0.01)
    assert thinned[1] == pytest.approx(everything[1], rel=0.05)


@given(st.lists(st.floats(-1e9, 1e9), min_size=1))
def test_the_median_is_numpys_lower_one(values: list[float]) -> None:
    assert median(np.array(values), np.ones(len(values))) == np.percentile(values, 50, method="inverted_cdf")


def test_a_fading_node_counts_less() -> None:
    with_weight, _ = prior_of(said([1.0, 1.0, 1.2], weights=[1, 1, 1]))
    fading, _ = prior_of(said([1.0, 1.0, 1.2], weights=[1, 1, 0.1]))
    gone, _ = prior_of(said([1.0, 1.0, 1.2], weights=[1, 1, 0]))
    assert with_weight > fading > gone == 1.0
