"""What pods burn while they start: reserved for those that come, and no part of the cost."""

from __future__ import annotations

import pytest

from carico.estimate.class_cost import cost_of
from carico.types import MeasuredPod
from harness.estimate.measured_pods import FIRST, GIB, RESOURCES, WEB, Node, pod, table


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
