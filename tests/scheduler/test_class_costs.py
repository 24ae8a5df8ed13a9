"""What classes cost: which source counts, for how long, and what is charged while a class is unmeasured."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from carico.scheduler.cache.charge import Claim
from carico.scheduler.cache.class_costs import ClassCostTable
from carico.scheduler.cache.class_merge import merged
from carico.scheduler.cache.template import PodInfo
from carico.testing import make_cost, make_pod, make_report
from carico.types import ClassCost, ClassKey, NodeReport

RESOURCES = ("cpu", "memory")
WEB = ClassKey("default", "default/web")
FULL = (16.0, 64e9)


def web(*mean: float, **changes: Any) -> ClassCost:
    return make_cost("default/web", *mean, **changes)


def report(node: str, *costs: ClassCost, full: tuple[float, ...] = FULL) -> NodeReport:
    return make_report(node, 5.0, room=(4.0, 8e9), full=full, class_costs=costs)


def charged(table: ClassCostTable, claim: Claim = Claim(WEB)) -> list[float]:  # noqa: B008  a constant
    cost = table.charge(claim).cost
    assert cost is not None
    return list(cost[:2])


def test_an_unmeasured_class_is_charged_the_first_guess_raised_by_requests() -> None:
    table = ClassCostTable(first_cores=0.5, first_memory=1e9)
    assert charged(table) == [0.5, 1e9]
    asking = Claim(WEB, requests={"cpu": 2000, "memory": 1000})
    assert charged(table, asking) == [2.0, 1e9]
    assert table.charge(asking).probe == WEB


def test_the_first_guess_is_at_most_half_of_the_largest_node() -> None:
    table = ClassCostTable(first_cores=1.0, first_memory=4e9)
    table.apply_report(report("small", full=(1.0, 2e9)), now=0)
    assert charged(table) == [0.5, 1e9]
    table.apply_report(report("large", full=(8.0, 6e9)), now=0)
    assert charged(table) == [1.0, 3e9]


def test_units_take_no_notice_of_the_class() -> None:
    table = ClassCostTable()
    table.aggregated({WEB: web(0.5, 1e9)}, RESOURCES, now=0)
    charge = table.charge(Claim(WEB, units=2.5))
    assert (charge.units, charge.cost, charge.probe) == (2.5, None, None)


def test_the_aggregators_cost_goes_before_the_nodes_costs() -> None:
    table = ClassCostTable()
    assert table.apply_report(report("a", web(2.0, 1e9)), now=0) == {"default/web"}
    assert charged(table) == [2.0, 1e9]
    assert table.charge(Claim(WEB)).probe is None
    assert table.aggregated({WEB: web(0.5, 3e9)}, RESOURCES, now=1) == {"default/web"}
    assert charged(table) == [0.5, 3e9]
    assert table.apply_report(report("a", web(2.0, 1e9)), now=2) == set()


def test_what_the_aggregator_no_longer_knows_is_unknown_until_a_node_reports() -> None:
    table = ClassCostTable()
    table.aggregated({WEB: web(0.5, 3e9)}, RESOURCES, now=0)
    assert table.aggregated({}, RESOURCES, now=1) == {"default/web"}
    assert table.charge(Claim(WEB)).probe == WEB
    table.apply_report(report("a", web(2.0, 1e9)), now=2)
    assert charged(table) == [2.0, 1e9]


def test_costs_survive_the_aggregator_for_their_greatest_age() -> None:
    table = ClassCostTable(max_age=100)
    table.aggregated({WEB: web(0.5, 3e9)}, RESOURCES, now=0)
    assert table.tick(99) == set()
    assert charged(table) == [0.5, 3e9]
    assert table.tick(101) == {"default/web"}
    assert table.charge(Claim(WEB)).probe == WEB


def test_so_do_those_of_reports() -> None:
    table = ClassCostTable(max_age=100)
    table.apply_report(report("a", web(2.0, 1e9)), now=0)
    table.apply_report(report("b", make_cost("default/batch", 1.0, 1e9)), now=50)
    assert table.tick(101) == {"default/web"}
    assert table.tick(151) == {"default/batch"}


def test_an_unmeasured_revision_costs_what_the_family_does() -> None:
    table = ClassCostTable()
    table.aggregated({WEB._replace(revision="1"): web(0.5, 3e9, revision="1")}, RESOURCES, now=0)
    charge = table.charge(Claim(WEB._replace(revision="2")))
    assert charge.cost is not None
    assert (charge.cost[:2], charge.probe) == ((0.5, 3e9), None)
    assert table.aggregated({WEB._replace(revision="1"): web(0.8, 3e9, revision="1")}, RESOURCES, 1) == {"default/web"}
    assert charged(table, Claim(WEB._replace(revision="2"))) == [0.8, 3e9]


def test_small_moves_change_no_charge_and_do_not_add_up() -> None:
    table = ClassCostTable()
    table.aggregated({WEB: web(1.0, 1e9)}, RESOURCES, now=0)
    assert table.aggregated({WEB: web(1.015, 1e9)}, RESOURCES, now=1) == set()
    assert charged(table) == [1.0, 1e9]
    assert table.aggregated({WEB: web(1.03, 1e9)}, RESOURCES, now=2) == {"default/web"}
    assert charged(table) == [1.03, 1e9]


def test_figures_of_a_known_class_are_merged_once_a_second() -> None:
    table = ClassCostTable()
    table.apply_report(report("a", web(1.0, 1e9)), now=0)
    for number in range(20):
        assert table.apply_report(report(f"n{number}", web(2.0, 1e9)), now=0.1) == set()
    assert table.tick(1.0) == {"default/web"}
    assert charged(table) == [2.0, 1e9]


def test_one_node_with_false_figures_has_no_effect_where_three_have_measured() -> None:
    honest = [web(0.5, 1e9), web(0.52, 1.1e9), web(0.48, 0.9e9)]
    clipped = merged(WEB, [*honest, web(50.0, 100e9)])
    assert clipped.mean[0] <= 0.52
    assert clipped.high[1] <= 1.5e9


def test_of_two_nodes_the_higher_cost_is_clipped() -> None:
    assert merged(WEB, [web(0.5, 1e9), web(1.0, 2e9)]).mean == (1.0, 2e9)


def test_a_node_can_claim_at_most_its_own_size() -> None:
    table = ClassCostTable()
    table.apply_report(report("a", web(1000.0, 1e15), full=(4.0, 8e9)), now=0)
    assert charged(table) == [4.0, 8e9]


def test_what_is_kept_of_reports_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("carico.scheduler.cache.class_costs.CLASSES", 3)
    table = ClassCostTable()
    for number in range(10):
        table.apply_report(report("a", make_cost(f"default/c{number}", 1.0, 1e9)), now=float(number))
    table.tick(20)
    assert {key.family for key, _ in table} == {"default/c7", "default/c8", "default/c9"}


def test_revisions_that_are_never_measured_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("carico.scheduler.cache.class_costs.CHARGES", 10)
    table = ClassCostTable()
    table.aggregated({WEB: web(0.5, 1e9)}, RESOURCES, now=0)
    for number in range(100):
        assert charged(table, Claim(WEB._replace(revision=str(number)))) == charged(table)
    assert len(table._charges) <= 10


def test_a_pods_claim_is_its_class_its_units_and_its_requests() -> None:
    table = ClassCostTable()
    info = PodInfo(make_pod("web-1", labels={"app": "web", "pod-template-hash": "5d"}, cpu="500m"))
    assert table.claim(info) == Claim(WEB._replace(revision="5d"), None, {"cpu": 500})
    assert table.claim(info) is table.claim(info)
    assert table.claim(PodInfo(make_pod(labels={"app": "web"}, units=2))).units == 2.0


def test_labels_that_tell_no_classes_apart_are_a_setting() -> None:
    table = ClassCostTable(ignored=("default", "shard"))
    keys = {table.claim(PodInfo(make_pod(labels={"app": "web", "shard": str(i)}))).key for i in range(3)}
    assert keys == {WEB}


def test_a_class_measured_with_no_weight_is_not_known() -> None:
    table = ClassCostTable()
    assert table.apply_report(report("a", dataclasses.replace(web(1.0, 1e9), weight=0.0)), now=0) == set()
    assert table.charge(Claim(WEB)).probe == WEB
