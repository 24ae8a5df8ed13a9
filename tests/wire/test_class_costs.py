"""Class costs, room and changes of pod sets on the wire; messages of the first version, and of versions to come."""

from __future__ import annotations

import base64
import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carico.errors import InvalidMessage
from carico.estimate.prior import Prior
from carico.types import ClassKey, ClusterModel, CostBelief, CostPoints, LocalModel, Mode, NodeSize, ReplicaModel
from carico.wire.codec import checks, classes, cluster, local, replica, report
from carico.wire.codec import class_cost as costs_codec
from carico.wire.codec.classes import ClassName, Costs, Query
from carico.wire.v1 import capacity_pb2 as capacity
from harness.wire.messages import class_cost, local_model, node_report

FIRST_VERSION = Path(__file__).parents[1] / "fixtures" / "wire" / "first-version.json"
APART: Any = None  # instead of an array, which is compared apart


def through(model: LocalModel) -> LocalModel:
    return local.decode(local.parse(local.encode(model)))


def test_class_costs_survive_in_every_message() -> None:
    costs = (class_cost("web"), class_cost("db", pods=0, ramp=0.0))
    assert through(local_model(class_costs=costs)).class_costs == costs
    sent = node_report(class_costs=costs, room=(1.5, 2.0**31), full=(7.9, 2.0**33), at=-0.5, age=0.5)
    assert report.decode(report.parse(report.encode(sent))) == sent
    many = dataclasses.replace(costs[0], nodes=12, pods=200_000)
    points = CostPoints(np.zeros(0), np.zeros(0), np.zeros(0))
    model = ReplicaModel(
        "r", 1, 1, ("cpu", "memory"), np.eye(2), np.eye(2), 1, 1.0, 0.0, (points, points), frozenset(), (many,)
    )
    assert replica.decode(replica.parse(replica.encode(model))).class_costs == (many,)


def test_an_infinity_is_refused_in_a_resource_of_unknown_size_too() -> None:
    limits = costs_codec.limits_of(NodeSize(4, 2.0**33), ("cpu", "gpu"))
    good = class_cost(mean=(0.5, 1e30), variance=(0.0, 0.0), high=(0.5, 1e30), use_high=(0.5, 0.0))
    assert costs_codec.of_node([costs_codec.message_of(good)], limits) == (good,)
    bad = dataclasses.replace(good, high=(0.5, math.inf))
    with pytest.raises(InvalidMessage) as caught:
        costs_codec.of_node([costs_codec.message_of(bad)], limits)
    assert caught.value.reason == "not-finite"


def test_all_nodes_that_name_a_class_share_one_name() -> None:
    one, other = (through(local_model(class_costs=(class_cost(),))).class_costs[0].key for _ in range(2))
    assert one is other
    assert classes.name_of(one) is classes.name_of(other)


@pytest.mark.parametrize(
    ("reason", "changes"),
    [
        ("not-finite", {"mean": (math.nan, 1.0)}),
        ("not-finite", {"weight": math.inf}),
        ("range", {"mean": (-0.1, 1.0)}),
        ("range", {"variance": (-1.0, 1.0)}),
        ("range", {"weight": -1.0}),
        ("range", {"ramp": -1.0}),
        ("range", {"ramp": 1e9}),
        ("range", {"pods": 2**31}),
        ("shape", {"mean": (0.1,)}),
        ("shape", {"high": (0.1, 0.2, 0.3)}),
        ("range", {"mean": (8.1, 1.0)}),
        ("range", {"high": (0.1, 2.0**33 + 9.0)}),
        ("range", {"use_high": (9.0, 0.0)}),
        ("name", {"key": ClassKey("team-a", "", "")}),
        ("name", {"key": ClassKey("team-a", "x" * 321, "")}),
        ("name", {"key": ClassKey("x" * 64, "web", "")}),
        ("name", {"key": ClassKey("team-a", "web", "x" * 129)}),
        ("name", {"key": ClassKey("team-a", "web\x1b[2J", "")}),
    ],
)
def test_class_costs_that_cannot_be_are_refused(reason: str, changes: dict[str, Any]) -> None:
    """The node has 4 cores and 8 GiB: nothing that runs there can need more than 8 cores of demand."""
    with pytest.raises(InvalidMessage) as refused:
        through(local_model(class_costs=(class_cost(**changes),)))
    assert refused.value.reason == reason
    assert reason in checks.REASONS


def test_too_many_classes_or_one_twice_are_refused() -> None:
    with pytest.raises(InvalidMessage, match="shape: 65 classes"):
        through(local_model(class_costs=tuple(class_cost(f"c{i}") for i in range(65))))
    with pytest.raises(InvalidMessage, match="twice"):
        through(local_model(class_costs=(class_cost(), class_cost(pods=9))))


def test_a_node_cuts_its_claims_off_at_its_own_size() -> None:
    """A hundred busy threads in one pod on four cores: the pod fills the node, and the message is taken."""
    model = local_model()
    limits = costs_codec.limits_of(model.size, model.dimensions)
    said = costs_codec.claim(class_cost(mean=(100.0, 1e12), high=(200.0, 1e12), variance=(1e9, 1e30)), limits)
    assert said is not None
    assert said.mean == (8.0, 2.0**33)
    assert through(local_model(class_costs=(said,))).class_costs == (said,)
    assert costs_codec.claim(class_cost(key=ClassKey("a", "x" * 400, "")), limits) is None


def test_a_report_may_not_claim_more_than_twice_what_the_node_holds() -> None:
    sent = node_report(full=(4.0, 2.0**32), room=(1.0, 1.0), class_costs=(class_cost(mean=(8.5, 1.0)),))
    with pytest.raises(InvalidMessage, match="range: mean of a class"):
        report.decode(report.parse(report.encode(sent)))


@pytest.mark.parametrize("field", ["room", "full"])
@pytest.mark.parametrize(
    ("values", "reason"),
    [([-1.0, 1.0], "range"), ([math.nan, 1.0], "not-finite"), ([1.0], "shape"), ([1.0, 1e300], "range")],
)
def test_room_that_cannot_be_is_refused(field: str, values: list[float], reason: str) -> None:
    message = report.parse(report.encode(node_report()))
    getattr(message, field).extend(values)
    with pytest.raises(InvalidMessage, match=reason):
        report.decode(message)


def test_unknown_resources_are_no_fault() -> None:
    """An agent of a later version that accounts GPUs."""
    cost = class_cost(mean=(0.5, 9.0, 1.0), variance=(0.0, 9e9, 0.0), high=(0.5, 9.0, 1.0), use_high=(0.5, 9.0, 1.0))
    model = local_model(
        dimensions=("cpu", "gpu", "memory"), basis=np.eye(3)[:, :1], baseline=(0, 0, 0), cost=None, class_costs=(cost,)
    )
    assert through(model).class_costs == (cost,)


def recorded(name: str) -> bytes:
    return base64.b64decode(json.loads(FIRST_VERSION.read_text())[name])


def test_messages_of_the_first_version_mean_the_same() -> None:
    model = local.decode(local.parse(recorded("local")))
    expected = local_model(sequence=3)
    np.testing.assert_array_equal(model.basis, expected.basis)
    assert dataclasses.replace(model, basis=APART) == dataclasses.replace(expected, basis=APART)
    said = report.decode(report.parse(recorded("report")))
    sent = node_report(at=-0.75, age=0.75, sequence=4, churn=True, finished=None)
    estimate = dataclasses.replace(sent.estimate, mode=Mode.CHURN, rejecting=True)
    assert said == dataclasses.replace(sent, estimate=estimate)
    assert (said.estimate.room, said.full, said.class_costs) == ((), (), ())
    peer = replica.decode(replica.parse(recorded("replica")))
    assert (peer.replica, peer.nodes, peer.joined, peer.class_costs) == ("r1", 2, frozenset({"n9"}), ())
    received = cluster.decode(recorded("cluster"))
    assert isinstance(received, ClusterModel)
    assert received.cost == CostBelief((0.5, 0.0), (0.01, math.inf))
    assert cluster.decode_next_ask(recorded("cluster")) == 0.0
    assert cluster.decode(recorded("none_yet")) is None
    assert report.decode_ack(recorded("ack")) == report.Ack(8.5, True, cluster.RejectedMessage(4, "range", "no"))


@pytest.mark.parametrize("mode", [0, 3, 77])
def test_a_mode_that_is_not_known_counts_as_churn(mode: int) -> None:
    """A later agent with a third mode must not make its node stale on schedulers that do not know it."""
    message = report.parse(report.encode(node_report()))
    message.mode = mode
    assert report.decode(message).estimate.mode is Mode.CHURN


def test_fields_that_are_not_known_are_no_fault() -> None:
    assert report.decode(report.parse(report.encode(node_report()) + b"\xfa\x07\x03new")) is not None


uids = st.frozensets(st.text("abcdef", min_size=1, max_size=3), max_size=40)


@given(before=uids, counted=uids, finished=uids)
def test_changes_of_sets_arrive_as_the_sets(
    before: frozenset[str], counted: frozenset[str], finished: frozenset[str]
) -> None:
    old = node_report(counted=before, finished=before, sequence=1)
    new = node_report(counted=counted, finished=finished, sequence=2, at=0.0)
    assert report.decode(report.parse(report.encode(new, known=old)), old).counted == counted
    assert report.decode(report.parse(report.encode(new, known=old)), old).finished == finished


def test_one_pod_among_hundreds_is_sent_as_a_change() -> None:
    many = frozenset(f"{i:036d}" for i in range(500))
    whole = node_report(counted=many)
    after = report.encode(node_report(counted=many | {"new"}, finished=None), known=whole)
    assert len(after) < 300 < len(report.encode(whole))


@pytest.mark.parametrize(
    ("added", "removed"), [(["uid-1"], []), ([], ["uid-9"]), (["x" * 200], []), ([f"n{i}" for i in range(9_999)], [])]
)
def test_changes_that_do_not_fit_are_refused(added: list[str], removed: list[str]) -> None:
    message = report.parse(report.encode(node_report(counted=None, finished=None)))
    message.counted_change.CopyFrom(capacity.PodSetChange(added=added, removed=removed))
    with pytest.raises(InvalidMessage, match="shape"):
        report.decode(message, node_report())
    with pytest.raises(InvalidMessage, match="shape"):
        report.decode(message, None)


def test_an_ack_has_the_nodes_allocatable_and_the_classes_of_its_pods() -> None:
    told = {"uid-1": ClassKey("a", "a/web", "r1"), "uid-2": None}
    ack = report.Ack(5.0, False, None, NodeSize(7.5, 2.0**33), told, 2.0, True)
    assert report.decode_ack(report.encode_ack(ack)) == ack


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("range", {"allocatable": {"cores": -1.0, "memory_bytes": 1.0}}),
        ("not-finite", {"allocatable": {"cores": 1.0, "memory_bytes": math.inf}}),
        ("range", {"least_gap_seconds": 1e9}),
        ("shape", {"classes": [{"uid": "u", "family": "f"}, {"uid": "u", "family": "g"}]}),
        ("name", {"classes": [{"uid": "u", "family": "x" * 400}]}),
    ],
)
def test_an_ack_that_cannot_be_is_refused(reason: str, message: dict[str, Any]) -> None:
    data = capacity.ReportAck(heartbeat_seconds=5.0, **message).SerializeToString()
    with pytest.raises(InvalidMessage, match=reason):
        report.decode_ack(data)


def test_class_costs_are_streamed_in_parts() -> None:
    many = [class_cost(f"c{i}", nodes=3) for i in range(2_500)]
    parts = classes.encode(77, ("cpu", "memory"), [classes.chunk(cost) for cost in many], whole=True)
    received = [classes.decode(part) for part in parts]
    assert [(part.version, part.whole, len(part.costs)) for part in received] == [
        (0, True, 1000),
        (0, False, 1000),
        (77, False, 500),
    ]
    assert [cost for part in received for cost in part.costs] == many
    gone = [ClassName("team-a/old", "")]
    (delta,) = classes.encode(78, ("cpu", "memory"), [], gone, whole=False)
    assert classes.decode(delta) == Costs(78, False, ("cpu", "memory"), (), tuple(gone))
    query = Query(5, 256, frozenset({ClassName("a/web", "r1")}))
    assert classes.decode_query(classes.encode_query(query)) == query


def test_a_cost_that_no_node_knows_is_unknown_to_a_node_too() -> None:
    """Once it was cost 0 with a spread that the prior took for knowledge."""
    model = ClusterModel(1, 2, ("cpu",), np.array([[4.0]]), 1.0, CostBelief((1.0,), (0.04,)))
    view = cluster.view(model, NodeSize(4, 2.0**32), ("cpu", "memory", "gpu"), np.eye(3))
    prior = Prior(3)
    prior.adopt(view.cost)
    assert prior.mix(0, None) == 0.25
    assert (prior.mix(1, None), prior.mix(2, None)) == (None, None)


def test_a_model_beyond_this_node_leaves_it_its_own_matrix_and_the_clusters_cost() -> None:
    gram = np.diag([16_384.0**2, 2.0**100])
    model = ClusterModel(1, 2, ("cpu", "memory"), gram, 1.0, CostBelief((1.0, 2.0**30), (0.04, 2.0**58)))
    own = np.array([[0.09, 0.01], [0.01, 0.16]])
    view = cluster.view(model, NodeSize(2, 2.0**30), ("cpu", "memory"), own)
    np.testing.assert_array_equal(view.gram, own)
    assert view.cost is not None
    assert view.cost.mean == (0.5, 1.0)
