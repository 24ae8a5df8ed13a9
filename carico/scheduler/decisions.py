"""A bounded ring of what was decided, to be read (`/debug/decisions`), dumped and replayed.

One record is one line of JSON. `replay` puts the records of a dump through a fresh ledger and says where it would have
disagreed: a node that was promised while it had less free capacity than the record needs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice

import msgspec


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    at: float  # s since the epoch
    pod: str  # namespace/name
    uid: str
    profile: str
    attempt: int
    node: str = ""  # empty: none was found
    result: str = "scheduled"  # scheduled, unschedulable, error, and later: bound, gone, elsewhere, failed
    feasible: int = 0
    nodes: int = 0
    free_before: float = 0.0  # pods
    units: float = 1.0
    reasons: str = ""
    micros: float = 0.0  # the cycle's time


class Ring:
    def __init__(self, size: int) -> None:
        self._records: deque[Record] = deque(maxlen=size)
        self.added = 0  # in all, with those that have fallen out again

    def add(self, record: Record) -> None:
        self._records.append(record)
        self.added += 1

    def __len__(self) -> int:
        return len(self._records)

    def of_pod(self, key: str) -> list[Record]:
        return [record for record in self._records if record.pod == key]

    def latest(self, most: int) -> list[Record]:
        """The last `most` records, the newest first."""
        return list(islice(reversed(self._records), most))

    def dump(self) -> bytes:
        return b"".join(msgspec.json.encode(record) + b"\n" for record in self._records)


def load(dump: bytes) -> list[Record]:
    decoder = msgspec.json.Decoder(Record)
    return [decoder.decode(line) for line in dump.splitlines() if line]


def replay(records: Iterable[Record], threshold: float = 1.0) -> list[str]:
    """Decisions that broke the rule `free ≥ threshold × units`, or gave one pod two nodes without a failure between."""
    wrong: list[str] = []
    placed: dict[str, str] = {}
    for record in records:
        if record.result in ("gone", "elsewhere", "failed"):
            placed.pop(record.uid, None)
        if record.result != "scheduled":
            continue
        if record.free_before < threshold * record.units - 1e-9:
            wrong.append(f"{record.pod} went to {record.node}, which had only {record.free_before:g} pods free")
        if placed.get(record.uid, record.node) != record.node:
            wrong.append(f"{record.pod} was promised {placed[record.uid]} and then {record.node}")
        placed[record.uid] = record.node
    return wrong
