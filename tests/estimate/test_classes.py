"""Costs of classes from measured pods: what they promise over time, and that no measurement can break them."""

from __future__ import annotations

import json
import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carico.estimate.classes import MOST_CLASSES
from carico.estimate.pipeline import Pipeline
from carico.settings import EstimateSettings
from carico.types import ClassCost, ClassKey, Estimate, MeasuredPod, NodeSize, PodCount, Sample
from harness.estimate.measured_pods import BATCH, GIB, RESOURCES, SIZE, WEB, Node, pod, table


def test_a_class_measured_at_some_cost_costs_that() -> None:
    node = Node()
    found = node.seconds(10, [pod("1", (1.0, 2 * GIB)), pod("2", (1.0, 2 * GIB))])
    (cost,) = node.pipeline.class_costs()
    assert cost.mean == pytest.approx((1.0, 2 * GIB), rel=0.01)
    assert found.cost_ratio == pytest.approx((1 / 16, 2 / 64), rel=0.01)
    assert found.room == pytest.approx((0.99 * 16 - 0.05 * 16 - 2, (0.99 - 0.12) * 64 * GIB - 4 * GIB), rel=0.02)
    assert found.pod_capacity == pytest.approx(found.room[0] / 1.0, rel=0.02)


def test_two_classes_are_two_costs_and_the_mean_recent_pod_lies_between() -> None:
    node = Node()
    light, heavy = pod("1", (0.5, GIB)), pod("2", (4.0, 8 * GIB), key=BATCH)
    found = node.seconds(10, [light, heavy])
    costs = {cost.key: cost.mean for cost in node.pipeline.class_costs()}
    assert costs[WEB] == pytest.approx((0.5, GIB), rel=0.01)
    assert costs[BATCH] == pytest.approx((4.0, 8 * GIB), rel=0.01)
    assert found.cost_ratio[0] * 16 == pytest.approx(2.25, rel=0.01)


def test_mean_and_variance_between_pods_are_numpys() -> None:
    classes, rng = table(), random.Random(1)
    demands = [(rng.uniform(0.7, 1.3), GIB * rng.uniform(0.7, 1.3)) for _ in range(40)]
    for second in range(60):
        classes.observe([pod(str(i), d, age=30.0 + second) for i, d in enumerate(demands)], float(second))
    (cost,) = classes.costs()
    assert cost.mean == pytest.approx(np.mean(demands, axis=0), rel=0.01)
    assert cost.variance == pytest.approx(np.var(demands, axis=0), rel=0.1)
    assert cost.high[1] == pytest.approx(np.max(demands, axis=0)[1], rel=0.01)


def test_a_pod_that_has_not_started_keeps_what_its_class_reserves_and_one_that_is_stuck_next_to_nothing() -> None:
    node = Node()
    running = [pod("1", (2.0, 8 * GIB))]
    before = node.seconds(10, running)
    waiting = pod("2", None, age=0.0, running=False)
    soon = node.seconds(2, [*running, waiting])
    stuck = node.seconds(40, [*running, waiting])
    assert soon.room[0] <= before.room[0] - 2.0
    assert soon.room[1] <= before.room[1] - 8 * GIB
    assert before.room[0] - 0.02 * 16 - 0.1 <= stuck.room[0] <= before.room[0]


def test_a_pod_whose_containers_have_ended_leaves_its_room_at_once_and_one_that_crashes_comes_back() -> None:
    node = Node()
    both = [pod("1", (2.0, GIB)), pod("2", (4.0, GIB))]
    full = node.seconds(10, both)
    ended = both[1]._replace(running=False, fresh=False)
    free = node.second([both[0], ended])
    waiting = node.seconds(15, [both[0], ended])
    assert free.room[0] >= full.room[0] + 3.9
    assert waiting.room[0] <= full.room[0] + 0.5


def test_saturated_seconds_do_not_lower_a_cost_nor_inflate_it() -> None:
    node = Node()
    node.seconds(10, [pod("1", (2.0, GIB))])
    for demand in (1.6, 2.9):
        node.seconds(10, [pod("1", (demand, GIB), exact=False)])
        assert node.pipeline.class_costs()[0].mean[0] == pytest.approx(2.0, rel=0.05)
    node.seconds(10, [pod("1", (8.0, GIB), exact=False)])
    assert node.pipeline.class_costs()[0].mean[0] > 6.0


def test_own_evidence_in_conflict_with_the_clusters_stands() -> None:
    classes = table()
    said = ClassCost(WEB, 9, 50.0, (0.2, GIB), (1e-4, 1e12), (0.2, GIB), (0.2, GIB), 0.0)
    classes.adopt({WEB: said})
    assert classes.typical(WEB) == (0.2, GIB)  # no pod of it here yet
    for second in range(20):
        classes.observe([pod(str(i), (3.0, GIB), age=30.0 + second) for i in range(3)], float(second))
    assert classes.typical(WEB)[0] == pytest.approx(3.0, rel=0.01)


def test_an_idle_day_widens_but_does_not_move() -> None:
    classes = table()
    for second in range(60):
        classes.observe([pod(str(i), (2.0, GIB), age=30.0 + second) for i in range(10)], float(second))
    classes.observe([], 61.0)
    (before,) = classes.costs()
    classes.observe([], 61.0 + 86400)
    class_ = classes.classes[WEB]
    class_.refresh()
    assert class_.cost is not None
    assert class_.cost.weight == pytest.approx(before.weight / 2, rel=0.01)
    assert class_.cost.mean == before.mean
    assert class_.cost.variance[0] > before.variance[0]


def test_no_more_classes_than_the_bound_and_the_last_used_stay() -> None:
    classes = table()
    for i in range(MOST_CLASSES + 100):
        classes.observe([pod("1", (1.0, GIB), key=ClassKey("a", f"a/{i}"))], float(i))
    assert len(classes.classes) == MOST_CLASSES
    assert ClassKey("a", f"a/{MOST_CLASSES + 99}") in classes.classes
    assert ClassKey("a", "a/0") not in classes.classes


amounts = st.one_of(st.sampled_from([0.0, -1.0, math.nan, math.inf, 1e30, 5e-324]), st.floats(0, 20))
wild = st.lists(
    st.tuples(amounts, amounts, st.floats(-1, 1e6), st.booleans(), st.booleans(), st.integers(0, 3)), max_size=25
)


@settings(max_examples=40, deadline=None)
@given(wild)
def test_whatever_is_measured_room_and_costs_are_finite_and_not_negative(
    seconds: list[tuple[float, float, float, bool, bool, int]],
) -> None:
    node = Node()
    for cpu, memory, age, running, exact, many in seconds:
        pods = [pod(str(i), (cpu, memory * GIB), age=age, running=running, exact=exact) for i in range(many)]
        quiet = [p._replace(demand=None, use=None) for p in pods]
        measured = [p for p in pods if not math.isfinite(cpu + memory) or cpu + memory > 1e6 or min(cpu, memory) < 0]
        found = node.second(quiet if measured else pods) if not measured else _fed(node, measured)
        assert all(math.isfinite(x) and x >= 0 for x in (*found.room, found.pod_capacity, *found.cost_ratio))
        for cost in node.pipeline.class_costs():
            assert all(math.isfinite(x) and x >= 0 for x in (*cost.mean, *cost.variance, *cost.high, cost.ramp))
    restored = Pipeline(EstimateSettings(), RESOURCES, 10.0, SIZE)
    restored.restore(json.loads(json.dumps(node.pipeline.save())))


def _fed(node: Node, pods: list[MeasuredPod]) -> Estimate:
    """A second whose usage has nothing to do with what is measured."""
    found = None
    for tick in range(10):
        node.at += 0.1
        found = node.pipeline.update(
            Sample(node.at, (0.5, 0.5)), PodCount(len(pods), False, 0), pods if tick == 9 else None
        )
    assert found is not None
    return found


def test_more_demand_is_never_more_room() -> None:
    rooms = []
    for demand in (0.5, 1.0, 2.0, 4.0, 8.0):
        found = Node().seconds(10, [pod("1", (demand, demand * GIB)), pod("2", (1.0, GIB), key=BATCH)])
        rooms.append(found.room)
    for i in range(2):
        assert all(a >= b for a, b in zip([r[i] for r in rooms], [r[i] for r in rooms][1:], strict=False))


def test_a_load_that_is_no_pods_takes_room_within_seconds() -> None:
    node = Node()
    pods = [pod("1", (1.0, GIB))]
    before = node.seconds(20, pods)
    for _ in range(5):
        after = node.second(pods, extra=(0.3, 0.3))
    assert after.room[0] == pytest.approx(before.room[0] - 0.3 * 16, abs=0.5)
    assert after.room[1] == pytest.approx(before.room[1] - 0.3 * 64 * GIB, rel=0.05)
    assert node.pipeline.class_costs()[0].mean[0] == pytest.approx(1.0, rel=0.01)


def test_without_accounts_of_pods_the_joint_estimator_answers() -> None:
    node, joint = Node(), Node(estimator="resource-joint")
    pods = [pod("1", None, age=60.0)]
    for _ in range(20):
        mine, others = node.second(pods), joint.second(pods)
    assert mine.pod_capacity == others.pod_capacity
    assert not mine.room


def test_saved_classes_hold_on_a_node_of_another_size() -> None:
    node = Node()
    node.seconds(20, [pod("1", (1.0, 2 * GIB))])
    state = json.loads(json.dumps(node.pipeline.save()))
    small = Pipeline(EstimateSettings(), RESOURCES, 10.0, NodeSize(cores=2, memory_bytes=16 * GIB))
    small.restore(state)
    assert small.class_costs()[0].mean == pytest.approx((1.0, 2 * GIB), rel=0.01)
    found = None
    for tick in range(10):
        found = small.update(Sample(tick / 10, (0.2, 0.48)), PodCount(0, False, 0), [] if tick == 9 else None)
    assert found is not None
    assert found.cost_ratio == pytest.approx((1 / 4, 2 / 16), rel=0.02)
    assert found.baseline_ratio == pytest.approx((0.2, 0.48), rel=0.05)


def test_the_joint_estimators_shares_are_rescaled_with_the_node() -> None:
    pipeline = Pipeline(EstimateSettings(estimator="resource-joint"), RESOURCES, 10.0, SIZE)
    at = 0.0
    for second in range(80):
        pods = second // 8 % 4
        for _ in range(10):
            at += 0.1
            found = pipeline.update(Sample(at, (0.1 + 0.1 * pods, 0.2 + 0.05 * pods)), PodCount(pods, False, 0))
    assert found is not None
    assert found.cost_ratio == pytest.approx((0.1, 0.05), rel=0.05)
    half = NodeSize(cores=4, memory_bytes=32 * GIB)
    pipeline.set_full((0.99 * 8, 0.99 * 32 * GIB), half)
    again = pipeline.between(Sample(at, (0.2, 0.4)), PodCount(0, False, 0))
    assert again is not None
    assert again.cost_ratio == pytest.approx((0.2, 0.1), rel=0.05)


def test_invalid_saved_classes_are_refused() -> None:
    node = Node()
    node.seconds(20, [pod("1", (1.0, 2 * GIB))])
    state = json.loads(json.dumps(node.pipeline.save()))
    for place, value in ((0, -1.0), (1, 1e300), (0, 1e9)):
        wrong = json.loads(json.dumps(state))
        wrong["estimator_state"]["classes"][0][2][0][0][place] = value
        with pytest.raises(ValueError, match="classes"):
            Pipeline(EstimateSettings(), RESOURCES, 10.0, SIZE).restore(wrong)
