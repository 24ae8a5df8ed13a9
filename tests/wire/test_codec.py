"""Messages keep their values through encoding and decoding, and invalid ones are rejected."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from carico.errors import CaricoError, InvalidMessage, UndecodableMessage
from carico.estimate.paper.subspace import decompose
from carico.types import ClusterModel, CostBelief, CostPoints, LocalModel, Matrix, NodeSize, ReplicaModel
from carico.wire.codec import checks, cluster, local, replica, report
from carico.wire.v1 import aggregation_pb2 as pb
from harness.wire.messages import local_model, node_report

unit = st.floats(0, 1)
APART: Any = None  # instead of an array, which is compared apart


@st.composite
def subspaces(draw: st.DrawFn) -> Matrix:
    """U·Σ of real usage, a matrix with values in [0, 1], as agents compute it."""
    m = draw(st.integers(1, 6))
    usage = draw(arrays(np.float64, (m, 10), elements=unit)) / math.sqrt(10)
    return decompose(usage).basis[:, : draw(st.integers(1, m))]


@given(basis=subspaces(), pods=st.integers(0, 500), cores=st.floats(0.5, 512), cost=unit)
def test_every_real_subspace_survives(basis: Matrix, pods: int, cores: float, cost: float) -> None:
    m = basis.shape[0]
    size = NodeSize(cores=cores, memory_bytes=2.0**34)
    dimensions = ("cpu", "memory", "disk", "network", "io_pressure", "memory_pressure")[:m]
    belief = CostBelief(tuple(cost * size.vector(dimensions)), (0.5,) * m)
    model = LocalModel("node-1", 2**63, 9, size, dimensions, basis, (0.25,) * m, belief, pods, 77)
    back = local.decode(local.parse(local.encode(model)))
    np.testing.assert_array_equal(back.basis, basis)
    assert dataclasses.replace(back, basis=APART) == dataclasses.replace(model, basis=APART)


@pytest.mark.parametrize(
    ("reason", "changes"),
    [
        ("not-finite", {"basis": [math.nan, 0, 0.4, 0]}),
        ("not-finite", {"basis": [0.3, 0, math.inf, 0]}),
        ("not-finite", {"basis": [math.inf, 0, -math.inf, 0]}),
        ("shape", {"basis": [0.3, 0.4, 0.5]}),
        ("shape", {"rank": 0}),
        ("shape", {"rank": 3, "basis": [0.1] * 6}),
        ("range", {"basis": [1e200, 0, 1e200, 0]}),
        ("range", {"basis": [1.2, 0, 1.2, 0]}),
        ("subspace", {"basis": [0.3, 0.3, 0.4, 0.4]}),
        ("subspace", {"basis": [-0.3, 0, 0.4, 0]}),
        ("shape", {"baseline": [0.1]}),
        ("not-finite", {"baseline": [0.1, math.nan]}),
        ("range", {"baseline": [0.1, -1]}),
        ("name", {"node": ""}),
        ("name", {"node": "a b"}),
        ("name", {"node": "x" * 300}),
        ("dimensions", {"dimensions": ["cpu", "cpu"]}),
        ("dimensions", {"dimensions": ["cpu", "Röhre"]}),
        ("dimensions", {"dimensions": []}),
        ("range", {"pods": 2**31}),
    ],
)
def test_what_cannot_be_is_refused(reason: str, changes: dict[str, Any]) -> None:
    message = local.parse(local.encode(local_model()))
    for field, value in changes.items():
        if isinstance(value, list):
            del getattr(message, field)[:]
            getattr(message, field).extend(value)
        else:
            setattr(message, field, value)
    with pytest.raises(InvalidMessage) as refused:
        local.decode(message)
    assert refused.value.reason == reason
    assert reason in checks.REASONS


@pytest.mark.parametrize(
    ("reason", "size", "cost"),
    [
        ("range", {"cores": 0.0}, {}),
        ("range", {"cores": 1e9}, {}),
        ("range", {"memory_bytes": 1e300}, {}),
        ("not-finite", {"memory_bytes": math.nan}, {}),
        ("not-finite", {}, {"mean": [math.inf, 1.0]}),
        ("range", {}, {"mean": [1e6, 1.0]}),
        ("range", {}, {"mean": [-0.1, 1.0]}),
        ("shape", {}, {"mean": [0.1]}),
        ("range", {}, {"variance": [-1.0, 1.0]}),
        ("not-finite", {}, {"variance": [math.nan, 1.0]}),
    ],
)
def test_sizes_and_costs_that_cannot_be_are_refused(
    reason: str, size: dict[str, float], cost: dict[str, list[float]]
) -> None:
    message = local.parse(local.encode(local_model()))
    for field, value in size.items():
        setattr(message.size, field, value)
    for field, values in cost.items():
        del getattr(message.cost, field)[:]
        getattr(message.cost, field).extend(values)
    with pytest.raises(InvalidMessage) as refused:
        local.decode(message)
    assert refused.value.reason == reason


@given(data=st.binary(max_size=200))
def test_random_bytes_are_refused_or_undecodable_and_nothing_else(data: bytes) -> None:
    for parse, decode in ((local.parse, local.decode), (replica.parse, replica.decode), (report.parse, report.decode)):
        with pytest.raises((InvalidMessage, UndecodableMessage)):
            decode(parse(data))


@given(data=st.data())
def test_a_message_with_flipped_bytes_is_valid_or_refused(data: st.DataObject) -> None:
    size = NodeSize(cores=4, memory_bytes=2.0**33)
    basis = np.array([[0.3, 0.0], [0.4, 0.0]])
    cost = CostBelief((0.5, 1e8), (0.1, 1e12))
    good = local.encode(LocalModel("n", 1, 1, size, ("cpu", "memory"), basis, (0.1, 0.1), cost, 1, 1))
    bad = bytearray(good)
    for _ in range(data.draw(st.integers(1, 4))):
        bad[data.draw(st.integers(0, len(bad) - 1))] = data.draw(st.integers(0, 255))
    try:
        model = local.decode(local.parse(bytes(bad)))
    except (InvalidMessage, UndecodableMessage):
        return
    assert np.isfinite(model.basis).all()


def test_the_clusters_model_survives_and_unknown_costs_stay_unknown() -> None:
    gram = np.array([[4.0, 1e10], [1e10, 1e20]])
    model = ClusterModel(3, 19, ("cpu", "memory"), gram, 7.5, CostBelief((0.5, 0.0), (0.01, math.inf)))
    back = cluster.decode(cluster.encode(model))
    assert isinstance(back, ClusterModel)
    np.testing.assert_array_equal(back.gram, gram)
    assert dataclasses.replace(back, gram=APART) == dataclasses.replace(model, gram=APART)
    assert cluster.decode(cluster.NONE_YET) is None


def test_a_refusal_names_the_sequence() -> None:
    answer = cluster.encode_refusal(pb.LocalSubspace(sequence=12), InvalidMessage("range", "σ₁ is 9"))
    assert cluster.decode(answer) == cluster.RejectedMessage(12, "range", "σ₁ is 9")


def test_a_node_divides_the_clusters_model_by_its_own_size() -> None:
    gram = np.array([[4.0, 2.0 * 2**30], [2.0 * 2**30, 2.0**62]])
    model = ClusterModel(1, 2, ("cpu", "memory"), gram, 1.0, CostBelief((1.0, 2.0**30), (0.04, 2.0**58)))
    view = cluster.view(model, NodeSize(4, 2.0**32), ("memory", "cpu"), own=np.eye(2))
    np.testing.assert_allclose(view.gram, [[0.25, 0.125], [0.125, 0.25]])
    assert view.cost == CostBelief((0.25, 0.25), (2.0**-6, 0.0025))


def test_a_dimension_that_the_cluster_lacks_stays_the_nodes_own() -> None:
    model = ClusterModel(1, 2, ("cpu",), np.array([[4.0]]), 1.0, CostBelief((1.0,), (0.04,)))
    own = np.array([[0.01, 0.03], [0.03, 0.25]])
    view = cluster.view(model, NodeSize(4, 2.0**32), ("cpu", "gpu"), own)
    np.testing.assert_allclose(view.gram, [[0.25, 0.0], [0.0, 0.25]])
    assert view.cost is not None
    assert view.cost.mean == (0.25, 0.0)
    assert view.cost.variance[1] == cluster.UNKNOWN_VARIANCE


def test_a_replicas_model_survives() -> None:
    points = CostPoints(np.array([0.5, 0.6]), np.array([0.01, 0.02]), np.array([1.0, 0.5]))
    model = ReplicaModel(
        "r1", 5, 6, ("cpu",), np.array([[4.0]]), np.array([[1.5]]), 2, 1.5, 3.0, (points,), frozenset({"n9"})
    )
    back = replica.decode(replica.parse(replica.encode(model)))
    np.testing.assert_array_equal(back.costs[0].weight, points.weight)
    assert (back.replica, back.nodes, back.weight, back.joined) == ("r1", 2, 1.5, frozenset({"n9"}))
    answered = replica.decode_reply(replica.encode_reply(model))
    assert isinstance(answered, ReplicaModel)
    assert answered.gram.tolist() == [[4.0]]
    assert replica.decode_reply(replica.YOURSELF) is None


def test_a_report_survives() -> None:
    sent = node_report(counted=None, at=-0.75, age=0.75, sequence=4)
    assert report.decode(report.parse(report.encode(sent))) == sent
    ack = report.Ack(8.5, True, cluster.RejectedMessage(4, "range", "no"))
    assert report.decode_ack(report.encode_ack(ack)) == ack


@pytest.mark.parametrize("field", ["pod_capacity", "capacity", "age", "cost_scalar", "sampled_at"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_report_that_is_not_finite_is_refused(field: str, value: Any) -> None:
    message = report.parse(report.encode(node_report()))
    setattr(message, field, value)
    with pytest.raises(InvalidMessage, match="not-finite"):
        report.decode(message)


def test_usage_beyond_one_is_refused() -> None:
    message = report.parse(report.encode(node_report()))
    message.usage[0] = 1.01
    with pytest.raises(CaricoError, match=r"range: usage is 1\.01"):
        report.decode(message)
