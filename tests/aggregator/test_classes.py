"""The table of class costs: bounded, fading, remembered."""

# mypy: disable-error-code="comparison-overlap"
# Tuples are compared with those of pytest.approx.

from __future__ import annotations

import dataclasses

import pytest

from carico.aggregator import class_rows, classes
from carico.aggregator.classes import Classes
from carico.types import ClassCost
from carico.wire.codec.classes import ClassName
from harness.aggregator.class_tables import NAME, NOW, RESOURCES, cost, published, settle


@pytest.fixture
def table() -> Classes:
    return Classes(first_version=7)


def test_a_class_is_known_with_the_next_refresh(table: Classes) -> None:
    table.receive("n1", [cost()], RESOURCES)
    assert table.refresh(NOW)
    found = published(table)
    assert (found.mean, found.pods, found.weight, found.nodes) == ((0.5, 2.0**28), 2, 5.0, 1)
    assert not table.refresh(NOW + 1)


def test_figures_are_absolute_and_resources_are_found_by_name(table: Classes) -> None:
    table.receive("n1", [cost()], RESOURCES)
    other = cost(mean=(9.0, 2.0**28, 0.7), variance=(0,) * 3, high=(9.0, 2.0**28, 0.7), use_high=(0,) * 3)
    table.receive("n2", [other], ("gpu", "memory", "cpu"))
    only_cpu = cost(mean=(0.6,), variance=(0,), high=(0.6,), use_high=(0,))
    table.receive("n3", [only_cpu], ("cpu",))
    table.refresh(NOW)
    assert published(table).mean == (pytest.approx(0.6), pytest.approx(2.0**28))


def test_three_nodes_overrule_a_forging_one_and_two_do_not(table: Classes) -> None:
    for node in ("n1", "n2", "n3"):
        table.receive(node, [cost()], RESOURCES)
    table.receive("liar", [cost(cpu=50.0, memory=2.0**35)], RESOURCES)
    table.refresh(NOW)
    found = published(table)
    assert found.mean[0] == pytest.approx(0.5, rel=0.1)
    assert found.high == (1.0, 2.0**29)
    table.forget("n2")
    table.forget("n3")
    table.refresh(NOW)
    assert published(table).high == (50.0, 2.0**35), "one against one: the higher cost is the safer"


def test_a_node_that_fades_counts_less_and_is_remembered_for_a_week(table: Classes) -> None:
    table.receive("n1", [cost()], RESOURCES)
    table.receive("n2", [cost(cpu=1.5)], RESOURCES)
    table.refresh(NOW)
    assert published(table).mean[0] == pytest.approx(1.0)
    table.fade("n2", 0.3)
    table.refresh(NOW)
    assert published(table).mean[0] == pytest.approx(0.833, abs=0.01)
    table.forget("n1")
    table.forget("n2")
    table.refresh(NOW + 60)
    found = published(table)
    assert (found.pods, found.nodes) == (0, 0)
    assert found.mean[0] == pytest.approx(0.833, abs=0.01), "what the last nodes knew is not lost with them"
    table.refresh(NOW + 60 + classes.REMEMBERED_FOR + 1)
    assert table.published.get(NAME) is None
    table.receive("n3", [cost(cpu=0.2)], RESOURCES)
    table.refresh(NOW + 10**7)
    assert published(table).mean[0] == 0.2


def test_figures_that_hardly_move_are_no_news(table: Classes) -> None:
    table.receive("n1", [cost()], RESOURCES)
    table.refresh(NOW)
    version = table.published.version
    table.receive("n1", [cost(cpu=0.51, memory=2.0**28 * 1.02)], RESOURCES)
    assert not table.refresh(NOW)
    assert table.published.version == version
    table.receive("n1", [cost(cpu=0.6)], RESOURCES)
    assert table.refresh(NOW)


def busy(table: Classes, nodes: int = 30) -> list[ClassCost]:
    """A class on many nodes, behind more others than are merged at once, in each of which one of them moved a bit."""
    others = [cost(f"c{i}") for i in range(3 * classes.PER_REFRESH)]
    for node in range(nodes):
        table.receive(f"n{node}", [cost()], RESOURCES)
        for start in range(0, len(others), 400):
            table.receive(f"n{node}-{start}", others[start : start + 400], RESOURCES)
    settle(table)
    for start in range(0, len(others), 400):
        table.receive(
            f"n0-{start}",
            [dataclasses.replace(other, mean=(0.6, 2.0**28)) for other in others[start : start + 400]],
            RESOURCES,
        )
    return others


def test_small_changes_wait_and_cost_little_each_time(table: Classes) -> None:
    others = busy(table)
    version = table.published.version
    waiting = len(table._drift)
    assert waiting == len(others)
    table.refresh(NOW)
    assert len(table._drift) == waiting - classes.IN_BACKGROUND
    settle(table)
    assert not table._drift
    assert table.published.version == version, "a thirtieth of 20 % is nothing to tell"


def test_a_new_class_overtakes_all_others(table: Classes) -> None:
    busy(table)
    table.receive("n1", [cost("new")], RESOURCES)
    table.refresh(NOW)
    assert published(table, ClassName("a/new", "r1")).mean[0] == 0.5


def test_small_changes_of_many_nodes_add_up_and_are_merged_at_once(table: Classes) -> None:
    busy(table)
    for node in range(30):
        table.receive(f"n{node}", [cost(cpu=0.54)], RESOURCES)
    table.refresh(NOW)
    assert published(table).mean[0] == pytest.approx(0.54)


def test_one_node_that_measured_more_than_all_others_counts_at_once(table: Classes) -> None:
    busy(table)
    table.receive("n3", [cost(high=(0.5, 1.5 * 2.0**28))], RESOURCES)
    table.refresh(NOW)
    assert published(table).high[1] == 1.5 * 2.0**28


def test_a_class_that_ends_on_all_nodes_at_once_is_noticed_at_once(table: Classes) -> None:
    busy(table)
    for node in range(30):
        table.receive(f"n{node}", [cost(pods=0)], RESOURCES)
    table.refresh(NOW)
    assert published(table).pods == 0


def test_classes_rows_and_nodes_are_bounded(table: Classes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classes, "CLASSES", 300)
    for node in range(100):
        table.receive(f"n{node}", [cost("popular", pods=node % 2)], RESOURCES)
    for i in range(1000):
        table.receive(f"n{i % 7}", [cost(f"job-{i}")], RESOURCES)
        if i % 100 == 0:
            settle(table)
            table.receive("n1", [cost("popular")], RESOURCES)
    settle(table)
    assert len(table.published) == 300
    assert published(table, ClassName("a/popular", "r1")).nodes == class_rows.NODES_PER_CLASS
    assert table.published.get(ClassName("a/job-999", "r1")) is not None
    assert table.published.get(ClassName("a/job-1", "r1")) is None
    for i in range(600):
        table.receive("many", [cost(f"own-{i}")], RESOURCES)
    assert len(table._rows._of_node["many"]) <= class_rows.CLASSES_PER_NODE


def test_classes_that_no_node_has_any_more_go_first(table: Classes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classes, "CLASSES", 3)
    table.receive("n1", [cost("old but running")], RESOURCES)
    table.receive("n2", [cost("ended")], RESOURCES)
    settle(table)
    table.forget("n2")
    settle(table)
    table.receive("n1", [cost("one"), cost("two")], RESOURCES)
    settle(table)
    assert sorted(name.family for name in table.published.values()) == ["a/old but running", "a/one", "a/two"]
