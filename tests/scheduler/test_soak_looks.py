"""What the soak's looks at a cluster find: pods that wait though they fit, and pods that no replica knows."""

from __future__ import annotations

from typing import Any

from harness.soak import checks
from harness.soak.history import (
    ApiAnswers,
    Event,
    Gone,
    Leaving,
    Renewed,
    Reported,
    State,
)
from harness.soak.looks import Found, fitting_by_truth, lost, stuck
from harness.soak.made_up import bound, node, nominated, pod


def world(*more: Event) -> State:
    state = State()
    for event in (*node("a", cpu=8000), pod("p", cpu=1000), *more):
        state.apply(event)
    return state


def row(attempts: int = 1) -> dict[str, Any]:
    return {"soak/p": {"queue": "waiting", "attempts": attempts, "refused_by": ["Capacity"]}}


def test_a_pod_that_waits_though_it_fits() -> None:
    found = fitting_by_truth(world(), row())
    assert stuck(found, found)
    assert stuck(found, fitting_by_truth(world(), row(2))) == []  # it was tried meanwhile
    assert stuck(found, fitting_by_truth(world(bound("p", "a", 1)), {})) == []
    unknown = fitting_by_truth(world(), {})  # the scheduler does not even know it
    assert stuck(unknown, unknown)


def test_a_pod_that_fits_elsewhere_at_each_look_is_not_stuck() -> None:
    one, other = (Found("p", 1, "why", frozenset({name})) for name in ("a", "b"))
    assert stuck({"soak/p": one}, {"soak/p": other}) == []


def test_room_that_is_kept_for_others_is_not_held_against_anybody() -> None:
    taken = [pod("q", cpu=6800), bound("q", "a", 1)]
    assert fitting_by_truth(world(*taken), row())
    assert world(*taken).nodes_for(world().pods["p"], cpu=checks.SPARE_CPU, units=checks.SPARE_UNITS) == []
    high = pod("high", cpu=7500, priority=10)
    assert "soak/p" not in fitting_by_truth(world(high, nominated(1)), row())
    assert fitting_by_truth(world(pod("p", cpu=1000, plain=False)), row()) == {}


def test_what_a_report_does_not_count_yet_takes_room() -> None:
    taken = [pod("q", units=9.5), bound("q", "a", 1)]
    assert fitting_by_truth(world(*taken), row()) == {}
    counted = Reported(at=2, node="a", full=10.0, capacity=0.5, added=["q"])
    assert fitting_by_truth(world(*taken, counted), row()) == {}
    freed = [Gone(at=3, uid="q"), Reported(at=4, node="a", full=10.0, capacity=10.0, removed=["q"])]
    assert fitting_by_truth(world(*taken, counted, *freed), row())


def test_pods_that_no_replica_knows() -> None:
    state = world(pod("x", ours=False), pod("gone"), Leaving(at=1, uid="gone"), pod("there"), bound("there", "a", 1))
    assert lost(state, {"soak/p"}) == []
    assert lost(state, set()) == ["soak/p"]


def test_a_node_that_pods_start_on_takes_as_many_as_its_usage_allows() -> None:
    here = [pod(f"s{i}", units=0.01) for i in range(40)] + [bound(f"s{i}", "a", 1) for i in range(40)]
    assert fitting_by_truth(world(*here), row()) == {}
    later = [ApiAnswers(at=90, yes=True)]  # they never started, and that no longer counts
    assert fitting_by_truth(world(*here, *later), row())
    renewed = [Renewed(at=80, holder="b-1")]  # a new leader, whose process may have begun just before
    assert fitting_by_truth(world(*here, *renewed, *later), row()) == {}
