"""Costs of classes from measured pods: what they promise over time, and that no measurement can break them."""

from __future__ import annotations

import json
import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carico.estimate.class_cost import cost_of
from carico.estimate.classes import MOST_CLASSES, NodeClassTable
from carico.estimate.pipeline import Pipeline
from carico.settings import EstimateSettings
from carico.types import ClassCost, ClassKey, Estimate, MeasuredPod, NodeSize, PodCount, Sample

GIB = 2.0**30
RESOURCES = ("cpu", "memory")
SIZE = NodeSize(cores=8, memory_bytes=64 * GIB)  # 16 busy threads
WEB, BATCH = ClassKey("a", "a/web"), ClassKey("a", "a/batch")
FIRST, MOST = (1.0, GIB), (64.0, 64 * GIB)


def pod(uid: str, demand: tuple[float, float] | None, age: float = 30.0, **more: object) -> MeasuredPod:
    plain = MeasuredPod(uid, WEB, age, True, demand, demand, True, demand is not None)
    return plain._replace(**more)  # type: ignore[arg-type]


def table() -> NodeClassTable:
    return NodeClassTable(RESOURCES, FIRST, MOST)


class Node:
    """A node of 8 cores whose pods are measured every second."""

    def __init__(self, base: tuple[float, float] = (0.05, 0.12), **choice: object) -> None:
        self.pipeline = Pipeline(EstimateSettings(**choice), RESOURCES, 10.0, SIZE)  # type: ignore[arg-type]
        self.base, self.at = base, 0.0

    def second(self, pods: list[MeasuredPod], extra: tuple[float, float] = (0.0, 0.0)) -> Estimate:
        used = [sum(p.demand[i] for p in pods if p.demand and p.running) for i in range(2)]
        usage = (self.base[0] + extra[0] + used[0] / 16, self.base[1] + extra[1] + used[1] / (64 * GIB))
        found = None
        for tick in range(10):
            self.at += 0.1
            sample = Sample(self.at, tuple(min(x, 1.0) for x in usage))
            found = self.pipeline.update(sample, PodCount(len(pods), False, 0), pods if tick == 9 else None)
        assert found is not None
        return found

    def seconds(self, many: int, pods: list[MeasuredPod]) -> Estimate:
        for i in range(many):
            found = self.second([p._replace(age=p.age + i) for p in pods])
        return found


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


def test_a_pod_that_ramps_up_is_not_taken_for_a_light_one() -> None:
    node = Node()
    for age in range(1, 12):
        now = 4.0 * min(age / 10, 1.0)
        node.second([pod("1", (now, GIB), age=float(age))])
        if age < 8:
            assert not node.pipeline.class_costs()
    for age in range(12, 16):
        node.second([pod("1", (4.0, GIB), age=float(age))])
    assert node.pipeline.class_costs()[0].mean[0] == pytest.approx(4.0, rel=0.1)


def test_cpu_burnt_at_the_start_is_reserved_but_is_not_the_cost() -> None:
    node = Node()
    for number in range(4):
        for age in range(1, 40):
            demand = (4.0 if age <= 6 else 0.2, 4 * GIB)
            node.second([pod(str(number), demand, age=float(age))])
    (cost,) = node.pipeline.class_costs()
    assert cost.mean[0] == pytest.approx(0.2, rel=0.3)
    assert cost_of(cost, RESOURCES, FIRST)[0] > 3.0


def test_cpu_burnt_at_the_start_is_known_though_it_saturates_the_node() -> None:
    """The pods saturate the node as they start, so without saturated seconds only their end would be known of some."""
    classes = table()
    for number in range(12):
        for age in range(1, 40):
            demand, full = (4.0 if age <= 6 else 0.2, 4 * GIB), number % 2 == 0 and age <= 6
            classes.observe([pod(str(number), demand, age=float(age), exact=not full)], 100.0 * number + age)
    assert classes.classes[WEB].surplus[0] == pytest.approx(3.8, rel=0.1)
    assert classes.classes[WEB].start_ups[0] >= 6.0


def test_a_ramp_is_known_on_a_node_that_is_always_full() -> None:
    classes = table()
    for number in range(6):
        for age in range(1, 30):
            ramped = min(age / 8, 1.0)
            classes.observe([pod(str(number), (ramped, GIB), age=float(age), exact=False)], 100.0 * number + age)
    assert 4.0 <= classes.classes[WEB].ramps[0] <= 12.0
    young = pod("young", (0.25, GIB), age=2.0, exact=False)
    classes.observe([young], 1000.0)
    assert not classes.classes[WEB].pods["young"].settled[0], "a quarter of its load is not its level"


def test_threads_that_queue_do_not_look_like_a_ramp() -> None:
    """A known pod that demands half as much again because the node is full has not grown."""
    classes = table()
    for number in range(6):
        for age in range(1, 60):
            full = age >= 10
            demand = (1.5 if full else 1.0, GIB)
            classes.observe([pod(str(number), demand, age=float(age), exact=not full)], 100.0 * number + age)
    assert classes.classes[WEB].ramps[0] == 0.0


def test_the_end_of_a_ramp_does_not_look_like_threads_that_queue() -> None:
    """Then what pods demand on a full node would be divided by a growth that they have behind them."""
    classes = table()
    for number in range(12):
        for second in range(1, 30):
            age = second + number % 2 / 2
            demand, full = (0.8 * min(age / 8, 1.0), GIB), not 5 <= age <= 6
            classes.observe([pod(str(number), demand, age=age, exact=not full)], 100.0 * number + second)
    assert classes.classes[WEB].queueing[0] <= 1.1


def test_a_class_that_hardly_uses_cpu_after_its_start_does_not_swing_and_its_second_pod_reserves_the_start() -> None:
    """A hundredth of a core now and then is far above a mean of next to nothing."""
    node = Node()
    for age in range(1, 40):
        node.second([pod("1", (1.0 if age <= 6 else 0.01 * (age % 4 == 0), 0.1 * GIB), age=float(age))])
    node.seconds(10, [])
    free = node.second([])
    second = node.second([pod("2", None, age=0.5)])
    assert free.room[0] - second.room[0] == pytest.approx(1.0, abs=0.3)


def test_one_noisy_reading_is_no_burst_that_each_pod_reserves() -> None:
    node = Node()
    for age in range(1, 30):
        node.second([pod("1", (1.6 if age == 7 else 1.0, GIB), age=float(age))])
    (cost,) = node.pipeline.class_costs()
    assert cost_of(cost, RESOURCES, FIRST)[0] < 1.3


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


def test_a_new_revision_is_expected_to_be_like_its_family_and_an_unknown_class_to_be_expensive() -> None:
    classes = table()
    old, new = WEB._replace(revision="1"), WEB._replace(revision="2")
    for second in range(20):
        classes.observe([pod("1", (3.0, 2 * GIB), key=old)], float(second))
    assert classes.typical(new) == pytest.approx((3.0, 2 * GIB), rel=0.01)
    assert classes.reserved(new)[0] > 3.0
    assert classes.reserved(ClassKey("b", "b/other"))[0] >= FIRST[0]
    assert classes.belief(ClassKey("b", "b/other")) is None


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


def test_the_guess_of_a_new_class_ends_once_its_pod_shows_a_low_cpu_demand() -> None:
    """The guess for an unknown class kept a small node closed until its first pod had settled."""
    node, idle = Node(), (0.0, 0.1 * GIB)
    node.seconds(30, [pod(f"h{i}", (3.0, GIB), key=BATCH) for i in range(2)])
    heavy = [pod(f"h{i}", (3.0, GIB), age=60.0, key=BATCH) for i in range(2)]
    first = node.second([*heavy, pod("new", None, age=0.5)])
    seen = [node.second([*heavy, pod("new", idle, age=age)]) for age in (1.2, 2.2)]
    assert seen[0].room[0] == pytest.approx(first.room[0], abs=0.5)
    assert seen[1].room[0] > first.room[0] + 0.8


def test_the_next_pod_of_a_new_class_reserves_what_the_first_has_shown() -> None:
    """Not the guess, which is the whole of a small node's cpu if other classes are expensive."""
    node = Node()
    node.seconds(30, [])
    for age in (1.2, 2.2):
        one = node.second([pod("first", (0.2, GIB), age=age)])
    both = node.second([pod("first", (0.2, GIB), age=3.0), pod("next", None, age=0.0)])
    assert one.room[0] - both.room[0] == pytest.approx(0.2, abs=0.1)


def test_the_reading_of_its_first_second_is_one_of_the_two_that_show_a_pods_cpu() -> None:
    node = Node()
    node.seconds(30, [])
    guessed = node.second([pod("new", (0.2, GIB), age=0.8)])
    shown = node.second([pod("new", (0.2, GIB), age=1.8)])
    assert shown.room[0] - guessed.room[0] == pytest.approx(0.8, abs=0.1), "the guess is 1.0"


def test_a_new_class_that_still_comes_up_keeps_the_guess() -> None:
    node = Node()
    node.seconds(30, [])
    first = node.second([pod("new", None, age=0.5)])
    for age in (1.2, 2.2):
        climbing = node.second([pod("new", (0.1 * age, GIB), age=age)])
    assert climbing.room[0] == pytest.approx(first.room[0], abs=0.2)


def test_a_second_pod_of_a_new_class_reserves_what_the_first_demands_though_that_may_still_rise() -> None:
    """A scheduler that knows the class from other nodes hands its pods over to a node that does not know it yet."""
    node = Node()
    node.seconds(3, [pod("1", (0.5, 10 * GIB), age=1.0)])
    first = pod("1", (0.5, 12 * GIB), age=4.0)
    alone = node.second([first])
    assert not node.pipeline.class_costs()
    both = node.second([first._replace(age=5.0), pod("2", None, age=0.0, running=False)])
    assert alone.room[1] - both.room[1] >= 12 * GIB


def test_no_guess_takes_more_than_half_of_the_node() -> None:
    classes = NodeClassTable(RESOURCES, (1.0, GIB), (4.0, 8 * GIB))
    dear = [pod(f"d{i}", (0.1 if i else 4.0, GIB), key=ClassKey("a", f"a/{i}")) for i in range(3)]
    for second in range(12):
        classes.observe([p._replace(age=30.0 + second) for p in dear], 100.0 + second)
    assert classes.reserved(WEB)[0] == 2.0


def start_up(uid: str, age: float, burn: float = 5.0) -> MeasuredPod:
    """One core while it starts, then next to nothing, with the noise of small figures."""
    rest = 0.015 if 20.0 < age < 30.0 else 0.003
    return pod(uid, (1.0 if age < burn else rest, GIB), age)


def test_noise_of_a_level_near_nothing_is_no_long_start_up() -> None:
    node = Node()
    for life in range(6):
        for age in range(40):
            node.second([start_up(f"p{life}", age + 0.5)])
    class_ = node.pipeline._estimator.table.classes[WEB]  # type: ignore[attr-defined]
    assert 4.0 <= class_.start_ups[0] <= 8.0
    assert class_.ramps[0] == 0.0


def test_a_pod_that_has_shown_its_start_up_does_not_reserve_it_again_when_that_becomes_known() -> None:
    """The first pod settles while it still works; only later pods show that this was a start-up."""
    rows = table()
    for second in range(60):
        later = [start_up(f"p{n}", second - 12 * n) for n in (1, 2) if second > 12 * n]
        pods = [start_up("first", second + 0.5), *later]
        rows.observe(pods, float(second))
    class_ = rows.classes[WEB]
    first = class_.pods["first"]
    class_.start_ups[0] = 128.0  # as if the start-up had turned out to be as long as that
    assert not class_.is_starting(first, 0)
