"""How a node mixes the cluster's cost with its own."""

from __future__ import annotations

import json

import numpy as np
import pytest

from carico.errors import InvalidMessage
from carico.estimate.pipeline import Pipeline
from carico.estimate.prior import Prior
from carico.settings import EstimateSettings
from carico.types import CostBelief, Estimate, PodCount, Sample

DIMENSIONS = ("cpu", "memory")
GRAM = np.diag([0.1, 0.1])
COST = (0.1, 0.05)


def seconds(pipeline: Pipeline, start: int, many: int, pods: int, cost: tuple[float, float] = COST) -> Estimate:
    values = tuple(0.1 + pods * c for c in cost)
    latest = None
    for tick in range(start * 10, (start + many) * 10):
        latest = pipeline.update(Sample(tick / 10, values), PodCount(pods, False, 0)) or latest
    assert latest is not None
    return latest


def learned() -> tuple[Pipeline, Estimate]:
    """A node that has seen up to four pods of COST."""
    pipeline = Pipeline(EstimateSettings(), DIMENSIONS)
    for i in range(20):
        latest = seconds(pipeline, i * 5, 5, pods=i % 5)
    return pipeline, latest


def test_a_node_without_evidence_takes_the_clusters_cost() -> None:
    pipeline = Pipeline(EstimateSettings(), DIMENSIONS)
    pipeline.adopt(GRAM, CostBelief((0.2, 0.1), (1e-4, 1e-4)), mean_pods=3.0)
    latest = seconds(pipeline, 0, 10, pods=0)
    assert latest.cost_ratio == (0.2, 0.1)
    assert latest.pod_capacity == pytest.approx((0.99 - 0.1) / 0.2, rel=0.05)


def test_pods_whose_load_is_still_to_come_are_subtracted_at_the_clusters_cost() -> None:
    """A burst reaches a node that has never seen a pod: until their load shows, three pods are three pods."""
    pipeline = Pipeline(EstimateSettings(), DIMENSIONS)
    pipeline.adopt(GRAM, CostBelief((0.2, 0.1), (1e-4, 1e-4)), mean_pods=3.0)
    empty = seconds(pipeline, 0, 10, pods=0)
    latest = None
    for tick in range(100, 120):
        latest = pipeline.update(Sample(tick / 10, (0.1, 0.1)), PodCount(3, False, 3)) or latest
    assert latest is not None
    assert latest.pod_capacity == pytest.approx(empty.pod_capacity - 3, abs=0.3)


def test_a_dimension_of_which_the_cluster_knows_nothing_has_no_prior() -> None:
    pipeline = Pipeline(EstimateSettings(), DIMENSIONS)
    alone = seconds(Pipeline(EstimateSettings(), DIMENSIONS), 0, 10, pods=0)
    pipeline.adopt(GRAM, CostBelief((0.2, 0.0), (1e-4, float("inf"))), mean_pods=3.0)
    latest = seconds(pipeline, 0, 10, pods=0)
    assert latest.cost_ratio == (0.2, alone.cost_ratio[1])
    again = Pipeline(EstimateSettings(), DIMENSIONS)
    again.restore(json.loads(json.dumps(pipeline.save(), allow_nan=False)))
    assert seconds(again, 10, 10, pods=0) == seconds(pipeline, 10, 10, pods=0)


def test_a_node_with_evidence_keeps_its_own_against_a_vague_cluster() -> None:
    pipeline, before = learned()
    assert before.cost_ratio == pytest.approx(COST, rel=0.05)
    pipeline.adopt(GRAM, CostBelief((0.3, 0.3), (1.0, 1.0)), mean_pods=3.0)
    assert seconds(pipeline, 100, 1, pods=4).cost_ratio == pytest.approx(before.cost_ratio, rel=0.01)


def test_peers_whose_cost_doubles_raise_this_nodes_cost_before_its_first_such_pod() -> None:
    pipeline, before = learned()
    spread = CostBelief(COST, tuple((0.1 * c) ** 2 for c in COST))
    pipeline.adopt(GRAM, spread, mean_pods=3.0)
    steady = seconds(pipeline, 100, 1, pods=4)
    assert steady.cost_ratio == pytest.approx(before.cost_ratio, rel=0.05)
    doubled = CostBelief(tuple(1.95 * c for c in COST), tuple((0.25 * c) ** 2 for c in COST))
    pipeline.adopt(GRAM, doubled, mean_pods=3.0)
    after = seconds(pipeline, 101, 1, pods=4)
    assert after.cost_ratio == pytest.approx(tuple(1.9 * c for c in COST), rel=0.1)
    assert after.pod_capacity < 0.6 * steady.pod_capacity


def test_own_pods_close_what_the_cluster_opened() -> None:
    pipeline, _ = learned()
    pipeline.adopt(GRAM, CostBelief(COST, (1e-4, 1e-4)), mean_pods=3.0)
    pipeline.adopt(GRAM, CostBelief((0.3, 0.2), (1e-3, 1e-3)), mean_pods=3.0)
    opened = seconds(pipeline, 100, 1, pods=4)
    for i in range(12):
        closed = seconds(pipeline, 101 + 5 * i, 5, pods=i % 5)
    assert opened.cost_ratio[0] > 0.2
    assert closed.cost_ratio == pytest.approx(COST, rel=0.15)


def test_the_clusters_cost_is_never_sent_back() -> None:
    alone, _ = learned()
    told, _ = learned()
    told.adopt(100 * GRAM, CostBelief((0.9, 0.9), (1e-6, 1e-6)), mean_pods=3.0)
    for pipeline in (alone, told):
        for i in range(10):
            seconds(pipeline, 100 + 5 * i, 5, pods=i % 5)
    ours, theirs = alone.evidence(), told.evidence()
    assert ours is not None
    assert theirs is not None
    assert np.array_equal(ours.basis, theirs.basis)
    assert (ours.baseline, ours.cost, ours.samples) == (theirs.baseline, theirs.cost, theirs.samples)


def test_no_evidence_of_a_cost_before_a_pod_came() -> None:
    pipeline = Pipeline(EstimateSettings(), DIMENSIONS)
    assert pipeline.evidence() is None
    seconds(pipeline, 0, 30, pods=0)
    evidence = pipeline.evidence()
    assert evidence is not None
    assert evidence.cost is None
    assert evidence.baseline == pytest.approx((0.1, 0.1), abs=0.01)


@pytest.mark.parametrize(
    ("gram", "cost"),
    [
        (np.eye(3), None),
        (np.array([[np.nan, 0], [0, 1.0]]), None),
        (np.array([[np.inf, 0], [0, 1.0]]), None),
        (GRAM, CostBelief((0.1,), (0.1,))),
        (GRAM, CostBelief((0.1, float("nan")), (0.1, 0.1))),
        (GRAM, CostBelief((0.1, 0.1), (0.1, -0.1))),
    ],
)
def test_a_model_that_makes_no_sense_is_refused_and_changes_nothing(gram: np.ndarray, cost: CostBelief | None) -> None:
    pipeline, _ = learned()
    before = pipeline.save()
    with pytest.raises(InvalidMessage):
        pipeline.adopt(gram, cost, mean_pods=1.0)
    assert pipeline.save() == before


def test_a_gram_matrix_that_one_forged_size_made_huge_does_not_take_the_cost_away() -> None:
    """A node that claims to have 16,000 cores makes every other node's share of the Gram matrix absurd."""
    pipeline = Pipeline(EstimateSettings(), DIMENSIONS)
    seconds(pipeline, 0, 10, pods=0)
    with pytest.raises(InvalidMessage, match="Gram"):
        pipeline.adopt(1e12 * GRAM, CostBelief((0.3, 0.2), (1e-4, 1e-4)), mean_pods=3.0)
    assert seconds(pipeline, 10, 1, pods=0).cost_ratio == pytest.approx((0.3, 0.2))


def test_a_node_whose_pods_are_unlike_the_clusters_keeps_its_own_cost() -> None:
    """Nine nodes of light pods: the heavy node's own cost must not be shrunk towards theirs."""
    prior = Prior(1)
    prior.adopt(CostBelief((0.019,), (0.001**2,)))
    assert prior.mix(0, (0.2, 0.004**2)) == pytest.approx(0.2, rel=0.01)


def test_a_cost_learned_beside_pods_that_never_changed_is_no_evidence() -> None:
    """An agent that restarts beside four pods cannot distinguish their memory from the baseline's."""
    pipeline = Pipeline(EstimateSettings(estimator="resource-joint"), DIMENSIONS)
    for tick in range(100):
        pipeline.update(Sample(tick / 10, (0.2, 0.7)), PodCount(4, False, 0))
    evidence = pipeline.evidence()
    assert evidence is not None
    assert evidence.cost is None


def test_after_minutes_without_pods_a_light_past_lets_no_crowd_in() -> None:
    pipeline, learnt = learned()
    idle = seconds(pipeline, 100, 50, pods=0)
    later = seconds(pipeline, 150, 130, pods=0)
    assert idle.cost_ratio == pytest.approx(learnt.cost_ratio, rel=0.1)
    assert later.pod_capacity < 4


def test_small_moves_of_the_cluster_open_nothing() -> None:
    prior = Prior(1)
    for mean in (0.1, 0.105, 0.11, 0.105):
        prior.adopt(CostBelief((mean,), (0.02**2,)))
    assert prior.mix(0, (0.2, 1e-6)) == pytest.approx(0.2, rel=0.01)


def test_a_dimension_without_a_cluster_cost_uses_the_nodes_own_evidence() -> None:
    pipeline, before = learned()
    pipeline.adopt(GRAM, CostBelief((0.1, 0.0), (1e-4, float("inf"))), mean_pods=3.0)
    assert seconds(pipeline, 100, 1, pods=4).cost_ratio[1] == pytest.approx(before.cost_ratio[1], rel=0.01)
    restored = Pipeline(EstimateSettings(), DIMENSIONS)
    restored.restore(json.loads(json.dumps(pipeline.save())))
    assert restored.save() == pipeline.save()
    fresh = Prior(1)
    fresh.adopt(CostBelief((0.0,), (float("inf"),)))
    assert fresh.mix(0, None) is None
    fresh.adopt(CostBelief((0.2,), (1e-4,)))
    assert fresh.mix(0, (0.1, 1e-6)) == pytest.approx(0.1, rel=0.02)  # first news is no move: nothing was opened
