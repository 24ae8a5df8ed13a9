"""What is sent to the page, with a manual clock and without a browser."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from typing import Any

import numpy as np

from carico.http.message import Request
from carico.scheduler.assembly import Components, assemble
from carico.scheduler.cycle.decision_log import DecisionRecord
from carico.scheduler.cycle.scheduling_cycle import decide
from carico.scheduler.http.dashboard import publisher as live_module
from carico.scheduler.http.dashboard import site
from carico.scheduler.http.dashboard import sse_clients as readers_module
from carico.scheduler.http.dashboard.columns import CHURN, CORDONED, FRESH, REPORTED
from carico.scheduler.http.dashboard.publisher import Publisher, ReplicaStatus
from carico.settings import SchedulerSettings
from carico.testing import ManualClock, make_node, make_pod, make_report
from carico.types import Mode, NodeReport


class World:
    """The parts of a scheduler, a page on top, and one client that records what it receives."""

    def __init__(self, nodes: int = 2) -> None:
        self.clock = ManualClock(now=100.0)
        self.parts: Components = assemble(SchedulerSettings(), self.clock, None)
        self.standing = ReplicaStatus("me", True, "me", True, 0)
        self.live = Publisher(self.parts, self.clock, lambda: self.standing)
        for i in range(nodes):
            self.parts.cluster.node_changed(None, make_node(f"n{i}"))
        self.received: list[dict[str, Any]] = []

    def report(self, node: str, capacity: float, **changes: Any) -> NodeReport:
        report = make_report(node, capacity, **changes)
        self.parts.ledger.report(report, self.clock.monotonic())
        self.live.columns.record(report)
        self.parts.cluster.capacity_changed()
        return report

    def listen(self) -> None:
        writer = FakeWriter(self.received)
        reader = readers_module.SseClient(writer, readers_module.event("full", self.live.full()), 0.0)  # type: ignore[arg-type]
        self.live.readers._readers.add(reader)

    def tick(self, seconds: float = live_module.TICK) -> dict[str, Any]:
        """The next message; empty when there is none."""
        self.clock.advance(seconds)
        known = len(self.received)
        self.live.tick()
        return self.received[-1] if len(self.received) > known else {}


class FakeWriter:
    """A browser: takes everything at once, or, if it is `slow`, nothing at all."""

    def __init__(self, received: list[dict[str, Any]], slow: bool = False) -> None:
        self.received, self.slow, self.unsent, self.aborted = received, slow, 0, False
        self.transport = self

    def write(self, data: bytes) -> None:
        if self.slow:
            self.unsent += len(data)
        else:
            self.received.append(json.loads(data.split(b"data: ", 1)[1]))

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def is_closing(self) -> bool:
        return self.aborted

    def abort(self) -> None:
        self.aborted = True


def names(message: dict[str, Any]) -> list[str]:
    return [row[1] for row in message.get("nodes", [])]


def test_a_reader_gets_everything_and_then_what_changed() -> None:
    world = World()
    world.report("n0", 8.0, usage=(0.25, 0.5))
    world.listen()
    [full] = world.received
    state = FRESH + REPORTED
    assert full["nodes"] == [[0, "n0", state, 8.0, 0.0, 0, 0, 0.25, 0.5], [1, "n1", 0, 0.0, 0.0, 0, 0, None, None]]
    assert full["dimensions"] == ["cpu", "memory"]
    assert full["summary"] | {"rate": 0} == {
        "nodes": 2, "stale": 1, "cordoned": 0, "pods": 0, "capacity": 8.0, "reserved": 0.0, "free": 8.0, "waiting": 0,
        "bound": 0, "rate": 0,
    }  # fmt: skip
    world.tick()
    world.report("n1", 3.0, usage=(0.9, 0.1))
    message = world.tick()
    assert names(message) == ["n1"]
    assert message["summary"]["capacity"] == 11.0
    assert world.tick() == {}  # nothing changed, nothing is sent


def test_small_moves_are_not_sent_but_add_up() -> None:
    world = World(1)
    world.report("n0", 8.0, usage=(0.250, 0.5))
    world.listen()
    world.tick()
    told = []
    for i in range(1, 9):
        world.report("n0", 8.0, usage=(0.250 + 0.002 * i, 0.5))
        told += [row[7] for row in world.tick().get("nodes", [])]
    assert told == [0.256, 0.262]  # every third step of 0.002 is half a percent


def test_a_quiet_scheduler_still_gives_a_sign_of_life() -> None:
    world = World()
    world.listen()
    world.tick()
    received = [bool(world.tick()) for _ in range(20)]
    assert received.count(True) == 2  # in ten seconds


def test_nodes_come_go_and_change_names_within_one_row() -> None:
    world = World()
    world.report("n1", 5.0)
    world.listen()
    world.tick()
    world.parts.cluster.node_changed(make_node("n1"), None)
    world.parts.ledger.mark_disconnected("n1")
    world.parts.cluster.node_changed(None, make_node("other"))
    message = world.tick()
    assert [row[:4] for row in message["nodes"]] == [[1, "other", 0, 0.0]]
    assert world.live.node("other")["history"]["capacity"] == [None]  # type: ignore[index]
    assert world.live.node("n1") is None
    world.parts.cluster.node_changed(make_node("other"), None)
    assert world.tick()["gone"] == [1]


def test_states() -> None:
    world = World(1)
    old, new = make_node("n0"), make_node("n0", spec={"unschedulable": True})
    world.parts.cluster.node_changed(old, new)
    report = make_report("n0", 4.0)
    churning = dataclasses.replace(report, estimate=dataclasses.replace(report.estimate, mode=Mode.CHURN))
    world.parts.ledger.report(churning, world.clock.monotonic())
    world.live.columns.record(churning)
    world.listen()
    assert world.received[0]["nodes"][0][2] == FRESH + REPORTED + CHURN + CORDONED
    world.tick()
    world.clock.advance(60.0)
    assert world.tick()["nodes"][0][2] == REPORTED + CHURN + CORDONED  # stale without any event of its own


def test_invented_dimensions_take_no_columns() -> None:
    world = World(2)
    report = make_report("n0", 4.0)
    names = ("constructor", *(f"invented_{i}" for i in range(8)), "cpu")
    usage = (*[0.9] * 9, 0.25)
    liar = dataclasses.replace(report, dimensions=names, estimate=dataclasses.replace(report.estimate, usage=usage))
    world.live.columns.record(liar)
    world.report("n1", 4.0)
    world.listen()
    assert world.received[0]["dimensions"] == ["cpu", "memory"]
    assert [row[7] for row in world.received[0]["nodes"]] == [0.25, report.estimate.usage[0]]


def test_who_waits_and_why_and_what_was_decided() -> None:
    world = World(1)
    world.report("n0", 1.2)
    for name in ("fits", "waits"):
        world.parts.cluster.pod_changed(None, make_pod(name, spec={"schedulerName": "carico"}))
    profile = world.parts.profiles["carico"]
    for _ in range(2):
        queued = world.parts.queue.pop(world.clock.monotonic())
        assert queued is not None
        decision = decide(profile, world.parts.cluster, queued.info, np.random.default_rng(1))
        pod = queued.info.pod
        result = "scheduled" if decision.node else "unschedulable"
        world.parts.ring.add(
            DecisionRecord(1.0, pod.key, pod.uid, "carico", 1, decision.node, result, reasons=decision.message)
        )
        if decision.refusal is not None:
            world.parts.queue.fail(queued, decision.refusal, world.clock.monotonic())
    world.listen()
    [full] = world.received
    assert [(d["pod"], d["node"]) for d in full["decisions"]] == [("default/waits", ""), ("default/fits", "n0")]
    assert "had no free capacity" in full["decisions"][0]["why"]
    [row] = [pod for pod in full["queue"]["pods"] if pod["place"] == "waiting"]
    assert (row["pod"], row["by"]) == ("default/waits", ["Capacity"])
    assert full["queue"]["blocked"] == [["Capacity", 1]]
    world.tick()
    world.parts.ring.add(DecisionRecord(2.0, "a/b", "u", "carico", 1, "n0"))
    assert [d["pod"] for d in world.tick()["decisions"]] == ["a/b"]


def test_history_keeps_ten_minutes_and_leaves_gaps_where_a_node_was_stale() -> None:
    world = World(1)
    for step in range(260):
        if not 100 <= step < 150:
            world.report("n0", 10.0 + step, usage=(0.5, 0.25))
        world.tick(3.0)
    found = world.live.node("n0")
    assert found is not None
    history = found["history"]
    assert len(history["at"]) == 200
    assert history["capacity"][-1] == 10.0 + 259
    assert history["at"][-1] - history["at"][0] == 199 * 3.0
    stale = [i for i, value in enumerate(history["capacity"]) if value is None]
    # 12.5 s after the last report, which step 99 brought, a node is stale: step 103 looks 15 s after it. 60 fell out.
    assert stale == list(range(103 - 60, 150 - 60))
    assert history["usage"][0][-1] == 0.5


def test_the_history_of_5000_nodes_takes_ten_megabytes() -> None:
    world = World(5000)
    for i in range(5000):
        world.report(f"n{i}", 8.0)
    world.tick()
    assert world.live.history.nbytes <= 10_000_000


def test_nothing_secret_leaves() -> None:
    world = World(1)
    world.report("n0", 5.0)
    container = {"name": "c", "image": "i", "env": [{"name": "KEY", "value": "s3cret-env"}]}
    spec = {"schedulerName": "carico", "containers": [container]}
    annotations = {"token": "s3cret-annotation"}
    pods = {"here": {"node": "n0"}, "waits": {}}
    for name, place in pods.items():
        pod = make_pod(name, spec=spec, annotations=annotations, labels={"app": "web", "l": "s3cret-label"}, **place)  # type: ignore[arg-type]
        world.parts.cluster.pod_changed(None, pod)
    world.listen()
    world.tick()
    told = json.dumps(world.received) + json.dumps(world.live.node("n0"))
    assert "default/here" in told
    assert "s3cret" not in told


def test_slow_readers_are_dropped_and_the_others_go_on() -> None:
    world = World(1)
    world.listen()
    stuck = FakeWriter([], slow=True)
    reader = readers_module.SseClient(stuck, b"x", world.clock.monotonic())  # type: ignore[arg-type]
    world.live.readers._readers.add(reader)
    for i in range(40):
        world.report("n0", float(i))
        assert names(world.tick()) == ["n0"]
    assert stuck.aborted
    assert reader.dropped.is_set()
    assert (len(world.live.readers), world.live.readers.dropped) == (1, 1)


def test_readers_are_bounded() -> None:
    async def scenario() -> int:
        world = World(1)
        tasks = [
            asyncio.create_task(world.live.follow(FakeWriter([])))  # type: ignore[arg-type]
            for _ in range(readers_module.MOST)
        ]
        await asyncio.sleep(0)
        answer = site.routes(world.live)["/page/live"].answer(Request("GET", {}, b""))
        for task in tasks:
            task.cancel()
        return int(answer.status)  # type: ignore[union-attr]

    assert asyncio.run(scenario()) == 503
