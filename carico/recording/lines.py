"""Parses recordings of gzip over lines of JSON; format.py describes the lines."""

from __future__ import annotations

import logging
import zlib
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from carico.errors import UsageError
from carico.types import ClassKey, MeasuredPod

log = logging.getLogger(__name__)

GZIP = b"\x1f\x8b"
WITH_GZIP_HEAD = 31  # wbits of zlib
FORMAT = 2
NUMBERED = ("pod", "age", "running", "exact", "fresh")  # before demand and use
PIECE = 1 << 16  # bytes passed to zlib at once; small, because zlib copies the bytes after a member
LONGEST_LINE = 1 << 24  # bytes
MOST_BYTES = 1 << 32  # of all lines: a small gzip file can expand to terabytes


class PodSecond(NamedTuple):
    row: int  # of the sample with which the pods were measured
    pods: tuple[MeasuredPod, ...]


class RecordedSecond(msgspec.Struct):
    pods: list[list[float | None]]
    names: dict[str, tuple[str, ...]] = {}


Parsed = tuple[tuple[str, ...], NDArray[np.float64], Mapping[str, Any], tuple[PodSecond, ...]]
_decode_head = msgspec.json.Decoder(dict[str, Any]).decode
_decode = msgspec.json.Decoder(list[float] | RecordedSecond).decode


def parse(path: Path, data: bytes) -> Parsed:
    """Columns, values as rows × columns, metadata of the recorder, and measurements of pods."""
    lines = _lines(path, data)
    head = _head(path, next(lines, b""))
    columns, pods = tuple(head["columns"]), _Pods(path, len(head["resources"]))
    values, rows = array("d"), 0
    for number, text in enumerate(lines, start=2):
        try:
            line = _decode(text)
        except msgspec.DecodeError as error:
            raise UsageError(f"{path}: line {number}: {error}") from None
        if isinstance(line, RecordedSecond):
            pods.add(number, rows - 1, line)
        elif len(line) != len(columns):
            raise UsageError(f"{path}: line {number} has {len(line)} values instead of {len(columns)}")
        else:
            values.extend(line)
            rows += 1
    table = np.frombuffer(values, dtype=np.float64) if rows else np.empty(0)
    return columns, table.reshape(rows, len(columns)), head, tuple(pods.seconds)


def _head(path: Path, text: bytes) -> dict[str, Any]:
    try:
        head = _decode_head(text)
        if head.get("carico") != "recording":
            raise UsageError(f"{path} is gzip, but no Carico recording")
        if head.get("format") != FORMAT:
            raise UsageError(f"{path} has format {head.get('format')!r}, which this version cannot read")
        for name in ("columns", "resources"):
            head[name] = msgspec.convert(head.get(name), list[str])
    except msgspec.MsgspecError:
        raise UsageError(f"{path}: the first line does not name the columns") from None
    if not head["columns"]:
        raise UsageError(f"{path}: the first line does not name the columns")
    return head


class _Pods:
    """The lines about pods, with the names that they refer to."""

    def __init__(self, path: Path, resources: int) -> None:
        self._path = path
        self._resources = resources
        self._names: dict[int, tuple[str, ClassKey | None]] = {}
        self.seconds: list[PodSecond] = []

    def add(self, line: int, row: int, second: RecordedSecond) -> None:
        try:
            for number, name in second.names.items():
                self._names[int(number)] = (name[0], ClassKey(*name[1:]) if len(name) > 1 else None)
            self.seconds.append(PodSecond(row, tuple([self._pod(figures) for figures in second.pods])))
        except (KeyError, TypeError, ValueError, IndexError, OverflowError):
            raise UsageError(f"{self._path}: line {line}: a pod is not named or has other columns") from None

    def _pod(self, figures: list[float | None]) -> MeasuredPod:
        number, age, running, exact, fresh, *shares = figures
        uid, key = self._names[int(number or 0)]
        if shares == [None]:
            demand = use = None
        else:
            amounts = [float(value) for value in shares if value is not None and value >= 0.0]
            if len(amounts) != 2 * self._resources or len(shares) != len(amounts):
                raise ValueError(shares)
            demand, use = tuple(amounts[: self._resources]), tuple(amounts[self._resources :])
        return MeasuredPod(uid, key, float(age or 0.0), bool(running), demand, use, bool(exact), bool(fresh))


def _lines(path: Path, data: bytes) -> Iterator[bytes]:
    rest = b""
    for part in _unpacked(path, data):
        *whole, rest = (rest + part).split(b"\n")
        yield from whole
        if len(rest) > LONGEST_LINE:
            raise UsageError(f"{path}: a line is longer than {LONGEST_LINE} bytes")
    if rest:
        log.warning("%s: the recorder was cut off; the last line is not whole", path)


def _unpacked(path: Path, data: bytes) -> Iterator[bytes]:
    """The decompressed members of a gzip file, piece by piece; of a truncated one, the available part."""
    view, at, unpacked = memoryview(data), 0, 0
    member = zlib.decompressobj(WITH_GZIP_HEAD)
    while at < len(data):
        piece = view[at : at + PIECE]
        try:
            part = member.decompress(piece, LONGEST_LINE)
        except zlib.error:
            raise UsageError(f"{path} is damaged near byte {at}") from None
        at += len(piece) - len(member.unused_data) - len(member.unconsumed_tail)
        unpacked += len(part)
        if unpacked > MOST_BYTES:
            raise UsageError(f"{path} holds more than {MOST_BYTES} bytes")
        if part:
            yield part
        if member.eof:
            member = zlib.decompressobj(WITH_GZIP_HEAD)
            if view[at:].nbytes and bytes(view[at : at + 2]) != GZIP:
                raise UsageError(f"{path} is damaged near byte {at}")
