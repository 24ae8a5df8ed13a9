"""NodeCapacity objects: which are written and when, over time and through faults."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import unquote

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carico.kube.objects import Node
from carico.scheduler.assembly import assemble
from carico.scheduler.node_capacities.due import AT_ONCE, NOT_SERVED_PAUSE, RATE, refresh_after
from carico.scheduler.node_capacities.publisher import CapacityPublisher
from carico.settings import SchedulerSettings
from carico.testing import make_estimate, make_node, make_report
from carico.types import Mode
from harness.kube.scripted import Desk, Sent, says

COLLECTION = "/apis/carico.dev/v1alpha1/nodecapacities"
HEARTBEAT = 1000.0  # s: nodes become stale when the test says so
GiB = 2.0**30


class Objects:
    """The API server's part: stores objects with a status subresource, and deletes those whose Node is gone."""

    def __init__(self) -> None:
        self.stored: dict[str, dict[str, Any]] = {}
        self.served = True
        self.fault: Exception | None = None
        self.loses_responses = False

    async def answer(self, sent: Sent) -> bytes:
        if self.fault is not None:
            raise self.fault
        body = msgspec.json.encode(self._apply(sent))
        if self.loses_responses:
            raise ConnectionResetError
        return body

    def _apply(self, sent: Sent) -> dict[str, Any]:
        assert sent.path.startswith(COLLECTION)
        if not self.served:
            raise says(404)
        if sent.method == "POST":
            name = sent.body["metadata"]["name"]
            if name in self.stored:
                raise says(409)
            assert "status" not in sent.body, "the API server would drop it"
            self.stored[name] = sent.body
            return self.stored[name]
        assert sent.method == "PATCH"
        name = unquote(sent.path.removeprefix(f"{COLLECTION}/").removesuffix("/status"))
        if name not in self.stored:
            raise says(404)
        status = {key: value for key, value in sent.body["status"].items() if value is not None}
        self.stored[name] = self.stored[name] | {"status": status}
        return self.stored[name]

    def collect_garbage(self, uids: set[str]) -> None:
        for name, item in list(self.stored.items()):
            if not {owner["uid"] for owner in item["metadata"]["ownerReferences"]} & uids:
                del self.stored[name]

    def status(self, name: str) -> dict[str, Any]:
        status: dict[str, Any] = self.stored[name]["status"]
        return status


class World:
    def __init__(self) -> None:
        self.desk, self.objects = Desk(), Objects()
        self.desk.api.answer = self.objects.answer
        clock = self.desk.clock
        clock.advance(1000)
        settings = SchedulerSettings(heartbeat=HEARTBEAT)
        self.parts = assemble(settings, clock, None)
        self.publisher = self._publisher()
        self.nodes: dict[str, Node] = {}
        self.generation = 0

    def _publisher(self) -> CapacityPublisher:
        desk = self.desk
        return CapacityPublisher(self.parts.snapshot, self.parts.ledger, desk.client, desk.writer, desk.clock)

    def new_leader(self) -> None:
        self.publisher = self._publisher()

    def add(self, name: str) -> None:
        """A Node; one of this name that exists is deleted before."""
        self.remove(name)
        self.generation += 1
        plain = make_node(name)
        uid = f"{name}-{self.generation}"
        self.nodes[name] = msgspec.structs.replace(plain, metadata=msgspec.structs.replace(plain.metadata, uid=uid))
        self.parts.cluster.node_changed(None, self.nodes[name])

    def remove(self, name: str) -> None:
        if (node := self.nodes.pop(name, None)) is not None:
            self.parts.cluster.node_changed(node, None)

    def report(self, name: str, capacity: float, pods: int = 0, *, churn: bool = False) -> None:
        counted = [f"{name}-pod-{i}" for i in range(pods)]
        mode = Mode.CHURN if churn else Mode.SETTLED
        room = (capacity / 2, capacity * GiB)
        estimate = make_estimate(pods=pods, pod_capacity=capacity, room=room, mode=mode)
        report = make_report(name, capacity, counted, estimate=estimate, full=(8.0, 16 * GiB))
        self.parts.cluster.apply_report(report)

    async def seconds(self, count: int) -> None:
        """As the process does: a tick each second."""
        for _ in range(count):
            self.publisher.tick()
            await self.desk.clock.turn(1.0)

    async def minutes(self, count: int) -> None:
        """The same, in which next to nothing is due: with few ticks."""
        for _ in range(count):
            await self.seconds(2)
            self.desk.clock.advance(58.0)

    def wrong(self) -> list[str]:
        """Objects that are not what the ledger says, by a pod or in their state, and those that are missing."""
        ledger, now = self.parts.ledger, self.desk.clock.monotonic()
        found = [f"{name} is of no Node" for name in self.objects.stored.keys() - self.nodes.keys()]
        for name, node in self.nodes.items():
            item = self.objects.stored.get(name)
            if item is None or "status" not in item:
                found.append(f"{name} is missing")
                continue
            if [owner["uid"] for owner in item["metadata"]["ownerReferences"]] != [node.uid]:
                found.append(f"{name} is of another Node")
            account, status = ledger.account(name), item["status"]
            if account is None or account.report is None:
                found += [f"{name} was never reported: {status}"] * ("podCapacity" in status or not status["stale"])
                continue
            if abs(status["podCapacity"] - ledger.pod_capacity[account.row]) >= 1.06:  # it is rounded to 0.1
                found.append(f"{name} has {status['podCapacity']}")
            if (
                status["stale"] == ledger.is_fresh(account.row, now)
                or abs(status["pods"] - account.report.estimate.pods) >= 1
            ):
                found.append(f"{name} has {status}")
        return found


def run(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def whole() -> None:
        world = World()
        async with world.desk.at_work():
            await scenario(world)

    asyncio.run(whole())


def most_within(times: list[float], seconds: float) -> int:
    return max((bisect_left(times, start + seconds) - number for number, start in enumerate(times)), default=0)


# --- single rules ---


def test_an_object_belongs_to_its_node_and_shows_what_the_ledger_knows() -> None:
    async def scenario(world: World) -> None:
        world.add("n")
        world.report("n", 7.26, 3)
        await world.seconds(1)
        [owner] = world.objects.stored["n"]["metadata"]["ownerReferences"]
        assert owner == {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": world.nodes["n"].uid}
        status = world.objects.status("n")
        room = {"cpu": "3630m", "memory": "7434Mi"}
        times = {"sampledAt": "2023-11-14T22:13:20Z", "updatedAt": "2023-11-14T22:13:20Z"}
        shown = {"podCapacity": 7.3, "reserved": 0, "pods": 3, "mode": "Settled", "stale": False}
        assert {key: value for key, value in status.items() if key not in times} == shown | {"room": room}
        assert status.keys() >= times.keys()

    run(scenario)


def test_a_change_of_a_pod_or_of_the_state_is_written_and_a_smaller_one_is_not() -> None:
    async def scenario(world: World) -> None:
        world.add("n")
        world.report("n", 7.0, 3)
        await world.seconds(2)
        before = len(world.desk.api.sent)
        world.report("n", 7.9, 3)
        await world.seconds(5)
        assert len(world.desk.api.sent) == before
        changes: list[Callable[[], object]] = [
            lambda: world.report("n", 8.0, 3),
            lambda: world.report("n", 8.0, 4),
            lambda: world.report("n", 8.0, 4, churn=True),
            lambda: world.parts.ledger.mark_disconnected("n"),
        ]
        for number, change in enumerate(changes):
            change()
            await world.seconds(5)
            assert len(world.desk.api.sent) == before + number + 1
        assert world.objects.status("n")["stale"]

    run(scenario)


def test_an_unchanged_object_is_written_again_after_a_while_but_not_that_of_a_stale_node() -> None:
    async def scenario(world: World) -> None:
        for name in ("fresh", "stale"):
            world.add(name)
        world.report("fresh", 7.0)
        await world.seconds(3)
        before = len(world.desk.api.sent)
        world.report("fresh", 7.5)
        await world.minutes(int(refresh_after(2)) // 60 + 1)
        [again] = world.desk.api.sent[before:]
        assert again.path == f"{COLLECTION}/fresh/status"
        assert world.objects.status("fresh")["podCapacity"] == 7.5

    run(scenario)


@pytest.mark.parametrize("reports", [True, False])
def test_a_node_that_comes_back_under_its_name_gets_a_new_object(reports: bool) -> None:
    """The garbage collector may be slower than the first write for the new Node."""

    async def scenario(world: World) -> None:
        world.add("n")
        world.report("n", 7.0)
        await world.seconds(2)
        world.add("n")
        if reports:
            world.report("n", 5.0)
        await world.seconds(2)
        world.objects.collect_garbage({world.nodes["n"].uid})
        assert not world.objects.stored
        await world.seconds(40)
        assert world.wrong() == []

    run(scenario)


def test_without_the_crd_nothing_is_sent_but_one_probe_every_few_minutes(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        world.objects.served = False
        for i in range(20):
            world.add(f"n{i}")
        await world.seconds(1)
        first = len(world.desk.api.sent)
        assert first <= 2 * RATE
        await world.minutes(16)
        assert len(world.desk.api.sent) - first == 3 * 2
        assert caplog.text.count("kubectl get ncap") == 1
        world.objects.served = True
        await world.minutes(7)
        assert world.wrong() == []

    caplog.set_level("INFO")
    run(scenario)


@pytest.mark.parametrize(
    "fault", [says(403), says(422), says(500), says(503), ConnectionRefusedError(), TimeoutError()]
)
def test_failures_are_repeated_ever_less_often_and_end_no_task(fault: Exception) -> None:
    async def scenario(world: World) -> None:
        world.objects.fault = fault
        for i in range(20):
            world.add(f"n{i}")
        await world.minutes(10)
        assert len(world.desk.api.sent) < RATE + 20
        assert len(world.desk.writer) == 0
        world.objects.fault = None
        await world.minutes(7)
        await world.seconds(5)
        assert world.wrong() == []

    run(scenario)


def test_nothing_is_written_for_nodes_whose_agents_may_still_be_connecting() -> None:
    async def scenario(world: World) -> None:
        for name in ("early", "late"):
            world.add(name)
        world.parts.ledger.expect_reports(world.desk.clock.monotonic() + 10)
        world.report("early", 3.0)
        await world.seconds(9)
        assert world.objects.stored.keys() == {"early"}
        world.parts.cluster.tick()
        await world.desk.clock.turn(2.0)
        world.parts.cluster.tick()
        await world.seconds(2)
        assert world.objects.status("late").keys() == {"stale", "updatedAt", "room"}

    run(scenario)


def test_nothing_is_sent_once_the_lease_is_lost() -> None:
    async def scenario(world: World) -> None:
        world.add("n")
        world.desk.leads = False
        await world.seconds(10)
        assert world.desk.api.sent == []

    run(scenario)


def test_two_hundred_nodes_that_all_change_share_the_rate() -> None:
    async def scenario(world: World) -> None:
        for i in range(200):
            world.add(f"n{i}")
            world.report(f"n{i}", 4.0)
        await world.seconds(70)
        assert world.wrong() == []
        times = [sent.at for sent in world.desk.api.sent]
        assert most_within(times, 10.0) <= 11 * RATE + 2 * AT_ONCE
        assert len(times) == 600  # each was missing, created and written

    run(scenario)


# --- over time ---

NAMES = st.sampled_from("abcdefgh")
STEPS = st.one_of(
    st.tuples(st.just("add"), NAMES),
    st.tuples(st.just("remove"), NAMES),
    st.tuples(st.just("report"), NAMES, st.floats(0, 50), st.integers(0, 5), st.booleans()),
    st.tuples(st.just("silent"), NAMES),
    st.tuples(st.just("seconds"), st.integers(1, 20)),
    st.tuples(st.just("minutes"), st.integers(1, 6)),
    st.tuples(st.just("fault"), st.sampled_from([None, 403, 409, 422, 429, 500])),
    st.tuples(st.just("served"), st.booleans()),
    st.tuples(st.just("loses"), st.booleans()),
    st.tuples(st.just("collect")),
    st.tuples(st.just("leader")),
)


async def _step(world: World, step: tuple[Any, ...]) -> None:
    match step:
        case ("add", name):
            world.add(name)
        case ("remove", name):
            world.remove(name)
        case ("report", name, capacity, pods, churn):
            world.report(name, capacity, pods, churn=churn)
        case ("silent", name):
            world.parts.ledger.mark_disconnected(name)
        case ("seconds", count):
            await world.seconds(count)
        case ("minutes", count):
            await world.minutes(count)
        case ("fault", status):
            world.objects.fault = says(status) if status else None
        case ("served", served):
            world.objects.served = served
        case ("loses", loses):
            world.objects.loses_responses = loses
        case ("collect",):
            world.objects.collect_garbage({node.uid for node in world.nodes.values()})
        case ("leader",):
            world.new_leader()


@given(st.lists(STEPS, max_size=40))
@settings(max_examples=60)
def test_whatever_happens_the_objects_become_what_the_ledger_knows(steps: list[tuple[Any, ...]]) -> None:
    async def scenario(world: World) -> None:
        for step in steps:
            await _step(world, step)
            assert len(world.desk.writer) <= AT_ONCE
        leaders = 1 + sum(step == ("leader",) for step in steps)
        world.objects.fault, world.objects.loses_responses, world.objects.served = None, False, True
        world.objects.collect_garbage({node.uid for node in world.nodes.values()})
        await world.minutes(int(NOT_SERVED_PAUSE + 2 * refresh_after(8)) // 60 + 1)
        assert world.wrong() == []
        times = [sent.at for sent in world.desk.api.sent]
        assert most_within(times, 60.0) <= leaders * (61 * RATE + 2 * AT_ONCE)
        before = len(times)
        await world.minutes(2)
        assert len(world.desk.api.sent) - before <= len(world.nodes), "at rest each is written every few minutes"

    run(scenario)
