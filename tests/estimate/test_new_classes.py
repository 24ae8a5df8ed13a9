"""What is assumed of a class that is not measured yet, and what its first pod shows."""

from __future__ import annotations

import pytest

from carico.estimate.classes import NodeClassTable
from carico.types import ClassKey
from harness.estimate.measured_pods import BATCH, FIRST, GIB, RESOURCES, WEB, Node, pod, table


def test_a_new_revision_is_expected_to_be_like_its_family_and_an_unknown_class_to_be_expensive() -> None:
    classes = table()
    old, new = WEB._replace(revision="1"), WEB._replace(revision="2")
    for second in range(20):
        classes.observe([pod("1", (3.0, 2 * GIB), key=old)], float(second))
    assert classes.typical(new) == pytest.approx((3.0, 2 * GIB), rel=0.01)
    assert classes.reserved(new)[0] > 3.0
    assert classes.reserved(ClassKey("b", "b/other"))[0] >= FIRST[0]
    assert classes.belief(ClassKey("b", "b/other")) is None


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
