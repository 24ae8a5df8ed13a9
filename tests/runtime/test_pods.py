"""The table of pods, fed with literal events."""

from __future__ import annotations

import dataclasses
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from carico.pod_class import class_of
from carico.runtime.pods import (
    CREATING_AT_MOST,
    FINISHED_FOR,
    STARTING_AT_MOST,
    TAKING_DOWN_AT_MOST,
    Member,
    PodListing,
    PodTable,
    Sandbox,
    WorkloadPod,
)
from carico.settings import RuntimeSettings
from carico.types import ClassKey, PodCount

SETTINGS = RuntimeSettings(churn_after_start=0.1, churn_after_delete=0.3, settle=2.0)


def table_with_pod(uid: str = "u", workload: bool = True) -> PodTable:
    """A pod whose sandbox started at 0.0 and whose container started at 0.2."""
    table = PodTable(SETTINGS)
    table.add_sandbox("box", Sandbox(uid, workload))
    table.started("box", 0.0)
    table.add_container("one", "box")
    table.started("one", 0.2)
    return table


def test_an_empty_table_counts_nothing_and_is_quiet() -> None:
    table = PodTable(SETTINGS)
    assert table.count(0.0) == PodCount(0, False, 0)
    assert table.counted() == table.finished(0.0) == frozenset()


def test_a_pod_is_churn_then_unsettled_then_settled() -> None:
    table = table_with_pod()
    assert table.count(0.25) == PodCount(1, churn=True, unsettled=1)
    assert table.count(0.31) == PodCount(1, churn=False, unsettled=1)
    assert table.count(2.21) == PodCount(1, churn=False, unsettled=0)


def test_a_pod_whose_containers_have_all_ended_has_no_load_to_come() -> None:
    table = table_with_pod()
    table.exited("one", 10.0)
    assert table.count(10.1) == PodCount(0, churn=True, unsettled=0)
    assert table.counted() == {"u"}
    assert not table.finished(10.1)


def test_a_pod_that_cannot_pull_its_image_is_no_load_after_a_while() -> None:
    table = PodTable(SETTINGS)
    table.add_sandbox("box", Sandbox("u", True))
    table.started("box", 0.0)
    assert table.count(STARTING_AT_MOST - 0.1) == PodCount(1, churn=False, unsettled=1)
    assert table.count(STARTING_AT_MOST) == PodCount(0, churn=False, unsettled=0)
    assert table.counted() == {"u"}
    table.add_container("one", "box")
    table.started("one", 100.0)
    assert table.count(101.0) == PodCount(1, churn=False, unsettled=1)
    assert table.count(102.0) == PodCount(1, churn=False, unsettled=0)


def test_a_crash_looping_pod_counts_while_it_runs_only() -> None:
    table = table_with_pod()
    for start in (10.0, 60.0, 360.0):
        table.exited("one", start - 8.0)
        assert table.count(start - 1.0) == PodCount(0, churn=False, unsettled=0)
        table.started("one", start)
        assert table.count(start + 0.2) == PodCount(1, churn=False, unsettled=1)


def test_a_container_that_is_being_created_after_an_init_container_is_load_to_come() -> None:
    table = table_with_pod()
    table.exited("one", 10.0)
    table.creating("two", 10.3)
    table.add_container("two", "box")
    assert table.count(10.4) == PodCount(1, churn=True, unsettled=1)
    assert table.count(10.3 + STARTING_AT_MOST).running == 0  # its start failed, and no event reported that


def test_workload_has_starts_and_classes() -> None:
    table = table_with_pod()
    before = table.workload()
    assert before == {"u": WorkloadPod("u", None, started=0.2, running=True, cgroup=None)}
    table.count(50.0)
    assert table.workload() is before
    key = ClassKey("n", "n/web", "5d")
    table.add_sandbox("box", Sandbox("u", True, "n", key, "/kubepods/podu"))
    table.exited("one", 60.0)
    table.add_container("two", "box")
    assert table.workload()["u"] == WorkloadPod("u", key, started=0.2, running=False, cgroup="/kubepods/podu")
    table.started("two", 70.0)
    assert table.workload()["u"] == WorkloadPod("u", key, started=0.2, running=True, cgroup="/kubepods/podu")
    assert before["u"].running  # a mapping that was given is not changed later
    table.exited("box", 80.0)
    assert table.workload() == {}


def test_a_bare_pod_gets_its_class_when_its_images_are_known() -> None:
    table = PodTable(SETTINGS)
    table.add_sandbox("box", Sandbox("u", True, "n"))
    table.started("box", 0.0)
    assert table.workload()["u"].key is None
    table.add_container("one", "box", "docker.io/library/busybox:1.36")
    table.add_container("two", "box", "tool:2")
    table.removed("two", 1.0)  # an ended init container that was cleared away was one of its containers
    assert table.workload()["u"].key == class_of("n", "p", {}, {}, ["tool:2", "busybox:1.36"])


def test_the_scheduler_sends_classes_where_no_labels_are_seen() -> None:
    """As the cgroup source, which counts DaemonSet and static pods as workload until it knows their class."""
    table = PodTable(SETTINGS)
    boxes = {id: Sandbox(uid, True) for id, uid in (("a", "web"), ("b", "daemon"), ("c", "new"))}
    table.replace_all(
        PodListing(
            boxes,
            {f"{id}1": Member(id) for id in boxes},
            {"a1": 1.0, "b1": 1.0, "c1": 1.0, "a": 1.0, "b": 1.0, "c": 1.0},
        ),
        9.0,
    )
    key = ClassKey("n", "n/web")
    table.set_classes({"web": key, "daemon": None, "long gone": key})
    assert {uid: pod.key for uid, pod in table.workload().items()} == {"web": key, "new": None}
    assert table.count(9.0).running == 2
    assert table.counted() == {"web", "daemon", "new"}
    table.removed("b", 10.0)
    table.add_sandbox("b", Sandbox("daemon", True))  # no event named this one
    table.started("b", 11.0)
    assert "daemon" in table.workload()


def test_what_labels_say_is_not_overruled() -> None:
    key = ClassKey("n", "n/web")
    table = PodTable(SETTINGS)
    table.add_sandbox("box", Sandbox("u", True, "n", key))
    table.started("box", 0.0)
    table.set_classes({"u": ClassKey("n", "n/other")})
    assert table.workload()["u"].key == key
    table.set_classes({"u": None})
    assert table.workload()["u"].key == key


def test_a_restarted_container_unsettles_its_pod_again() -> None:
    table = table_with_pod()
    table.add_container("two", "box")
    table.started("two", 50.0)
    assert table.count(51.0).unsettled == 1
    assert table.count(52.1).unsettled == 0


def test_the_runtime_is_busy_from_creation_to_start() -> None:
    table = PodTable(SETTINGS)
    table.creating("box", 5.0)
    assert table.count(8.0).churn
    table.started("box", 8.0)
    assert table.count(8.05).churn
    assert not table.count(8.11).churn


def test_a_creation_that_never_ends_is_busy_for_a_while_only() -> None:
    table = PodTable(SETTINGS)
    table.creating("box", 5.0)
    assert table.count(5.0 + CREATING_AT_MOST - 0.1).churn
    assert not table.count(5.0 + CREATING_AT_MOST).churn


def test_the_runtime_is_busy_from_exit_until_a_moment_after_the_removal() -> None:
    table = table_with_pod()
    table.exited("one", 10.0)
    assert table.count(11.5).churn
    table.stopped("one", 11.5)
    assert table.count(11.79).churn
    assert not table.count(11.81).churn
    table.removed("one", 20.0)
    assert table.count(20.29).churn


def test_a_removal_without_its_last_event_is_busy_for_a_while_only() -> None:
    table = table_with_pod()
    table.exited("box", 10.0)
    assert table.count(10.0 + TAKING_DOWN_AT_MOST - 0.1).churn
    assert not table.count(10.0 + TAKING_DOWN_AT_MOST).churn


def test_a_stopped_sandbox_lingers_and_does_not_count() -> None:
    table = table_with_pod()
    table.exited("box", 10.0)
    table.stopped("box", 10.1)
    assert table.count(11.0).running == 0
    assert table.counted() == frozenset()


def test_an_ended_pod_is_finished_for_a_minute() -> None:
    table = table_with_pod()
    table.exited("box", 10.0)
    table.removed("box", 15.0)
    assert table.finished(10.0 + FINISHED_FOR - 0.1) == {"u"}
    assert table.finished(10.0 + FINISHED_FOR) == frozenset()


def test_a_pod_with_a_new_sandbox_is_not_finished() -> None:
    table = table_with_pod()
    table.exited("box", 10.0)
    table.add_sandbox("box2", Sandbox("u", True))
    table.started("box2", 11.0)
    assert table.finished(12.0) == frozenset()
    assert table.count(12.0).running == 1


def test_daemonset_and_static_pods_are_counted_but_not_as_workload() -> None:
    table = table_with_pod(workload=False)
    assert table.count(1.0) == PodCount(0, False, 0)
    assert table.counted() == {"u"}


def test_what_a_container_is_may_be_known_after_it_started() -> None:
    table = PodTable(SETTINGS)
    table.started("one", 0.2)
    table.started("box", 0.0)
    table.add_container("one", "box")
    table.add_sandbox("box", Sandbox("u", True))
    assert table.count(2.21) == PodCount(1, False, 0)


def test_counted_is_the_same_object_until_it_changes() -> None:
    table = table_with_pod()
    before = table.counted()
    table.exited("one", 3.0)
    assert table.counted() is before
    table.exited("box", 3.0)
    assert table.counted() is not before


def test_the_first_listing_is_no_churn_and_knows_ages() -> None:
    table = PodTable(SETTINGS)
    table.replace_all(PodListing({"box": Sandbox("u", True)}, {"one": Member("box")}, {"box": 5.0, "one": 6.0}), 100.0)
    assert table.count(100.0) == PodCount(1, churn=False, unsettled=0)


def test_a_later_listing_has_what_was_missed() -> None:
    table = table_with_pod()
    table.replace_all(PodListing({"box": Sandbox("u", True)}, {"one": Member("box")}, {"box": 0.0, "one": 0.2}), 50.0)
    assert not table.count(50.0).churn
    table.replace_all(PodListing({"new": Sandbox("v", True)}, {}, {"new": 59.9}), 60.0)
    assert table.counted() == {"v"}
    assert table.finished(60.0) == {"u"}
    assert table.count(60.0) == PodCount(1, churn=True, unsettled=1)


def test_an_event_older_than_the_listing_does_not_make_a_container_younger() -> None:
    table = PodTable(SETTINGS)
    table.replace_all(PodListing({"box": Sandbox("u", True)}, {"one": Member("box")}, {"box": 5.0, "one": 6.0}), 100.0)
    table.started("one", 100.0)
    assert table.count(100.2).unsettled == 0


IDS = [f"{kind}{n}" for n in range(3) for kind in ("box", "con")]
EVENTS = ("creating", "is", "started", "exited", "stopped", "removed")
happenings = st.lists(st.tuples(st.sampled_from(EVENTS), st.sampled_from(IDS)), max_size=40)


def tell(table: PodTable, event: str, container: str, now: float) -> None:
    if event != "is":
        getattr(table, event)(container, now)
    elif container.startswith("box"):
        table.add_sandbox(container, Sandbox(f"uid-{container}", container != "box2"))
    else:
        table.add_container(container, container.replace("con", "box"))


def listing_of(alive: set[str]) -> PodListing:
    boxes = {id: Sandbox(f"uid-{id}", id != "box2") for id in IDS if id.startswith("box")}
    members = {id: Member(id.replace("con", "box")) for id in IDS if id.startswith("con")}
    return PodListing(boxes, members, dict.fromkeys(sorted(alive), 0.0))


def visible(table: PodTable, now: float) -> dict[str, Any]:
    return {"count": table.count(now), "counted": table.counted()}


@given(before=happenings, alive=st.sets(st.sampled_from(IDS)))
def test_events_before_a_listing_make_no_difference(before: list[tuple[str, str]], alive: set[str]) -> None:
    table, fresh = PodTable(SETTINGS), PodTable(SETTINGS)
    for step, (event, container) in enumerate(before):
        tell(table, event, container, step * 0.1)
    for one in (table, fresh):
        one.replace_all(listing_of(alive), 5.0)
    # Long enough for every window to close.
    assert visible(table, 100.0) == visible(fresh, 100.0)


@given(events=happenings, listed_after=st.integers(0, 40))
def test_events_that_the_listing_already_holds_do_no_harm(events: list[tuple[str, str]], listed_after: int) -> None:
    """A subscription starts before the listing: events before it are received although the listing includes them."""
    truth, late = PodTable(SETTINGS), PodTable(SETTINGS)
    alive: set[str] = set()
    for step, (event, container) in enumerate(events):
        if step < listed_after:
            alive = _after(alive, event, container)
    for table in (truth, late):
        table.replace_all(listing_of(alive if table is late else set()), 0.0)
        for step, (event, container) in enumerate(events):
            if event in ("started", "exited", "stopped"):
                tell(table, event, container, 1.0 + step * 0.1)
    assert visible(late, 100.0) == visible(truth, 100.0)


def _after(alive: set[str], event: str, container: str) -> set[str]:
    if event == "started":
        return alive | {container}
    return alive - {container} if event in ("exited", "stopped") else alive


@given(events=happenings)
def test_every_count_is_within_bounds_at_every_step(events: list[tuple[str, str]]) -> None:
    table = PodTable(dataclasses.replace(SETTINGS, settle=0.35))
    for step, (event, container) in enumerate(events):
        now = step * 0.1
        tell(table, event, container, now)
        count = table.count(now)
        assert 0 <= count.unsettled <= count.running <= len(table.counted())
        assert not table.counted() & table.finished(now)
