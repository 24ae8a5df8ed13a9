"""What a node learns from its peers, before that reaches it. `make bench NAME=federation` draws the same scenarios."""

from __future__ import annotations

import numpy as np
import pytest

from harness.estimate import federation

pytestmark = pytest.mark.slow


def test_a_lightly_loaded_nodes_k_falls_when_its_peers_start_heavy_work() -> None:
    together = federation.watched(federation.WATCHED["a lightly cpu-loaded node"], federated=True)
    before, after = federation.before_and_after(together["k"])
    assert after < 0.5 * before
    before, after = federation.before_and_after(together["Pod-Capacity"])
    assert after < 0.5 * before


def test_a_memory_loaded_nodes_k_rises_when_its_peers_start_cpu_work() -> None:
    together = federation.watched(federation.WATCHED["a memory-loaded node"], federated=True)
    before, after = federation.before_and_after(together["k"])
    assert after > 1.15 * before


def test_on_its_own_a_node_learns_nothing_of_its_peers() -> None:
    alone = federation.watched(federation.WATCHED["a lightly cpu-loaded node"], federated=False)
    before, after = federation.before_and_after(alone["k"])
    assert abs(after / before - 1) < 0.05


@pytest.mark.slow
def test_a_cost_that_doubles_on_the_others_is_advertised_before_the_first_such_pod() -> None:
    last, _ = federation.doubling()
    cost = [estimate.cost_ratio[0] for estimate in last.estimates]
    before = np.median(cost[federation.DOUBLED_AT - 20 : federation.DOUBLED_AT])
    assert abs(before * federation.EIGHT.cores / federation.LIGHT[0] - 1) < 0.1
    assert np.median(cost[-30:]) > 1.5 * before


@pytest.mark.slow
def test_a_new_node_of_any_size_knows_the_cost_from_the_prior_alone() -> None:
    for errors in federation.sizes().values():
        assert max(map(abs, errors)) < 0.2
