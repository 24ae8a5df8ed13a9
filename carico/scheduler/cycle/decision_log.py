"""A bounded ring of decisions, to be read (`/debug/decisions`), dumped and replayed.

One record is one line of JSON. `replay` goes through a dump in order and checks every decision again, against its own
or another threshold: it finds nodes that were reserved with less free capacity than the pod needs, and pods that were
reserved on two nodes. `carico decisions` is the command for that (commands/decisions.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice

import msgspec

ROUNDED = 0.0005  # pods; records are rounded to three places


class DecisionRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    at: float  # s since the epoch
    pod: str  # namespace/name
    uid: str
    profile: str
    attempt: int
    node: str = ""  # empty: none was found
    result: str = "scheduled"  # scheduled, unschedulable, error; after the cycle: gone, elsewhere, failed, rejected
    feasible: int = 0
    nodes: int = 0
    free_before: float | None = None  # pods; None: the report of the node was not used
    units: float = 1.0
    reasons: str = ""
    micros: float = 0.0  # duration of the cycle
    need: float | None = None  # pods of free capacity that the pod took: threshold × units; None in older dumps


class DecisionLog:
    def __init__(self, size: int) -> None:
        self._records: deque[DecisionRecord] = deque(maxlen=size)
        self.added = 0  # total, including those that were overwritten

    def add(self, record: DecisionRecord) -> None:
        self._records.append(record)
        self.added += 1

    def __len__(self) -> int:
        return len(self._records)

    def of_pod(self, key: str) -> list[DecisionRecord]:
        return [record for record in self._records if record.pod == key]

    def latest(self, most: int) -> list[DecisionRecord]:
        """The last `most` records, the newest first."""
        return list(islice(reversed(self._records), most))

    def dump(self) -> bytes:
        return b"".join(msgspec.json.encode(record) + b"\n" for record in self._records)


def load(dump: bytes) -> list[DecisionRecord]:
    """The records of a dump; other lines, such as log lines between them, are skipped."""
    decoder, records = msgspec.json.Decoder(DecisionRecord), []
    for line in dump.splitlines():
        with suppress(msgspec.DecodeError):
            records.append(decoder.decode(line))
    return records


def replay(records: Iterable[DecisionRecord], threshold: float | None = None) -> list[str]:
    """Decisions that violate `free ≥ threshold × units`, or assign one pod two nodes without a failure between.

    Each is checked against the threshold that was in force when it was made, unless another one is given.
    """
    wrong: list[str] = []
    placed: dict[str, str] = {}
    for record in records:
        if record.result in ("gone", "elsewhere", "failed", "rejected"):
            placed.pop(record.uid, None)
        if record.result != "scheduled":
            continue
        if record.free_before is not None and record.free_before < _need(record, threshold) - ROUNDED:
            wrong.append(f"{record.pod} went to {record.node}, which had only {record.free_before:g} pods free")
        if placed.get(record.uid, record.node) != record.node:
            wrong.append(f"{record.pod} was assigned {placed[record.uid]} and then {record.node}")
        placed[record.uid] = record.node
    return wrong


def _need(record: DecisionRecord, threshold: float | None) -> float:
    if threshold is None and record.need is not None:
        return record.need
    return record.units if threshold is None else threshold * record.units
