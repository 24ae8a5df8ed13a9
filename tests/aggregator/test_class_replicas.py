"""Class costs that replicas exchange: they agree, overrule a forging node, and keep what a dead one knew."""

from __future__ import annotations

import dataclasses

import pytest

from carico.aggregator.state import CLASSES_AT_ONCE, SEND_AGAIN, AggregatorState, SentToPeer
from carico.wire.codec import replica as replica_codec
from carico.wire.codec.classes import ClassName
from harness.aggregator.class_tables import NOW, cost, published, settle
from harness.aggregator.models import make_model, make_state


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
