"""The soak's count of needless victims: made-up histories in which there are some, and none."""

from __future__ import annotations

from collections.abc import Sequence

from harness.soak import checks
from harness.soak.history import (
    BindingSent,
    Event,
    Evicted,
    EvictionSent,
    FaultBegan,
    FaultEnded,
    Gone,
    Leaving,
    NodeDown,
    NodeUp,
    Preempted,
    Renewed,
)
from harness.soak.made_up import bound, node, nominated, pod


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
