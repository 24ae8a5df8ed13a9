"""The soak's figures can come out badly: each gets a made-up history with a fault in it, and the same without."""

from __future__ import annotations

from collections.abc import Sequence

from harness.soak import checks
from harness.soak.history import (
    Announced,
    ApiAnswers,
    BindingSent,
    Event,
    FaultBegan,
    FaultEnded,
    Gone,
    Leaving,
    Memory,
    Renewed,
    Silenced,
)
from harness.soak.made_up import bound, node, pod
from harness.soak.report import Row, Seen, rows

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
