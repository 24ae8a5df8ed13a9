"""The cluster's model against numpy's batch SVD, in any order, at any rate, over any number of replicas."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carico.aggregator.state import AggregatorState, SentToPeer
from carico.errors import InvalidMessage
from carico.types import ClusterModel, CostBelief, LocalModel, Matrix, NodeSize, Vector
from carico.wire.codec import cluster
from carico.wire.codec import replica as replica_codec
from harness.aggregator.models import make_model, make_state, model_of

NOW = 1000.0


def batch_svd(models: Sequence[LocalModel]) -> tuple[Matrix, Vector]:
    """U·Σ of all S·UᵢΣᵢ/√N side by side, as a Gram matrix, in units of the largest node lest bytes drown cores."""
    scale = np.max([model.size.vector(model.dimensions) for model in models], axis=0)
    columns = [model.basis * (model.size.vector(model.dimensions) / scale)[:, None] for model in models]
    u, sigma, _ = np.linalg.svd(np.hstack(columns) / np.sqrt(len(models)), full_matrices=False)
    return (u * sigma**2) @ u.T, scale


def assert_equal_to_batch(model: ClusterModel, models: Sequence[LocalModel], within: float) -> None:
    gram, scale = batch_svd(models)
    np.testing.assert_allclose(model.gram / np.outer(scale, scale), gram, rtol=within, atol=within * np.trace(gram))
    ours = np.linalg.eigh(model.gram / np.outer(scale, scale))
    theirs = np.linalg.eigh(gram)
    np.testing.assert_allclose(np.sqrt(ours[0]), np.sqrt(theirs[0]), rtol=within)


def tell(state: AggregatorState, models: Sequence[LocalModel], now: float = NOW) -> None:
    stream = {model.node: state.open_stream() for model in models}
    for model in models:
        state.accept(model, stream[model.node], now)


@given(count=st.integers(1, 40), first=st.integers(0, 10_000))
def test_the_model_is_the_batch_svd_of_all_nodes(count: int, first: int) -> None:
    models = [make_model(first + i) for i in range(count)]
    state = make_state()
    tell(state, models)
    assert state.refresh(NOW)
    assert model_of(state).nodes == count
    assert_equal_to_batch(model_of(state), models, within=1e-6)


@given(data=st.data())
@settings(max_examples=50)
def test_neither_order_nor_rate_matters(data: st.DataObject) -> None:
    """Messages come in any order, some nodes send often; only the last message of a node counts."""
    speakers = data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=60))
    state = make_state()
    streams = [state.open_stream() for _ in range(10)]
    last = {}
    for word, i in enumerate(speakers):
        model = make_model(i, basis=make_model(1000 + word).basis)
        last[i] = model
        state.accept(model, streams[i], NOW + word / 100)
        if data.draw(st.booleans()):
            state.refresh(NOW + word / 100)
    state.refresh(NOW + 1)
    assert_equal_to_batch(model_of(state), list(last.values()), within=1e-6)


def test_thousands_of_messages_leave_no_drift() -> None:
    state = make_state()
    stream = state.open_stream()
    for word in range(3000):
        state.accept(make_model(0, basis=make_model(word % 50).basis), stream, NOW)
        if word % 100 == 0:
            state.refresh(NOW)
    final = [make_model(i) for i in range(5)]
    tell(state, final)
    state.refresh(NOW)
    assert_equal_to_batch(model_of(state), final, within=1e-12)


def test_a_silent_node_fades_and_goes() -> None:
    state = make_state()
    tell(state, [make_model(1)], NOW)
    tell(state, [make_model(2)], NOW)
    stream = state.open_stream()
    state.accept(make_model(2), stream, NOW + 45)
    state.refresh(NOW + 45)
    expected = (0.5 * _absolute(make_model(1)) + _absolute(make_model(2))) / 1.5
    np.testing.assert_allclose(model_of(state).gram, expected, rtol=1e-12)
    assert state.node_weights(NOW + 45) == {"node-1": (45.0, 0.5), "node-2": (0.0, 1.0)}
    state.refresh(NOW + 61)
    assert model_of(state).nodes == 1
    np.testing.assert_allclose(model_of(state).gram, _absolute(make_model(2)), rtol=1e-12)
    state.refresh(NOW + 200)
    assert state.model is None, "when everybody is gone there is no model"


def _absolute(model: LocalModel) -> Matrix:
    basis = model.basis * model.size.vector(model.dimensions)[:, None]
    return basis @ basis.T


def test_three_replicas_agree_with_one_after_an_exchange() -> None:
    models = [make_model(i) for i in range(30)]
    replicas = [make_state(f"r{r}", r) for r in range(3)]
    for i, model in enumerate(models):
        tell(replicas[i % 3], [model])
    for round_ in range(3):
        now = NOW + round_
        for replica in replicas:
            replica.refresh(now)
        for speaker in replicas:
            for listener in replicas:
                if listener is not speaker:
                    listener.receive_peer(speaker.own_model(now), listener.open_stream(), now)
    for replica in replicas:
        replica.refresh(NOW + 3)
        assert model_of(replica).nodes == 30
        assert_equal_to_batch(model_of(replica), models, within=1e-3)
        assert_equal_to_batch(model_of(replica), models, within=1e-9)
        assert model_of(replica).mean_pods == pytest.approx(np.mean([model.pods for model in models]))
    alone = make_state()
    tell(alone, models)
    alone.refresh(NOW)
    for replica in replicas:
        np.testing.assert_allclose(cost_of(replica).mean, cost_of(alone).mean, rtol=1e-9)
        np.testing.assert_allclose(cost_of(replica).variance, cost_of(alone).variance, rtol=1e-9)


def cost_of(state: AggregatorState) -> CostBelief:
    cost = model_of(state).cost
    assert cost is not None
    return cost


def exchange(speaker: AggregatorState, listener: AggregatorState, now: float) -> None:
    speaker.refresh(now)
    listener.receive_peer(speaker.own_model(now), listener.open_stream(), now)
    listener.refresh(now)


def test_a_silent_peer_fades() -> None:
    first, second = make_state("r1"), make_state("r2")
    tell(first, [make_model(1)])
    tell(second, [make_model(2)])
    exchange(second, first, NOW)
    assert model_of(first).nodes == 2
    first.refresh(NOW + 10)
    np.testing.assert_allclose(
        model_of(first).gram, (_absolute(make_model(1)) + 0.5 * _absolute(make_model(2))) / 1.5, rtol=1e-12
    )
    first.refresh(NOW + 15.1)
    assert model_of(first).nodes == 1


def test_a_node_that_moves_to_another_replica_counts_once() -> None:
    first, second = make_state("r1"), make_state("r2")
    stream = first.open_stream()
    first.accept(make_model(1), stream, NOW)
    exchange(first, second, NOW)
    first.close_stream(stream)
    second.accept(make_model(1), second.open_stream(), NOW + 1)
    exchange(second, first, NOW + 1)
    exchange(first, second, NOW + 1)
    assert (model_of(first).nodes, model_of(second).nodes) == (1, 1)


def test_a_node_with_an_open_stream_is_not_let_go() -> None:
    first, second = make_state("r1"), make_state("r2")
    second.accept(make_model(1), second.open_stream(), NOW)
    first.accept(make_model(1), first.open_stream(), NOW + 1)
    exchange(second, first, NOW + 1)
    assert first.own.nodes == 1


def test_a_peer_of_the_same_name_is_rejected_and_an_old_message_of_a_peer_dropped() -> None:
    first, second, twin = make_state("r1"), make_state("r2"), make_state("r1", 99)
    tell(second, [make_model(1)])
    second.refresh(NOW)
    old = second.own_model(NOW)
    exchange(second, first, NOW)
    first.receive_peer(dataclasses.replace(old, nodes=77), 1, NOW)
    first.refresh(NOW)
    assert model_of(first).nodes == 1
    with pytest.raises(InvalidMessage, match="identity"):
        first.receive_peer(twin.own_model(NOW), 1, NOW)


def test_nodes_with_more_dimensions_are_merged_on_the_common_ones() -> None:
    three = [make_model(i, dimensions=("cpu", "memory", "disk")) for i in range(3)]
    two = [make_model(i) for i in range(3, 6)]
    state = make_state()
    tell(state, three + two)
    state.refresh(NOW)
    assert model_of(state).dimensions == ("cpu", "memory", "disk")
    common = [dataclasses.replace(model, dimensions=("cpu", "memory"), basis=model.basis[:2]) for model in three]
    np.testing.assert_allclose(
        model_of(state).gram[:2, :2], np.mean([_absolute(m) for m in common + two], axis=0), rtol=0.05
    )
    assert model_of(state).gram[2, 2] == pytest.approx(np.mean([_absolute(m)[2, 2] for m in three]), rel=0.05)
    scale = np.sqrt(np.diag(model_of(state).gram))
    assert np.linalg.eigvalsh(model_of(state).gram / np.outer(scale, scale)).min() > -1e-12, "it is still a Gram matrix"
    assert state.dimension_nodes() == {
        "cpu": 6.0,
        "memory": 6.0,
        "disk": 3.0,
        "memory_pressure": 0.0,
        "io_pressure": 0.0,
        "network": 0.0,
    }


def test_unknown_dimensions_are_left_out_and_counted() -> None:
    state = make_state()
    model = make_model(1, dimensions=("gpu", "cpu", "memory"))
    tell(state, [model])
    state.refresh(NOW)
    assert model_of(state).dimensions == ("cpu", "memory")
    np.testing.assert_allclose(model_of(state).gram, _absolute(model)[1:, 1:], rtol=1e-12)
    assert state.unknown_dimensions == 1
    with pytest.raises(InvalidMessage, match="dimensions: none of gpu"):
        tell(state, [make_model(2, dimensions=("gpu",))])


def test_running_depends_on_the_rate_and_latest_does_not() -> None:
    """The report's rule, kept for comparison: a node that sends ten times as often pulls the model to itself."""
    apart = {}
    for rule in ("running", "latest"):
        state = make_state(merge=rule)
        streams = [state.open_stream(), state.open_stream()]
        state.accept(make_model(1, size=NodeSize(1, 1)), streams[0], NOW)
        for _ in range(10):
            state.accept(make_model(2, size=NodeSize(1, 1)), streams[1], NOW)
        state.refresh(NOW)
        mean = (_absolute(make_model(1, size=NodeSize(1, 1))) + _absolute(make_model(2, size=NodeSize(1, 1)))) / 2
        apart[rule] = np.abs(model_of(state).gram - mean).max()
    assert apart["latest"] < 1e-12
    assert apart["running"] > 0.01


def test_running_is_the_weighted_merge_of_each_message() -> None:
    state = make_state(merge="running")
    models = [make_model(i) for i in range(4)]
    tell(state, models)
    state.refresh(NOW)
    expected = _absolute(models[0])
    for n, model in enumerate(models[1:], start=2):
        expected = (n - 1) / n * expected + _absolute(model) / n
    np.testing.assert_allclose(model_of(state).gram, expected, rtol=1e-12)


def test_after_a_start_the_first_node_is_not_taken_for_the_cluster() -> None:
    state = make_state(warmup=2.0)
    tell(state, [make_model(1)], NOW)
    state.refresh(NOW)
    assert state.model is None
    tell(state, [make_model(2)], NOW + 1)
    state.refresh(NOW + 2)
    assert model_of(state).nodes == 2


def test_an_empty_replica_is_caught_up_by_its_peer_at_once() -> None:
    old, new = make_state("r1"), make_state("r2", warmup=60.0)
    tell(old, [make_model(i) for i in range(5)])
    exchange(old, new, NOW)
    assert model_of(new).nodes == 5


def test_the_version_grows_only_with_a_change() -> None:
    state = make_state()
    tell(state, [make_model(1)])
    assert state.refresh(NOW)
    assert not state.refresh(NOW + 1)
    assert model_of(state).version == 1
    tell(state, [make_model(1)], NOW + 2)
    assert state.refresh(NOW + 2)
    assert model_of(state).version == 2


def test_an_old_message_is_rejected() -> None:
    state = make_state()
    early, late = make_model(1), make_model(1)
    stream = state.open_stream()
    state.accept(late, stream, NOW)
    with pytest.raises(InvalidMessage, match="order"):
        state.accept(early, stream, NOW)


def test_a_cost_that_no_node_knows_has_no_belief() -> None:
    state = make_state()
    tell(state, [make_model(1, cost=None)])
    state.refresh(NOW)
    assert model_of(state).cost is None
    disk = make_model(2, dimensions=("cpu", "disk"), cost=None)
    cpu = make_model(3, dimensions=("cpu",), cost=CostBelief((0.5,), (0.01,)))
    tell(state, [disk, cpu])
    state.refresh(NOW)
    assert dict(zip(model_of(state).dimensions, cost_of(state).variance, strict=True))["disk"] == np.inf


def test_rows_come_and_go_without_mixing() -> None:
    """More nodes than the first room, half of them gone again."""
    state = make_state()
    tell(state, [make_model(i) for i in range(200)], NOW)
    tell(state, [make_model(i) for i in range(0, 200, 2)], NOW + 55)
    state.refresh(NOW + 61)
    assert model_of(state).nodes == 100
    assert_equal_to_batch(model_of(state), [make_model(i) for i in range(0, 200, 2)], within=1e-9)


def test_a_forged_size_does_not_become_the_model() -> None:
    """16,384 cores and 2⁵⁰ bytes among nodes of 8 cores: it counts as a node of 32 times the usual size."""
    honest = [make_model(i, size=NodeSize(8, 2.0**35)) for i in range(9)]
    liar = make_model(99, size=NodeSize(16_384, 2.0**50))
    state = make_state()
    tell(state, [*honest, liar])
    state.refresh(NOW)
    largest = NodeSize(256, 2.0**40)
    limited = [*honest, dataclasses.replace(liar, size=largest)]
    np.testing.assert_allclose(
        model_of(state).gram, np.mean([_absolute(model) for model in limited], axis=0), rtol=1e-9
    )
    for model in honest:
        view = cluster.view(model_of(state), model.size, model.dimensions, model.basis @ model.basis.T)
        assert np.abs(view.gram).max() < 1e4, "every node can still use it"


def test_nodes_of_honest_sizes_count_in_full() -> None:
    models = [make_model(i, size=NodeSize(cores, cores * 2.0**32)) for i, cores in enumerate([2, 2, 2, 8, 64])]
    state = make_state()
    tell(state, models)
    state.refresh(NOW)
    assert_equal_to_batch(model_of(state), models, within=1e-9)


def test_nodes_that_came_and_went_leave_nothing_behind() -> None:
    """20,000 names on one stream, as only a broken client would; then the stream closes and they fade."""
    state = make_state()
    stream = state.open_stream()
    model = make_model(0)
    for i in range(2_000):
        state.accept(dataclasses.replace(model, node=f"spot-{i}"), stream, NOW)
    state.close_stream(stream)
    assert not state._stream_of
    assert not state._node_of
    state.refresh(NOW + 61)
    state.refresh(NOW + 62)
    assert len(state._rows) == len(state._joined) == len(state._order) == 0


def test_peers_that_came_and_went_leave_nothing_behind() -> None:
    state = make_state("r1")
    for i in range(50):
        other = make_state(f"replica-{i}", i + 2)
        tell(other, [make_model(i)])
        other.refresh(NOW)
        state.receive_peer(other.own_model(NOW), state.open_stream(), NOW)
    state.refresh(NOW + 100)
    assert len(state._peer_order) == len(state._peers) == 0


def test_a_fading_node_is_let_go_to_the_peer_that_has_it_now() -> None:
    """A stream once carried its name, then that of another node, and is still open."""
    first, second = make_state("r1"), make_state("r2", 2)
    stream = first.open_stream()
    first.accept(make_model(1), stream, NOW)
    first.accept(make_model(2), stream, NOW)
    second.accept(make_model(1), second.open_stream(), NOW + 1)
    exchange(second, first, NOW + 1)
    assert first.own.nodes == 1


def test_many_new_nodes_are_sent_to_peers_in_parts() -> None:
    """After the restart of a replica with 20,000 nodes of long names."""
    state, model = make_state("r1"), make_model(0)
    for i in range(12_000):
        named = dataclasses.replace(model, node=f"ip-10-123-{i:05d}.eu-central-1.compute.internal")
        state.accept(named, state.open_stream(), NOW)
    state.refresh(NOW)
    received: set[str] = set()
    told, rounds = SentToPeer(), 0
    while len(received) < 12_000:
        message = replica_codec.encode(state.own_model(NOW, told))
        assert len(message) < 2**19
        received |= replica_codec.decode(replica_codec.parse(message)).joined
        rounds += 1
    assert rounds == 3
    assert state.own_model(NOW, told).joined, "and again from the start: a peer may still have had an open stream"
