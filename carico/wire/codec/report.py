"""NodeReport and ReportAck: what nodes send to the schedulers, and what they receive."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from carico.errors import InvalidMessage
from carico.types import ClassKey, Estimate, Mode, NodeReport, NodeSize
from carico.wire.codec import checks, class_cost, cluster
from carico.wire.codec.cluster import RejectedMessage
from carico.wire.v1 import capacity_pb2 as pb
from carico.wire.v1 import common_pb2 as common

UIDS_LIMIT = 10_000  # per set; a node runs hundreds at most
UID_LIMIT = 128  # characters
CAPACITY_LIMIT = 1e6  # pods
VERSION_LIMIT = 64  # characters
FULL_LIMIT = 1e18  # of any resource
# One pod may cost more than all that the node gives to pods, which may be set to a share of it, but not by more.
COST_LIMIT = 2.0  # times what the node holds
LONGEST_GAP = 60.0  # s between two reports that a scheduler may request

_MODES = {Mode.SETTLED: pb.MODE_SETTLED, Mode.CHURN: pb.MODE_CHURN}
NO_CLASSES: Mapping[str, ClassKey | None] = MappingProxyType({})


class Ack(NamedTuple):
    heartbeat: float  # s
    leader: bool
    refused: RejectedMessage | None
    allocatable: NodeSize | None = None  # None: not known, or as before
    classes: Mapping[str, ClassKey | None] = NO_CLASSES  # of counted pods, by UID; None: no workload pod
    least_gap: float = 0.0  # s between two reports; 0: the agent's own rule
    takes_changes: bool = False  # whether sets may be sent as changes


def encode(report: NodeReport, known: NodeReport | None = None) -> bytes:
    """`known`: the report whose sets the other side has and accepts changes of."""
    estimate = report.estimate
    message = pb.NodeReport(
        node=report.node,
        start_id=report.start_id,
        sequence=report.sequence,
        sampled_at=report.sampled_at,
        age=report.age,
        pod_capacity=estimate.pod_capacity,
        capacity=estimate.signal_k,
        baseline_scalar=estimate.baseline_scalar,
        cost_scalar=estimate.cost_scalar,
        dimensions=report.dimensions,
        usage=estimate.usage,
        baseline=estimate.baseline_ratio,
        cost=estimate.cost_ratio,
        cost_absolute=report.cost_absolute,
        pods=estimate.pods,
        churn=report.churn,
        mode=_MODES[estimate.mode],
        rejecting=estimate.rejecting,
        **_set("counted", report.counted, None if known is None else known.counted),
        **_set("finished", report.finished, None if known is None else known.finished),
        agent_version=report.agent_version,
        room=estimate.room,
        full=report.full,
        class_costs=class_cost.messages_of(report.class_costs),
    )
    data: bytes = message.SerializeToString()
    return data


def _set(
    name: str, uids: frozenset[str] | None, known: frozenset[str] | None
) -> dict[str, pb.PodSet | pb.PodSetChange]:
    """The field that holds a set: whole, or its changes where those are fewer; none where it is left out."""
    if uids is None:
        return {}
    if known is not None and len(change := uids ^ known) < len(uids):
        added, removed = sorted(uids & change), sorted(known & change)
        return {f"{name}_change": pb.PodSetChange(added=added, removed=removed)}
    return {name: pb.PodSet(uids=sorted(uids))}


def parse(data: bytes) -> pb.NodeReport:
    return checks.parsed(pb.NodeReport, data)


def decode(message: pb.NodeReport, before: NodeReport | None = None) -> NodeReport:
    """The report in `message`, or InvalidMessage. `estimate.at` is minus its age, as if now were 0.

    `before` is the previous report on the same stream, with both sets: changes are relative to it.
    """
    dimensions = checks.dimensions(tuple(message.dimensions))
    if len(message.agent_version) > VERSION_LIMIT:
        raise InvalidMessage("name", f"an agent version of {len(message.agent_version)} characters")
    age = checks.number("age", message.age)
    full = checks.amounts("full", message.full, len(dimensions), FULL_LIMIT) if message.full else ()
    return NodeReport(
        node=checks.name(message.node),
        start_id=message.start_id,
        sequence=message.sequence,
        sampled_at=checks.number("sampled_at", message.sampled_at),
        age=age,
        dimensions=dimensions,
        estimate=_estimate(message, len(dimensions), at=-age),
        churn=message.churn,
        cost_absolute=checks.amounts("cost_absolute", message.cost_absolute, len(dimensions)),
        counted=_set_of("counted", message, None if before is None else before.counted),
        finished=_set_of("finished", message, None if before is None else before.finished),
        agent_version=message.agent_version,
        full=full,
        class_costs=class_cost.of_node(message.class_costs, cost_limits(full, dimensions)),
    )


def cost_limits(full: tuple[float, ...], dimensions: tuple[str, ...]) -> tuple[float, ...]:
    """What a class may cost in a report of a node that holds `full`; the largest possible values if unknown."""
    largest = class_cost.limits_of_any_node(dimensions)
    return tuple([min(COST_LIMIT * has, most) for has, most in zip(full, largest, strict=True)]) if full else largest


def _estimate(message: pb.NodeReport, m: int, at: float) -> Estimate:
    return Estimate(
        at=at,
        usage=checks.amounts("usage", message.usage, m, most=1.0),
        signal_k=checks.number("capacity", message.capacity),
        baseline_ratio=checks.amounts("baseline", message.baseline, m),
        cost_ratio=checks.amounts("cost", message.cost, m),
        baseline_scalar=checks.number("baseline_scalar", message.baseline_scalar, least=-math.inf),
        cost_scalar=checks.number("cost_scalar", message.cost_scalar, least=-math.inf),
        pods=int(checks.number("pods", message.pods, most=checks.PODS_LIMIT)),
        pod_capacity=checks.number("pod_capacity", message.pod_capacity, most=CAPACITY_LIMIT),
        # A mode that this version does not know is a reason not to trust the usage of this second.
        mode=Mode.SETTLED if message.mode == pb.MODE_SETTLED else Mode.CHURN,
        rejecting=message.rejecting,
        room=checks.amounts("room", message.room, m, FULL_LIMIT) if message.room else (),
    )


def _set_of(name: str, message: pb.NodeReport, before: frozenset[str] | None) -> frozenset[str] | None:
    """The set of this name; None where it is left out."""
    whole, changed = message.HasField(name), message.HasField(f"{name}_change")
    if whole and changed:
        raise InvalidMessage("shape", f"{name} is sent whole and by its changes")
    if whole:
        return _uids(name, getattr(message, name).uids)
    return _changed(name, getattr(message, f"{name}_change"), before) if changed else None


def _changed(name: str, change: pb.PodSetChange, before: frozenset[str] | None) -> frozenset[str]:
    if before is None:
        raise InvalidMessage("shape", f"changes of {name}, which is not known")
    added, removed = _uids(name, change.added), _uids(name, change.removed)
    if added & before or not removed <= before:
        raise InvalidMessage("shape", f"changes of {name} that do not fit what is known")
    if len(before) + len(added) - len(removed) > UIDS_LIMIT:
        raise InvalidMessage("shape", f"{name} would have more than {UIDS_LIMIT} UIDs")
    return before - removed | added


def _uids(what: str, uids: Sequence[str]) -> frozenset[str]:
    if len(uids) > UIDS_LIMIT or any(not 1 <= len(uid) <= UID_LIMIT for uid in uids):
        raise InvalidMessage("shape", f"{what} has {len(uids)} UIDs, or one that is empty or too long")
    return frozenset(uids)


def encode_ack(ack: Ack) -> bytes:
    size = ack.allocatable
    message = pb.ReportAck(
        heartbeat_seconds=ack.heartbeat,
        leader=ack.leader,
        refusal=None if ack.refused is None else common.Refusal(**ack.refused._asdict()),
        allocatable=None if size is None else pb.Allocatable(cores=size.cores, memory_bytes=size.memory_bytes),
        classes=[pb.PodClass(uid=uid, **(key._asdict() if key else {})) for uid, key in ack.classes.items()],
        least_gap_seconds=ack.least_gap,
        takes_changes=ack.takes_changes,
    )
    data: bytes = message.SerializeToString()
    return data


def decode_ack(data: bytes) -> Ack:
    message = checks.parsed(pb.ReportAck, data)
    return Ack(
        heartbeat=checks.number("heartbeat_seconds", message.heartbeat_seconds, least=0.1, most=3600.0),
        leader=message.leader,
        refused=cluster.refused(message.refusal) if message.HasField("refusal") else None,
        allocatable=_allocatable(message.allocatable) if message.HasField("allocatable") else None,
        classes=_classes(message.classes),
        least_gap=checks.number("least_gap_seconds", message.least_gap_seconds, most=LONGEST_GAP),
        takes_changes=message.takes_changes,
    )


def _allocatable(message: pb.Allocatable) -> NodeSize:
    """A node's allocatable resources may be zero."""
    return NodeSize(
        cores=checks.number("allocatable cores", message.cores, most=checks.CORES_LIMIT),
        memory_bytes=checks.number("allocatable memory", message.memory_bytes, most=checks.BYTES_LIMIT),
    )


def _classes(messages: Sequence[pb.PodClass]) -> Mapping[str, ClassKey | None]:
    if not messages:
        return NO_CLASSES
    uids = _uids("classes", [message.uid for message in messages])
    if len(uids) != len(messages):
        raise InvalidMessage("shape", "a pod has two classes")
    return {m.uid: class_cost.key(m.namespace, m.family, m.revision) if m.family else None for m in messages}
