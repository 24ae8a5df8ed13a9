"""The table of class costs: bounded, fading, remembered, exchanged between replicas, and sent to subscribers."""

# mypy: disable-error-code="comparison-overlap"
# Tuples are compared with those of pytest.approx.

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any

import pytest

from carico.aggregator import class_rows, classes, subscribers
from carico.aggregator.classes import Classes
from carico.aggregator.state import CLASSES_AT_ONCE, SEND_AGAIN, AggregatorState, SentToPeer
from carico.aggregator.subscribers import IN_TURN, WANTED_AT_ONCE, Subscribers
from carico.types import ClassCost, ClassKey
from carico.wire.classes_client import ClassesPolicy
from carico.wire.codec import replica as replica_codec
from carico.wire.codec.classes import ClassName, Query, name_of
from harness.aggregator import make_model, make_state

NOW = 1000.0
RESOURCES = ("cpu", "memory")


def cost(name: str = "web", cpu: float = 0.5, memory: float = 2.0**28, **changes: Any) -> ClassCost:
    fields: dict[str, Any] = {
        "key": ClassKey("a", f"a/{name}", "r1"),
        "pods": 2,
        "weight": 5.0,
        "mean": (cpu, memory),
        "variance": (0.0, 0.0),
        "high": (cpu, memory),
        "use_high": (cpu, memory),
        "ramp": 1.0,
    }
    return ClassCost(**(fields | changes))


NAME = name_of(cost().key)


def published(table: Classes, name: ClassName = NAME) -> ClassCost:
    found = table.published.get(name)
    assert found is not None
    return found.cost


def settle(table: Classes, now: float = NOW) -> None:
    for _ in range(200):
        table.refresh(now)


@pytest.fixture
def table() -> Classes:
    return Classes(first_version=7)


def test_a_class_is_known_with_the_next_refresh(table: Classes) -> None:
    table.receive("n1", [cost()], RESOURCES)
    assert table.refresh(NOW)
    found = published(table)
    assert (found.mean, found.pods, found.weight, found.nodes) == ((0.5, 2.0**28), 2, 5.0, 1)
    assert not table.refresh(NOW + 1)


def test_figures_are_absolute_and_resources_are_found_by_name(table: Classes) -> None:
    table.receive("n1", [cost()], RESOURCES)
    other = cost(mean=(9.0, 2.0**28, 0.7), variance=(0,) * 3, high=(9.0, 2.0**28, 0.7), use_high=(0,) * 3)
    table.receive("n2", [other], ("gpu", "memory", "cpu"))
    only_cpu = cost(mean=(0.6,), variance=(0,), high=(0.6,), use_high=(0,))
    table.receive("n3", [only_cpu], ("cpu",))
    table.refresh(NOW)
    assert published(table).mean == (pytest.approx(0.6), pytest.approx(2.0**28))


def test_three_nodes_overrule_a_forging_one_and_two_do_not(table: Classes) -> None:
    for node in ("n1", "n2", "n3"):
        table.receive(node, [cost()], RESOURCES)
    table.receive("liar", [cost(cpu=50.0, memory=2.0**35)], RESOURCES)
    table.refresh(NOW)
    found = published(table)
    assert found.mean[0] == pytest.approx(0.5, rel=0.1)
    assert found.high == (1.0, 2.0**29)
    table.forget("n2")
    table.forget("n3")
    table.refresh(NOW)
    assert published(table).high == (50.0, 2.0**35), "one against one: the higher cost is the safer"


def test_a_node_that_fades_counts_less_and_is_remembered_for_a_week(table: Classes) -> None:
    table.receive("n1", [cost()], RESOURCES)
    table.receive("n2", [cost(cpu=1.5)], RESOURCES)
    table.refresh(NOW)
    assert published(table).mean[0] == pytest.approx(1.0)
    table.fade("n2", 0.3)
    table.refresh(NOW)
    assert published(table).mean[0] == pytest.approx(0.833, abs=0.01)
    table.forget("n1")
    table.forget("n2")
    table.refresh(NOW + 60)
    found = published(table)
    assert (found.pods, found.nodes) == (0, 0)
    assert found.mean[0] == pytest.approx(0.833, abs=0.01), "what the last nodes knew is not lost with them"
    table.refresh(NOW + 60 + classes.REMEMBERED_FOR + 1)
    assert table.published.get(NAME) is None
    table.receive("n3", [cost(cpu=0.2)], RESOURCES)
    table.refresh(NOW + 10**7)
    assert published(table).mean[0] == 0.2


def test_figures_that_hardly_move_are_no_news(table: Classes) -> None:
    table.receive("n1", [cost()], RESOURCES)
    table.refresh(NOW)
    version = table.published.version
    table.receive("n1", [cost(cpu=0.51, memory=2.0**28 * 1.02)], RESOURCES)
    assert not table.refresh(NOW)
    assert table.published.version == version
    table.receive("n1", [cost(cpu=0.6)], RESOURCES)
    assert table.refresh(NOW)


def busy(table: Classes, nodes: int = 30) -> list[ClassCost]:
    """A class on many nodes, behind more others than are merged at once, in each of which one of them moved a bit."""
    others = [cost(f"c{i}") for i in range(3 * classes.PER_REFRESH)]
    for node in range(nodes):
        table.receive(f"n{node}", [cost()], RESOURCES)
        for start in range(0, len(others), 400):
            table.receive(f"n{node}-{start}", others[start : start + 400], RESOURCES)
    settle(table)
    for start in range(0, len(others), 400):
        table.receive(
            f"n0-{start}",
            [dataclasses.replace(other, mean=(0.6, 2.0**28)) for other in others[start : start + 400]],
            RESOURCES,
        )
    return others


def test_small_changes_wait_and_cost_little_each_time(table: Classes) -> None:
    others = busy(table)
    version = table.published.version
    waiting = len(table._drift)
    assert waiting == len(others)
    table.refresh(NOW)
    assert len(table._drift) == waiting - classes.IN_BACKGROUND
    settle(table)
    assert not table._drift
    assert table.published.version == version, "a thirtieth of 20 % is nothing to tell"


def test_a_new_class_overtakes_all_others(table: Classes) -> None:
    busy(table)
    table.receive("n1", [cost("new")], RESOURCES)
    table.refresh(NOW)
    assert published(table, ClassName("a/new", "r1")).mean[0] == 0.5


def test_small_changes_of_many_nodes_add_up_and_are_merged_at_once(table: Classes) -> None:
    busy(table)
    for node in range(30):
        table.receive(f"n{node}", [cost(cpu=0.54)], RESOURCES)
    table.refresh(NOW)
    assert published(table).mean[0] == pytest.approx(0.54)


def test_one_node_that_measured_more_than_all_others_counts_at_once(table: Classes) -> None:
    busy(table)
    table.receive("n3", [cost(high=(0.5, 1.5 * 2.0**28))], RESOURCES)
    table.refresh(NOW)
    assert published(table).high[1] == 1.5 * 2.0**28


def test_a_class_that_ends_on_all_nodes_at_once_is_noticed_at_once(table: Classes) -> None:
    busy(table)
    for node in range(30):
        table.receive(f"n{node}", [cost(pods=0)], RESOURCES)
    table.refresh(NOW)
    assert published(table).pods == 0


def test_classes_rows_and_nodes_are_bounded(table: Classes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classes, "CLASSES", 300)
    for node in range(100):
        table.receive(f"n{node}", [cost("popular", pods=node % 2)], RESOURCES)
    for i in range(1000):
        table.receive(f"n{i % 7}", [cost(f"job-{i}")], RESOURCES)
        if i % 100 == 0:
            settle(table)
            table.receive("n1", [cost("popular")], RESOURCES)
    settle(table)
    assert len(table.published) == 300
    assert published(table, ClassName("a/popular", "r1")).nodes == class_rows.NODES_PER_CLASS
    assert table.published.get(ClassName("a/job-999", "r1")) is not None
    assert table.published.get(ClassName("a/job-1", "r1")) is None
    for i in range(600):
        table.receive("many", [cost(f"own-{i}")], RESOURCES)
    assert len(table._rows._of_node["many"]) <= class_rows.CLASSES_PER_NODE


def test_classes_that_no_node_has_any_more_go_first(table: Classes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classes, "CLASSES", 3)
    table.receive("n1", [cost("old but running")], RESOURCES)
    table.receive("n2", [cost("ended")], RESOURCES)
    settle(table)
    table.forget("n2")
    settle(table)
    table.receive("n1", [cost("one"), cost("two")], RESOURCES)
    settle(table)
    assert sorted(name.family for name in table.published.values()) == ["a/old but running", "a/one", "a/two"]


def exchange(speaker: AggregatorState, listener: AggregatorState, told: SentToPeer, now: float) -> None:
    """As over the wire."""
    speaker.refresh(now)
    speaker.classes.refresh(now)
    message = replica_codec.encode(speaker.own_model(now, told))
    listener.receive_peer(replica_codec.decode(replica_codec.parse(message)), 1, now)
    listener.refresh(now)
    listener.classes.refresh(now)


@pytest.fixture
def replicas() -> list[AggregatorState]:
    """Three, each with three nodes that run the class, one of them with a node that forges its reports."""
    found = [make_state(f"r{r}", 100 * r + 1) for r in range(3)]
    for i in range(9):
        said = cost(cpu=0.4 + 0.02 * i) if i != 8 else cost(cpu=50.0)
        replica = found[i % 3]
        replica.accept(make_model(i, class_costs=(said,), cost=None), replica.open_stream(), NOW)
    return found


def everybody_tells(replicas: list[AggregatorState], now: float = NOW) -> None:
    for speaker in replicas:
        for listener in replicas:
            if listener is not speaker:
                exchange(speaker, listener, SentToPeer(), now)


def test_replicas_agree_on_class_costs(replicas: list[AggregatorState]) -> None:
    everybody_tells(replicas)
    found = [published(replica.classes) for replica in replicas]
    for one in found:
        assert one.mean == pytest.approx(found[0].mean, rel=1e-6)
        assert one.high == pytest.approx(found[0].high, rel=1e-6)
        assert (one.nodes, one.pods) == (9, 18)
    assert found[0].mean[0] == pytest.approx(0.47, rel=0.15), "the lie is overruled where it is told"


def test_a_replica_with_one_forging_node_is_overruled_by_the_others() -> None:
    found = [make_state(f"r{r}", 100 * r + 1) for r in range(3)]
    for i in range(7):
        replica, said = found[min(i // 3, 2)], cost() if i < 6 else cost(cpu=50.0, memory=2.0**35)
        replica.accept(make_model(i, class_costs=(said,), cost=None), replica.open_stream(), NOW)
    everybody_tells(found)
    for replica in found:
        assert published(replica.classes).mean[0] == pytest.approx(0.5, rel=0.1)
        assert published(replica.classes).high == (1.0, 2.0**29)


def test_a_replica_that_dies_leaves_its_class_costs_behind(replicas: list[AggregatorState]) -> None:
    everybody_tells(replicas)
    survivor = replicas[0]
    survivor.refresh(NOW + 16)
    settle(survivor.classes, NOW + 16)
    assert published(survivor.classes).nodes == 3
    assert published(survivor.classes).mean[0] == pytest.approx(0.46, rel=0.1)


def test_a_class_that_a_replica_lost_is_lost_at_its_peers(replicas: list[AggregatorState]) -> None:
    first, second = replicas[:2]
    second.accept(make_model(20, class_costs=(cost("only here"),), cost=None), second.open_stream(), NOW)
    told = SentToPeer()
    exchange(second, first, told, NOW)
    name = ClassName("a/only here", "r1")
    assert published(first.classes, name).nodes == 1
    second._forget("node-20")
    exchange(second, first, told, NOW)
    assert published(first.classes, name).nodes == 0


def test_a_late_message_of_a_peer_still_carries_its_classes(replicas: list[AggregatorState]) -> None:
    """Two streams lead to each peer; what is older by its number is not old news on its own stream."""
    first, second = replicas[:2]
    for replica in (first, second):
        replica.refresh(NOW)
        settle(replica.classes)
    early, late = second.own_model(NOW, SentToPeer()), second.own_model(NOW, SentToPeer())
    first.receive_peer(dataclasses.replace(late, class_costs=()), 1, NOW)
    first.receive_peer(early, 2, NOW)
    settle(first.classes)
    assert published(first.classes).nodes == 6


def test_a_peer_that_stalled_counts_again() -> None:
    """It was taken for gone while its stream stayed open; after a while it sends again what it had sent there."""
    first, second = make_state("r1", 1), make_state("r2", 2)
    second.accept(make_model(1, class_costs=(cost(),), cost=None), second.open_stream(), NOW)
    told = SentToPeer()
    exchange(second, first, told, NOW)
    first.refresh(NOW + 20)
    first.classes.refresh(NOW + 20)
    assert published(first.classes).nodes == 0, "its figures stay known meanwhile"
    later = NOW + SEND_AGAIN + 1
    second.accept(make_model(1, cost=None), second.open_stream(), later)
    exchange(second, first, told, later)
    assert published(first.classes).nodes == 1


def test_many_classes_reach_a_peer_in_parts() -> None:
    first, second = make_state("r1", 1), make_state("r2", 2)
    names = [f"c{i}" for i in range(2 * CLASSES_AT_ONCE + 10)]
    for start in range(0, len(names), 50):
        said = tuple(cost(name) for name in names[start : start + 50])
        second.accept(make_model(start, class_costs=said, cost=None), second.open_stream(), NOW)
    second.refresh(NOW)
    settle(second.classes)
    told, rounds = SentToPeer(), 0
    while second.lacks_classes(told):
        exchange(second, first, told, NOW)
        rounds += 1
    settle(first.classes)
    assert rounds == 3
    assert len(first.classes.published) == len(names)


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
