"""Which class costs are sent to which subscriber, and when."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest

from carico.aggregator import subscribers
from carico.aggregator.classes import Classes
from carico.aggregator.subscribers import IN_TURN, WANTED_AT_ONCE, Subscribers
from carico.types import ClassCost, ClassKey
from carico.wire.classes_client import ClassesPolicy
from carico.wire.codec.classes import Query, name_of
from harness.aggregator.class_tables import NOW, RESOURCES, cost, settle


@pytest.fixture
def table() -> Classes:
    return Classes(first_version=7)


class Client:
    """A stream to a real policy."""

    pending = 0

    def __init__(self, limit: int = 0) -> None:
        self.costs: dict[str, ClassCost] = {}
        self.messages = 0
        self.policy = ClassesPolicy(self._hear, limit)

    def _hear(self, costs: Mapping[ClassKey, ClassCost], resources: tuple[str, ...]) -> None:
        assert resources == RESOURCES
        self.costs = {key.family: one for key, one in costs.items()}

    def announce(self, message: bytes) -> None:
        self.messages += 1
        self.policy.on_message(message, NOW)


@pytest.fixture
def audience(table: Classes) -> Subscribers:
    return Subscribers(table)


def refresh(table: Classes, audience: Subscribers, now: float) -> None:
    table.refresh(now)
    audience.push(now)


def test_a_scheduler_gets_everything_and_then_every_change_within_a_second(
    table: Classes, audience: Subscribers
) -> None:
    table.receive("n1", [cost(f"c{i}") for i in range(40)], RESOURCES)
    table.refresh(NOW)
    scheduler = Client()
    audience.add(scheduler, Query(0, 0, frozenset()), NOW)
    assert len(scheduler.costs) == 40
    table.receive("n1", [cost("new")], RESOURCES)
    refresh(table, audience, NOW + 0.25)
    refresh(table, audience, NOW + 0.5)
    assert len(scheduler.costs) == 41
    assert scheduler.messages == 2
    refresh(table, audience, NOW + 5.0)
    assert scheduler.messages == 2, "nothing changed"


def test_a_client_that_reconnects_gets_only_what_it_lacks(table: Classes, audience: Subscribers) -> None:
    table.receive("n1", [cost("a"), cost("b")], RESOURCES)
    table.refresh(NOW)
    first = Client()
    one = audience.add(first, Query(0, 0, frozenset()), NOW)
    audience.remove(one)
    table.receive("n1", [cost("b", cpu=2.0)], RESOURCES)
    table._evict(name_of(cost("a").key))
    table.refresh(NOW)
    audience.add(first, Query(one.cursor, 0, frozenset()), NOW)
    assert {name: found.mean[0] for name, found in first.costs.items()} == {"a/b": 2.0}
    stranger = Client()
    audience.add(stranger, Query(10**15, 0, frozenset()), NOW)
    assert set(stranger.costs) == {"a/b"}, "a version of another replica means nothing here"


def test_a_node_gets_the_most_used_classes_and_what_it_wants(table: Classes, audience: Subscribers) -> None:
    table.receive("n1", [cost(f"c{i}", pods=i) for i in range(40)], RESOURCES)
    table.refresh(NOW)
    node = Client()
    subscriber = audience.add(node, Query(0, 16, frozenset({name_of(cost("c0").key)})), NOW)
    assert set(node.costs) == {"a/c0", *(f"a/c{i}" for i in range(24, 40))}
    audience.want(subscriber, frozenset({name_of(cost("c1").key)}))
    assert "a/c1" in node.costs, "at once"


def test_thousands_of_nodes_do_not_get_every_new_job(table: Classes, audience: Subscribers) -> None:
    nodes = [Client() for _ in range(1000)]
    wanted = frozenset({name_of(cost("mine").key)})
    for client in nodes:
        audience.add(client, Query(0, 256, wanted if client is nodes[7] else frozenset()), NOW)
        client.messages = 0
    table.receive("n1", [cost("mine"), cost("job")], RESOURCES)
    for tick in range(1, 9):
        refresh(table, audience, NOW + tick / 4)
    assert set(nodes[7].costs) == {"a/mine", "a/job"}
    told = sum(client.messages for client in nodes)
    assert told <= 2.25 * subscribers.IN_TURN + 1
    for tick in range(9, 60):
        refresh(table, audience, NOW + tick / 4)
    assert all(set(client.costs) == {"a/mine", "a/job"} for client in nodes), "but in the end all are"


def test_a_node_gets_changes_that_matter_at_once_and_others_in_turn(table: Classes, audience: Subscribers) -> None:
    table.receive("n1", [cost("mine")], RESOURCES)
    table.refresh(NOW)
    nodes = [Client() for _ in range(1000)]
    wanted = frozenset({name_of(cost("mine").key)})
    for client in nodes:
        audience.add(client, Query(0, 256, wanted if client is nodes[900] else frozenset()), NOW)
    scheduler = Client()
    audience.add(scheduler, Query(0, 0, frozenset()), NOW)

    def known_after(cpu: float, now: float) -> float:
        table.receive("n1", [cost("mine", cpu=cpu)], RESOURCES)
        refresh(table, audience, now)
        assert scheduler.costs["a/mine"].mean[0] == cpu
        return nodes[900].costs["a/mine"].mean[0]

    assert known_after(0.53, NOW + 1.0) == 0.5
    assert known_after(0.56, NOW + 2.0) == 0.56, "12 % since it was told"
    assert known_after(0.53, NOW + 3.0) == 0.56
    assert known_after(0.50, NOW + 4.0) == 0.5
    assert known_after(0.53, NOW + 5.0) == 0.5
    for tick in range(60):
        refresh(table, audience, NOW + 5.0 + tick / 4)
    assert nodes[900].costs["a/mine"].mean[0] == 0.53


def test_a_class_that_runs_on_all_nodes_is_sent_to_some_of_them_at_a_time(
    table: Classes, audience: Subscribers
) -> None:
    """As a DaemonSet-like sidecar: sending to thousands in one go delays every exchange."""
    table.receive("n1", [cost("everywhere")], RESOURCES)
    table.refresh(NOW)
    nodes = [Client() for _ in range(3 * WANTED_AT_ONCE)]
    for client in nodes:
        audience.add(client, Query(0, 256, frozenset({name_of(cost("everywhere").key)})), NOW)
    table.receive("n1", [cost("everywhere", cpu=1.0)], RESOURCES)

    def told() -> int:
        return sum(client.costs["a/everywhere"].mean[0] == 1.0 for client in nodes)

    counts = [0]
    for tick in range(4):
        refresh(table, audience, NOW + 1.0 + tick / 4)
        counts.append(told())
    most = WANTED_AT_ONCE + IN_TURN
    assert all(0 < after - before <= most for before, after in itertools.pairwise(counts[:4]))
    assert counts[-1] == len(nodes), "within a second"
    assert all(client.messages == 2 for client in nodes)


def test_a_node_that_names_very_many_classes_gets_all_in_messages_that_it_takes(
    table: Classes, audience: Subscribers
) -> None:
    names = [f"c{i}" for i in range(1500)]
    for start in range(0, len(names), 500):
        table.receive(f"n{start}", [cost(name, pods=start) for name in names[start : start + 500]], RESOURCES)
    settle(table)
    few, many = Client(), Client()
    audience.add(few, Query(0, 256, frozenset(name_of(cost(name).key) for name in names[:30])), NOW)
    audience.add(many, Query(0, 256, frozenset(name_of(cost(name).key) for name in names[:1000])), NOW)
    assert (len(few.costs), few.messages) == (256 + 30, 1)
    assert (len(many.costs), many.messages) == (256 + 1000, 2)


def test_a_client_that_does_not_read_gets_nothing_more(table: Classes, audience: Subscribers) -> None:
    slow = Client()
    audience.add(slow, Query(0, 0, frozenset()), NOW)
    assert slow.messages == 1, "an empty table is told too"
    slow.pending = subscribers.PARTS_PENDING
    for tick in range(20):
        table.receive("n1", [cost(cpu=float(tick + 1))], RESOURCES)
        refresh(table, audience, NOW + tick)
    assert slow.messages == 1
