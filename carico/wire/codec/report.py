"""NodeReport and ReportAck: what nodes tell the schedulers, and the little that they hear back."""

from __future__ import annotations

import math
from typing import NamedTuple

from carico.errors import RefusedMessage
from carico.types import Estimate, Mode, NodeReport
from carico.wire.codec import checks, cluster
from carico.wire.codec.cluster import Refused
from carico.wire.v1 import capacity_pb2 as pb
from carico.wire.v1 import common_pb2 as common

UIDS_LIMIT = 10_000  # per set; a node runs hundreds at most
UID_LIMIT = 128  # characters
CAPACITY_LIMIT = 1e6  # pods
VERSION_LIMIT = 64  # characters

_MODES = {Mode.SETTLED: pb.MODE_SETTLED, Mode.CHURN: pb.MODE_CHURN}
_MODES_BACK = {number: mode for mode, number in _MODES.items()}


class Ack(NamedTuple):
    heartbeat: float  # s
    leader: bool
    refused: Refused | None


def encode(report: NodeReport) -> bytes:
    estimate = report.estimate
    message = pb.NodeReport(
        node=report.node,
        start_id=report.start_id,
        sequence=report.sequence,
        sampled_at=report.sampled_at,
        age=report.age,
        pod_capacity=estimate.pod_capacity,
        capacity=estimate.capacity,
        baseline_scalar=estimate.baseline_scalar,
        cost_scalar=estimate.cost_scalar,
        dimensions=report.dimensions,
        usage=estimate.usage,
        baseline=estimate.baseline,
        cost=estimate.cost,
        cost_absolute=report.cost,
        pods=estimate.pods,
        churn=report.churn,
        mode=_MODES[estimate.mode],
        rejecting=estimate.rejecting,
        counted=None if report.counted is None else pb.PodSet(uids=sorted(report.counted)),
        finished=None if report.finished is None else pb.PodSet(uids=sorted(report.finished)),
        agent_version=report.agent_version,
    )
    data: bytes = message.SerializeToString()
    return data


def parse(data: bytes) -> pb.NodeReport:
    return checks.parsed(pb.NodeReport, data)


def decode(message: pb.NodeReport) -> NodeReport:
    """The report in `message`, or RefusedMessage. `estimate.at` is minus its age, as if now were 0."""
    dimensions = checks.dimensions(tuple(message.dimensions))
    if len(message.agent_version) > VERSION_LIMIT:
        raise RefusedMessage("name", f"an agent version of {len(message.agent_version)} characters")
    age = checks.number("age", message.age)
    return NodeReport(
        node=checks.name(message.node),
        start_id=message.start_id,
        sequence=message.sequence,
        sampled_at=checks.number("sampled_at", message.sampled_at),
        age=age,
        dimensions=dimensions,
        estimate=_estimate(message, len(dimensions), at=-age),
        churn=message.churn,
        cost=checks.amounts("cost_absolute", message.cost_absolute, len(dimensions)),
        counted=_uids("counted", message.counted) if message.HasField("counted") else None,
        finished=_uids("finished", message.finished) if message.HasField("finished") else None,
        agent_version=message.agent_version,
    )


def _estimate(message: pb.NodeReport, m: int, at: float) -> Estimate:
    if message.mode not in _MODES_BACK:
        raise RefusedMessage("range", f"mode {message.mode} is neither settled nor churn")
    return Estimate(
        at=at,
        usage=checks.amounts("usage", message.usage, m, most=1.0),
        capacity=checks.number("capacity", message.capacity),
        baseline=checks.amounts("baseline", message.baseline, m),
        cost=checks.amounts("cost", message.cost, m),
        baseline_scalar=checks.number("baseline_scalar", message.baseline_scalar, least=-math.inf),
        cost_scalar=checks.number("cost_scalar", message.cost_scalar, least=-math.inf),
        pods=int(checks.number("pods", message.pods, most=checks.PODS_LIMIT)),
        pod_capacity=checks.number("pod_capacity", message.pod_capacity, most=CAPACITY_LIMIT),
        mode=_MODES_BACK[message.mode],
        rejecting=message.rejecting,
    )


def _uids(what: str, message: pb.PodSet) -> frozenset[str]:
    if len(message.uids) > UIDS_LIMIT or any(not 1 <= len(uid) <= UID_LIMIT for uid in message.uids):
        raise RefusedMessage("shape", f"{what} has {len(message.uids)} UIDs, or one that is empty or too long")
    return frozenset(message.uids)


def encode_ack(ack: Ack) -> bytes:
    refusal = None if ack.refused is None else common.Refusal(**ack.refused._asdict())
    message = pb.ReportAck(heartbeat_seconds=ack.heartbeat, leader=ack.leader, refusal=refusal)
    data: bytes = message.SerializeToString()
    return data


def decode_ack(data: bytes) -> Ack:
    message = checks.parsed(pb.ReportAck, data)
    refused = None
    if message.HasField("refusal"):
        refused = cluster.refused(message.refusal)
    heartbeat = checks.number("heartbeat_seconds", message.heartbeat_seconds, least=0.1, most=3600.0)
    return Ack(heartbeat, message.leader, refused)
