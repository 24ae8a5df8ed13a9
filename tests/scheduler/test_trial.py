"""Trials and holds: what they leave is what was there, and the ledger equals one that is built afresh."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carico.errors import CaricoError
from carico.scheduler.cache.ledger import Ledger
from carico.scheduler.cache.room import LEFT, PODS
from carico.scheduler.cache.rows import RowIndex
from carico.scheduler.cache.trial import Trial
from carico.scheduler.cluster_cache import ledger_differences
from carico.scheduler.framework.contract import Cycle
from carico.testing import make_pod
from harness.scheduler.offline import World

NODES = {"a": 3.0, "b": 3.0, "c": 2.0}


def trial_of(world: World) -> Trial:
    parts = world.parts
    return Trial(parts.snapshot, parts.ledger, parts.classes.claim, world.clock.monotonic())


def state(world: World) -> Any:
    """All that scheduling depends on. Orders of dictionaries count where they decide between equals."""
    snapshot, ledger = world.parts.snapshot, world.ledger
    columns = {name: getattr(ledger, name).tolist() for name in (*PODS, *LEFT)}
    accounts = {
        node: (list(account.pods), copy.deepcopy(account.reserved), copy.deepcopy(account.pending))
        for node, account in ledger.accounts()
    }
    pods = {uid: (info.pod.key, row) for uid, (info, row) in snapshot.pods.items()}
    free = {name: snapshot.unrequested(name).tolist() for name in ("cpu", "pods", "example.com/gpu")}
    journals = snapshot.pod_changes.mark, snapshot.node_changes.mark
    entries = {uid: (entry.node, entry.probe) for uid in pods if (entry := ledger.entry(uid)) is not None}
    return (
        columns, accounts, pods, [list(on) for on in snapshot.on], free, journals, entries, set(ledger.touched),
        len(ledger._starts), sorted(map(str, ledger.probes)), dict(snapshot.priorities), dict(snapshot.tried_rows),
        world.queue.counts(),
    )  # fmt: skip


STEP = st.tuples(
    st.sampled_from(["place", "move", "remove", "undo"]), st.integers(0, 5), st.sampled_from(sorted(NODES))
)


@settings(max_examples=60, deadline=None)
@given(st.lists(STEP, max_size=12), st.integers(0, 4))
def test_a_trial_leaves_everything_as_it_was(steps: list[tuple[str, int, str]], bound: int) -> None:
    world = World(NODES)
    for number in range(bound):
        world.see(make_pod(f"b{number}", node="abc"[number % 3], cpu="300m", priority=number % 2))
    world.refuse(make_pod("waits", cpu="100"))
    before, fits = state(world), feasible(world)
    with trial_of(world) as trial:
        marks = [(trial.mark(), before)]
        for what, number, node in steps:
            uid = f"uid-t{number}" if what == "place" else f"uid-b{number}"
            if what == "place" and uid not in world.parts.snapshot.pods:
                info = world.parts.snapshot.templates.info(make_pod(f"t{number}", cpu="700m", priority=number))
                trial.place(info, node)
            elif what in ("move", "remove") and uid in world.parts.snapshot.pods:
                trial.move(uid, node) if what == "move" else trial.remove(uid)
            elif what == "undo":
                mark, then = marks.pop() if len(marks) > 1 else marks[0]
                trial.undo(mark)
                assert state(world) == then
            if number % 2:
                marks.append((trial.mark(), state(world)))
            assert feasible(world) == afresh(world)
            world.ledger.validate()
    assert state(world) == before
    assert feasible(world) == fits == afresh(world)
    world.ledger.validate()


def feasible(world: World, runner: Any = None) -> set[str]:
    """Where another pod fits, by the profile's cached verdicts, or by those of another runner."""
    parts = world.parts
    cycle = Cycle(parts.snapshot.templates.info(make_pod("next", cpu="6500m")), parts.snapshot)
    found = (runner or parts.profiles["carico"].feasible).run(cycle)
    return {parts.snapshot.name(int(row)) for row in found.rows}


def afresh(world: World) -> set[str]:
    profile = world.parts.profiles["carico"]
    return feasible(world, type(profile.feasible)(profile.plugins))


def test_a_trial_wakes_up_no_pod_and_what_it_undid_is_scheduled_as_before() -> None:
    world = World({"a": 1.0})
    world.see(make_pod("first", node="a"))
    world.refuse(make_pod("waits"))
    with trial_of(world) as trial:
        trial.remove("uid-first")
        assert world.place("waits") == "waiting"
    world.parts.cluster.tick()
    assert world.place("waits") == "waiting"
    world.see(None, next(iter(world.seen)))
    world.report("a", 1.0)
    assert world.place("waits") in ("active", "backoff")


def test_what_a_trial_rejects_is_said() -> None:
    world = World({"a": 4.0})
    world.see(make_pod("there", node="a"))
    known = world.parts.snapshot.pods["uid-there"][0]
    with trial_of(world) as trial:
        with pytest.raises(CaricoError, match="has a node already"):
            trial.place(known, "a")
        with pytest.raises(CaricoError, match="'nowhere'"):
            trial.place(world.parts.snapshot.templates.info(make_pod("p")), "nowhere")
        with pytest.raises(CaricoError, match="in progress"), trial_of(world):
            pass


def test_a_hold_takes_room_until_it_ends_and_then_wakes_the_pod_that_waits() -> None:
    world = World({"a": 1.0})
    claim = world.parts.classes.claim(world.parts.snapshot.templates.info(make_pod("later")))
    now = world.clock.monotonic()
    world.ledger.hold("job-7", "a", claim, now + 30, now)
    world.refuse(make_pod("waits"))
    rebuilt = Ledger(RowIndex(), world.parts.classes.charge, validate=True)
    rebuilt.node_added("a")
    account = world.ledger.account("a")
    assert account is not None
    assert account.report is not None
    rebuilt.report(account.report, now)
    assert ledger_differences(world.ledger, rebuilt) != []
    for hold in world.ledger.holds():
        rebuilt.hold(hold.name, hold.node, hold.claim, hold.until, now)
    assert ledger_differences(world.ledger, rebuilt) == []
    world.clock.advance(29)
    world.report("a", 1.0)
    world.cluster.tick()
    assert (world.place("waits"), next(world.ledger.holds()).name) == ("waiting", "job-7")
    world.clock.advance(1)
    world.cluster.tick()
    assert (world.place("waits"), list(world.ledger.holds())) == ("active", [])
    assert world.drain() == ["waits"]


def test_a_hold_is_replaced_by_name_and_released_before_its_time() -> None:
    world = World({"a": 2.0, "b": 2.0})
    claim = world.parts.classes.claim(world.parts.snapshot.templates.info(make_pod("later")))
    now = world.clock.monotonic()
    world.ledger.hold("x", "a", claim, now + 10, now)
    world.ledger.hold("x", "b", claim, now + 60, now)
    assert (world.free("a"), world.free("b")) == (2.0, 1.0)
    world.clock.advance(11)
    world.cluster.tick()
    assert world.free("b") == 1.0  # the end of the one before does not end it
    world.ledger.release_hold("x")
    world.ledger.release_hold("x")
    assert world.free("b") == 2.0
    assert np.all(world.ledger.unmeasured == 0)
