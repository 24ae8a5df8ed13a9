"""The formats in which a response can be requested: objects as stored, another group's view of them, or a Table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from carico.embedded.apiserver import tables
from carico.embedded.apiserver.history import ObjectChange, ObjectRecord, Plain
from carico.embedded.apiserver.kinds import ApiKind


@dataclass(frozen=True)
class Form:
    kind: ApiKind
    table: bool = False
    include: str = "Metadata"  # what a row of a Table carries: Metadata, Object or None

    @property
    def key(self) -> tuple[str, bool, str]:
        return self.kind.group, self.table, self.include

    def one(self, record: ObjectRecord, now: float) -> bytes:
        if self.table:
            return msgspec.json.encode(self._table([record], now))
        return self._raw(record)

    def many(self, records: Sequence[ObjectRecord], meta: Plain, now: float) -> bytes:
        if self.table:
            return msgspec.json.encode(self._table(records, now) | {"metadata": meta})
        head = {"kind": f"{self.kind.kind}List", "apiVersion": self.kind.api_version, "metadata": meta}
        items = b",".join([self._raw(record) for record in records])
        return msgspec.json.encode(head)[:-1] + b',"items":[' + items + b"]}\n"

    def line(self, change: ObjectChange, kind: str, record: ObjectRecord, now: float) -> bytes:
        """The change as a watch event. Tables contain ages and are therefore encoded again each time."""
        if self.table:
            return event(kind, self.one(record, now))
        key = (self.key, kind)
        found = change.lines.get(key)
        if found is None:
            found = change.lines[key] = event(kind, self._raw(record))
        return found

    def bookmark(self, version: int, initial_end: bool = False) -> bytes:
        meta: Plain = {"resourceVersion": str(version), "creationTimestamp": None}
        if initial_end:
            meta["annotations"] = {"k8s.io/initial-events-end": "true"}
        if self.table:
            return event("BOOKMARK", msgspec.json.encode(tables.empty() | {"metadata": meta}))
        head = {"kind": self.kind.kind, "apiVersion": self.kind.api_version, "metadata": meta}
        return event("BOOKMARK", msgspec.json.encode(head))

    def _raw(self, record: ObjectRecord) -> bytes:
        return record.raw if self.kind.view is None else msgspec.json.encode(self.kind.view.outward(record.plain))

    def _table(self, records: Sequence[ObjectRecord], now: float) -> dict[str, Any]:
        rows = [{"cells": tables.cells(self.kind, r.plain, now), "object": self._object(r)} for r in records]
        meta = {"resourceVersion": str(records[0].version)} if len(records) == 1 else {}
        return tables.empty() | {"metadata": meta, "columnDefinitions": tables.columns(self.kind), "rows": rows}

    def _object(self, record: ObjectRecord) -> Plain | None:
        if self.include == "None":
            return None
        if self.include == "Object":
            return record.plain if self.kind.view is None else self.kind.view.outward(record.plain)
        return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": record.plain["metadata"]}


def event(kind: str, raw: bytes) -> bytes:
    return b'{"type":"' + kind.encode() + b'","object":' + raw + b"}\n"


def requested(kind: ApiKind, accept: str, query: dict[str, str]) -> Form:
    """
    >>> from carico.embedded.apiserver.kinds import PODS
    >>> requested(PODS, "application/json;as=Table;v=v1;g=meta.k8s.io,application/json", {}).table
    True
    """
    first = accept.partition(",")[0]
    table = "as=Table" in first and "g=meta.k8s.io" in first
    return Form(kind, table, query.get("includeObject", "Metadata"))
