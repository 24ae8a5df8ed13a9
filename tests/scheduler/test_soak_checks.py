"""The soak's figures can come out badly: each gets a made-up history with a fault in it, and the same without."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

from harness.soak import checks, objects
from harness.soak.history import (
    Announced,
    ApiAnswers,
    BindingSent,
    Bound,
    Event,
    Evicted,
    EvictionSent,
    FaultBegan,
    FaultEnded,
    Gone,
    Leaving,
    Memory,
    NodeDown,
    NodeUp,
    Nominated,
    PodSeen,
    Preempted,
    Renewed,
    Reported,
    Silenced,
    State,
)
from harness.soak.looks import Found, fitting_by_truth, lost, stuck
from harness.soak.observer import Observer
from harness.soak.recorder import Recorder
from harness.soak.report import Row, Seen, rows


def pod(uid: str, at: float = 0.0, **changes: Any) -> PodSeen:
    return PodSeen(at=at, uid=uid, key=f"soak/{uid}", **changes)


def node(name: str, at: float = 0.0, cpu: int = 4000, full: float = 10.0) -> list[Event]:
    return [NodeUp(at=at, node=name, cpu=cpu), Reported(at=at, node=name, full=full, capacity=full)]


def bound(uid: str, name: str, at: float) -> Bound:
    return Bound(at=at, uid=uid, node=name)


# --- bound twice ---


def test_a_pod_that_is_seen_on_two_nodes() -> None:
    once = [pod("p"), bound("p", "a", 1)]
    assert checks.bound_twice(once) == []
    assert len(checks.bound_twice([*once, bound("p", "b", 2)])) == 1


def test_a_pod_that_is_announced_twice() -> None:
    once = [Announced(at=1, uid="p", name="p.1"), Announced(at=2, uid="p", name="p.1")]  # the same Event, counted on
    assert checks.bound_twice(once) == []
    assert len(checks.bound_twice([*once, Announced(at=3, uid="p", name="p.2")])) == 1


def sent(uid: str, name: str, at: float, status: int = 201) -> BindingSent:
    return BindingSent(at=at, uid=uid, node=name, status=status, answered_at=at + 0.1)


def test_a_binding_that_is_sent_although_the_pod_has_another_node() -> None:
    assert len(checks.bound_twice([sent("p", "a", 1), sent("p", "b", 2, 409)])) == 1
    assert checks.bound_twice([sent("p", "a", 1), sent("p", "a", 2, 409)]) == []  # the answer had been lost
    assert checks.bound_twice([sent("p", "a", 1, 500), sent("p", "b", 2)]) == []
    assert checks.bound_twice([sent("p", "a", 1), sent("p", "b", 1.05, 409)]) == []  # its answer was still to come


# --- over capacity ---


def test_one_pod_more_than_the_node_can_take() -> None:
    world = [*node("a", full=2.0), pod("p"), pod("q"), bound("p", "a", 1), bound("q", "a", 2)]
    assert checks.over_capacity(world) == []
    assert len(checks.over_capacity([*world, pod("r"), bound("r", "a", 3)])) == 1
    assert checks.over_capacity([*world, Gone(at=2.5, uid="p"), pod("r"), bound("r", "a", 3)]) == []


def test_a_pod_counts_as_its_units_and_while_it_is_leaving() -> None:
    world = [*node("a", full=2.0), pod("p", units=1.5), bound("p", "a", 1), Leaving(at=2, uid="p"), pod("q")]
    assert len(checks.over_capacity([*world, bound("q", "a", 3)])) == 1


def test_other_peoples_pods_count_once_they_must_have_been_seen() -> None:
    theirs = [*node("a", full=2.0), pod("x", ours=False), pod("y", ours=False), bound("x", "a", 100)]
    theirs += [bound("y", "a", 100), pod("p")]
    assert checks.over_capacity([*theirs, bound("p", "a", 101)]) == []
    assert len(checks.over_capacity([*theirs, bound("p", "a", 104)])) == 1
    assert checks.over_capacity(theirs) == []  # what they do themselves is not our fault


def test_in_a_fault_other_peoples_pods_may_be_unknown_and_ours_may_not() -> None:
    fault = FaultBegan(at=50, number=1, kind="watches-cut")
    theirs = [*node("a", full=1.0), fault, pod("x", ours=False), bound("x", "a", 60), pod("p")]
    assert checks.over_capacity([*theirs, bound("p", "a", 70)]) == []
    ended = [*theirs, FaultEnded(at=70, number=1)]
    assert checks.over_capacity([*ended, bound("p", "a", 80)]) == []
    assert len(checks.over_capacity([*ended, bound("p", "a", 86)])) == 1
    ours = [*node("a", full=1.0), fault, pod("q"), bound("q", "a", 60), pod("p"), bound("p", "a", 61)]
    assert len(checks.over_capacity(ours)) == 1


def test_a_silent_node_can_take_no_more_than_before() -> None:
    world = [*node("a", full=1.0), pod("p"), pod("q"), bound("p", "a", 1), Silenced(at=2, node="a")]
    assert len(checks.over_capacity([*world, bound("q", "a", 3)])) == 1


# --- victims ---


def full_nodes() -> list[Event]:
    """Two nodes of four cores with four pods each, and one that needs two cores."""
    history: list[Event] = [Renewed(at=0, holder="one"), *node("a"), *node("b")]
    for name in ("a", "b"):
        for i in range(4):
            history += [pod(f"{name}{i}", cpu=1000), bound(f"{name}{i}", name, 1)]
    return [*history, pod("high", at=5, priority=1000, cpu=2000)]


def evicted(uid: str, at: float, by: str = "high", told: bool = True) -> list[Event]:
    said: list[Event] = [Preempted(at=at + 1, uid=uid, preemptor=by)] if told else []
    return [Evicted(at=at, uid=uid), Leaving(at=at + 0.1, uid=uid), *said]


def nominated(at: float, name: str = "a", uid: str = "high") -> Nominated:
    return Nominated(at=at, uid=uid, node=name)


def beyond(*more: Sequence[Event]) -> int:
    return len(checks.victims_beyond_need([*full_nodes(), *(event for part in more for event in part)])[0])


FIRST = [*evicted("a0", 10), *evicted("a1", 10.1), nominated(10.2)]


def test_two_victims_that_are_needed() -> None:
    assert beyond(FIRST) == 0


def test_a_second_node_while_the_first_would_hold_the_pod() -> None:
    assert beyond(FIRST, evicted("b0", 12), evicted("b1", 12.1), [nominated(12.2, "b")]) == 2


def test_a_third_victim_on_the_same_node() -> None:
    assert beyond(FIRST, evicted("a2", 12)) == 1


def test_the_same_victim_evicted_again_is_one_victim() -> None:
    assert beyond(FIRST, evicted("a0", 12)) == 0


def test_an_eviction_that_was_refused_at_first() -> None:
    assert beyond(evicted("a0", 10), [nominated(10.1)], evicted("a1", 25)) == 0


def test_an_eviction_that_was_begun_in_time_and_is_needless_when_it_succeeds() -> None:
    begun: list[Event] = [EvictionSent(at=10, uid="a0"), EvictionSent(at=10, uid="a1"), nominated(10.1)]
    others_left: list[Event] = [Leaving(at=11, uid="a2"), Leaving(at=11, uid="a3"), Gone(at=12, uid="a2")]
    assert beyond(begun, others_left, evicted("a0", 20), evicted("a1", 20)) == 0


def test_pods_that_leave_by_themselves_spare_the_others_once_that_must_have_been_seen() -> None:
    left: list[Event] = [nominated(9), Leaving(at=10, uid="a2"), Leaving(at=10, uid="a3"), Gone(at=10.5, uid="a3")]
    assert beyond(left, evicted("a0", 11)) == 0
    assert beyond(left, evicted("a0", 20)) == 1
    cut = [FaultBegan(at=9.5, number=1, kind="watches-cut"), FaultEnded(at=19, number=1)]
    assert beyond(left, cut, evicted("a0", 20)) == 0


def test_a_victim_that_was_chosen_and_never_evicted_is_none() -> None:
    assert beyond(FIRST, [EvictionSent(at=12, uid="b0")]) == 0


def test_a_second_node_because_the_first_is_gone() -> None:
    assert beyond(FIRST, [NodeDown(at=11, node="a")], evicted("b0", 12), evicted("b1", 12.1)) == 0


def test_a_node_that_comes_back_does_not_make_its_successor_needless() -> None:
    again = [NodeUp(at=12.05, node="a", cpu=4000)]
    assert beyond(FIRST, [NodeDown(at=11, node="a")], evicted("b0", 12), again, evicted("b1", 13)) == 0


def test_a_second_node_because_another_pod_took_the_room() -> None:
    stolen = [pod("x", at=11, ours=False, cpu=2000), bound("x", "a", 11)]
    assert beyond(FIRST, stolen, evicted("b0", 12), evicted("b1", 12.1)) == 0


def test_room_that_our_own_pods_of_lower_priority_took_was_not_theirs() -> None:
    own = [pod("x", at=11, cpu=2000), bound("x", "a", 11)]
    assert beyond(FIRST, own, evicted("b0", 12)) == 1


def test_a_second_node_because_a_more_important_pod_takes_the_first() -> None:
    """The scheduler knows of it before the API server does."""
    top = [pod("top", at=11, priority=2000, cpu=2000)]
    assert beyond(FIRST, top, evicted("b0", 12), evicted("b1", 12.1), [nominated(12.5, uid="top")]) == 0
    assert beyond(FIRST, top, evicted("b0", 12), evicted("b1", 12.1), [bound("top", "a", 12.5)]) == 0
    low = [pod("low", at=11, priority=10, cpu=2000), bound("low", "a", 12.5)]
    assert beyond(FIRST, low, evicted("b0", 12), evicted("b1", 12.1)) == 2


def test_a_new_leader_that_never_saw_the_nomination() -> None:
    untold = [*evicted("a0", 10), *evicted("a1", 10.1), Renewed(at=11, holder="two")]
    assert beyond(untold, evicted("b0", 12), evicted("b1", 12.1)) == 0
    assert beyond(FIRST, [Renewed(at=11, holder="two")], evicted("b0", 12), evicted("b1", 12.1)) == 2


def test_a_second_node_after_the_api_server_refused_the_binding_to_another() -> None:
    """As in kube-scheduler, a pod that gets a node gives its nomination up; the refusal is not the scheduler's."""
    refused = [BindingSent(at=11, uid="high", node="b", status=403, answered_at=11.1)]
    assert beyond(FIRST, refused, evicted("b0", 12), evicted("b1", 12.1), [nominated(12.2, "b")]) == 0


def test_a_victim_whose_binding_no_watch_delivered_is_judged_by_the_binding() -> None:
    unseen = [pod("x", at=11, cpu=1000), BindingSent(at=11, uid="x", node="b", status=201, answered_at=11.1)]
    found, unexplained = checks.victims_beyond_need([*full_nodes(), *FIRST, *unseen, *evicted("x", 12)])
    assert (len(found), unexplained) == (1, 0)


def test_victims_without_events_count_for_the_pod_nominated_there() -> None:
    untold = [*evicted("a0", 10, told=False), *evicted("a1", 10.1, told=False), nominated(10.2)]
    assert beyond(untold) == 0
    assert beyond(untold, evicted("b0", 12, told=False), [nominated(12.2, "b")]) == 1


def test_two_pods_that_need_room_on_one_node_each_have_their_victims() -> None:
    other = [pod("also", at=5, priority=1000, cpu=2000)]
    assert beyond(other, FIRST, evicted("a2", 11, "also"), evicted("a3", 11, "also"), [nominated(11, uid="also")]) == 0


def test_a_victim_without_a_preemptor_is_counted_apart() -> None:
    assert checks.victims_beyond_need([*full_nodes(), *evicted("a0", 10, told=False)]) == ([], 1)


# --- stalls ---


def renewals(until: float, start: float = 0.0) -> list[Event]:
    return [Renewed(at=start + 2.0 * i, holder="one") for i in range(int((until - start) / 2))]


def stall(*more: Event, until: float = 60.0, held: list[Event] | None = None) -> float:
    end = Renewed(at=until, holder="")
    waiting = [*node("a", cpu=8000), pod("p", cpu=1000)]
    return checks.longest_stall([*waiting, *(renewals(until) if held is None else held), *more, end], 15.0)[0]


def test_nothing_is_bound_though_a_pod_fits() -> None:
    assert stall() > 50
    assert stall(bound("p", "a", 30)) < 30


def test_another_binding_of_ours_ends_a_stall_and_one_of_others_does_not() -> None:
    assert 25 < stall(pod("q", at=1), bound("q", "a", 30)) < 32
    assert stall(pod("q", at=1, ours=False), bound("q", "a", 30)) > 50


def test_without_an_api_server_no_pod_counts_as_stalled() -> None:
    assert stall(ApiAnswers(at=5, yes=False), ApiAnswers(at=50, yes=True)) < 12


def test_without_a_lease_no_pod_counts_as_stalled() -> None:
    assert 10 < stall(held=renewals(10)) < 24


def test_while_bindings_are_rejected_no_pod_counts_as_stalled() -> None:
    refused = [FaultBegan(at=5, number=1, kind="bindings-refused", stops_bindings=True), FaultEnded(at=50, number=1)]
    assert stall(*refused) < 12
    assert stall(FaultBegan(at=5, number=1, kind="watches-cut"), FaultEnded(at=50, number=1)) > 50


def test_a_pod_that_fits_nowhere_does_not_count_as_stalled() -> None:
    assert stall(pod("big", cpu=9000), bound("p", "a", 1)) < 2
    assert stall(Silenced(at=1, node="a")) < 2
    assert stall(pod("p", cpu=1000, units=10.0)) < 2


# --- memory ---


def samples(grows: float, lives: str = "a-1", minutes: int = 30, start: int = 0) -> list[Event]:
    return [Memory(at=5.0 * i, process=lives, mb=100 + grows * i / 720) for i in range(12 * start, 12 * minutes)]


def growth(history: Sequence[Event]) -> float:
    found = checks.memory_growth(list(history))
    assert found is not None
    return found


def test_the_replica_that_grows_fastest_counts() -> None:
    assert abs(growth([*samples(3.0), *samples(40.0, "b-1")]) - 40) < 1


def test_the_first_minutes_and_single_jumps_do_not_count() -> None:
    warming = [Memory(at=float(at), process="a-1", mb=min(100.0, at / 5)) for at in range(0, 1800, 5)]
    assert growth(warming) == 0
    jump = [Memory(at=m.at, process="a-1", mb=m.mb + (m.at > 1500) * 2) for m in samples(0.0) if isinstance(m, Memory)]
    assert growth(jump) == 0


def test_a_short_look_does_not_take_noise_for_growth() -> None:
    assert growth(samples(8.0, minutes=16)) == 0  # 0.8 MB in all
    assert growth(samples(8.0, minutes=60)) > 7
    assert growth(samples(30.0, minutes=16)) > 25


def test_growth_of_processes_that_did_not_live_long_is_unknown() -> None:
    short = [*samples(0.0, "a-1", 12), *samples(500.0, "a-2", 13, 12)]
    assert checks.memory_growth([*samples(0.0, "a-1", 12), *samples(0.0, "a-2", 13, 12)]) is None
    assert checks.memory_growth(short) is None


# --- looks ---


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


# --- the table ---


def table(seen: Seen, whole: bool = True) -> dict[str, Row]:
    history: list[Event] = [pod("p"), *samples(0.0)]
    return {row.figure: row for row in rows(history, seen, (1, 1), 15.0, whole)}


def test_a_whole_run_needs_faults_looks_and_evictions() -> None:
    nothing = Seen([], [], [], 0)
    assert {name for name, row in table(nothing).items() if not row.good} == {
        "faults",
        "least_of_a_kind",
        "looks",
        "evictions",
    }
    assert all(row.good for row in table(nothing, whole=False).values())


def test_what_was_seen_beside_the_history_is_bad() -> None:
    bad = table(Seen(["soak/p"], ["soak/q: fits"], ["a-1 ended"], 1), whole=False)
    assert {name for name, row in bad.items() if not row.good} == {"lost", "waiting_that_fit", "crashes"}


# --- what the history is made from ---


def seen_pod(**changes: Any) -> dict[str, Any]:
    requests = {"resources": {"requests": {"cpu": "1500m"}}}
    return {
        "metadata": {"uid": "u", "name": "p", "namespace": "soak", "labels": {"carico.test/plain": "yes"}}
        | changes.pop("metadata", {}),
        "spec": {"schedulerName": "carico", "containers": [requests, requests]} | changes.pop("spec", {}),
        "status": {"phase": "Pending"} | changes,
    }


def test_the_observer_writes_down_the_way_of_a_pod() -> None:
    recorder = Recorder()
    observer = Observer(None, recorder)  # type: ignore[arg-type]
    observer.pod("ADDED", seen_pod())
    observer.pod("MODIFIED", seen_pod(nominatedNodeName="a"))
    observer.pod("MODIFIED", seen_pod(spec={"nodeName": "a"}))
    observer.pod("MODIFIED", seen_pod(spec={"nodeName": "a"}, phase="Running"))
    leaving = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    observer.pod("MODIFIED", seen_pod(spec={"nodeName": "a"}, phase="Running", metadata=leaving))
    observer.pod("DELETED", seen_pod(spec={"nodeName": "a"}, phase="Running", metadata=leaving))
    kinds = [type(event).__name__ for event in recorder.history]
    assert kinds == ["PodSeen", "Nominated", "Bound", "Started", "Leaving", "Gone"]
    seen = recorder.history[0]
    assert isinstance(seen, PodSeen)
    assert (seen.cpu, seen.ours, seen.plain) == (3000, True, True)
    assert not recorder.state.pods
    assert not observer.objects


def test_the_observer_sees_a_changed_number_of_units() -> None:
    recorder = Recorder()
    observer = Observer(None, recorder)  # type: ignore[arg-type]
    observer.pod("ADDED", seen_pod(metadata={"annotations": {"carico.dev/units": "lots"}}))
    observer.pod("MODIFIED", seen_pod(metadata={"annotations": {"carico.dev/units": "0.5"}}))
    assert [event.units for event in recorder.history if isinstance(event, PodSeen)] == [1.0, 0.5]


def test_null_takes_the_place_of_what_is_empty_and_of_nothing_else() -> None:
    obj = seen_pod(spec={"nodeSelector": {"pool": "open"}})
    line = json.dumps({"type": "MODIFIED", "object": obj}).encode()
    changed = json.loads(objects.with_nulls("/api/v1/pods?watch=1", line))["object"]
    assert changed["spec"]["nodeSelector"] == {"pool": "open"}
    assert changed["spec"]["volumes"] is None
    assert changed["metadata"]["finalizers"] is None
    assert objects.with_nulls("/api/v1/services?watch=1", line) == line


def test_a_forging_agent_keeps_its_victims() -> None:
    changer = objects.TypeChanger(random.Random(1), 1.0)
    line = json.dumps({"type": "MODIFIED", "object": seen_pod()}).encode()
    assert changer("/api/v1/pods?watch=1", line) != line
    assert changer.victims == {"/api/v1/namespaces/soak/pods/p"}
    deleted = json.dumps({"type": "DELETED", "object": seen_pod()}).encode()
    assert changer("/api/v1/pods?watch=1", deleted) == deleted
