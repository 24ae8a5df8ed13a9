"""Raw telemetry in a file, and back.

    carico recording 1\\n                        what this is, and in which version
    {"columns": ["t", "n", …], …}\\n             one line of JSON
    chunk, chunk, …                             length, rows, checksum (three u32), then zlib over one column after the
                                                other: t as float64, the others as float32, all little-endian

Each chunk is written whole, so that a recorder that is killed leaves a file that is good up to its last chunk. At 10 Hz
an hour takes about half a megabyte.

Plain JSON is read as well (recording_json.py).
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carico.agent import recording_json
from carico.errors import CaricoError, UsageError

log = logging.getLogger(__name__)

MAGIC = b"carico recording 1\n"
CHUNK = struct.Struct("<III")  # bytes of the body, rows, CRC-32 of the body
CHUNK_ROWS = 50  # 5 s at 10 Hz: what a killed recorder loses at most
TIME = "t"  # the one column that needs 64 bits: a day in float32 has steps of 8 ms
HEAD_LIMIT = 1 << 16  # bytes


class Recording(NamedTuple):
    columns: tuple[str, ...]
    values: NDArray[np.float64]  # rows × columns
    head: Mapping[str, Any]  # what the recorder said of itself; empty for plain JSON


class Writer:
    """Appends rows to a new file; `close` writes the rest."""

    def __init__(self, path: Path, columns: Sequence[str], about: Mapping[str, Any], *, force: bool) -> None:
        self._path = path
        self._columns = tuple(columns)
        self._pending: list[Sequence[float]] = []
        self.rows = 0  # that are safe in the file
        self._file = _create(path, force)
        self._write(MAGIC + json.dumps({"columns": self._columns, **about}).encode() + b"\n")

    def add(self, row: Sequence[float]) -> None:
        self._pending.append(row)
        if len(self._pending) == CHUNK_ROWS:
            self._flush()

    def close(self) -> int:
        """Bytes of the finished file."""
        try:
            self._flush()
            return self._file.tell()
        finally:
            self._file.close()

    def _flush(self) -> None:
        if self._pending:
            self._write(_encoded(self._columns, self._pending))
            self.rows += len(self._pending)
            self._pending.clear()

    def _write(self, part: bytes) -> None:
        good, rest = self._file.tell(), memoryview(part)
        try:
            while rest:  # a disk that is nearly full takes a part and complains about the next
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            with contextlib.suppress(OSError):  # a reader stops at the last full chunk anyway
                self._file.truncate(good)
            self._pending.clear()  # or closing would try, and fail, again
            why = "no space left" if error.errno == errno.ENOSPC else error.strerror
            raise CaricoError(f"{self._path}: {why} after {self.rows} rows; those can be replayed") from error


def _create(path: Path, force: bool) -> BinaryIO:
    try:
        file = path.open("wb" if force else "xb", buffering=0)
    except FileExistsError:
        raise UsageError(f"{path} exists; use --force to write over it") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
    if not file.seekable():
        file.close()
        raise UsageError(f"{path} is a pipe or a terminal; a recording needs a file")
    return file


def _encoded(columns: tuple[str, ...], rows: Sequence[Sequence[float]]) -> bytes:
    table = np.asarray(rows, dtype=np.float64)
    raw = b"".join(table[:, i].astype(_kind(name)).tobytes() for i, name in enumerate(columns))
    body = zlib.compress(raw)
    return CHUNK.pack(len(body), len(rows), zlib.crc32(body)) + body


def _kind(column: str) -> str:
    return "<f8" if column == TIME else "<f4"


def load(path: Path) -> Recording:
    """A recording of either form; a UsageError of one line when it is neither or is damaged."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    if data.startswith(MAGIC):
        return _from_chunks(path, data)
    if data.startswith(b"carico recording "):
        raise UsageError(f"{path} is {data[:40].splitlines()[0].decode('latin-1')!r}, which this version cannot read")
    return Recording(*recording_json.parse(path, data), {})


def _from_chunks(path: Path, data: bytes) -> Recording:
    end = data.find(b"\n", len(MAGIC), HEAD_LIMIT)
    try:
        head = json.loads(data[len(MAGIC) : end] if end > 0 else b"")
        columns = tuple(str(name) for name in head["columns"])
    except (ValueError, TypeError, KeyError):
        raise UsageError(f"{path}: the line after {MAGIC.decode().strip()!r} does not name the columns") from None
    tables, at = [np.empty((0, len(columns)))], end + 1
    while (table := _chunk(path, data, at, columns)) is not None:
        tables.append(table[0])
        at = table[1]
    if at < len(data):
        log.warning("%s: the recorder was cut off; %d bytes at the end are no full chunk", path, len(data) - at)
    return Recording(columns, np.concatenate(tables), head)


def _chunk(path: Path, data: bytes, at: int, columns: tuple[str, ...]) -> tuple[NDArray[np.float64], int] | None:
    """The chunk at a place in the file and the place after it; None where no full chunk is left."""
    if len(data) < at + CHUNK.size:
        return None
    length, rows, check = CHUNK.unpack_from(data, at)
    body = data[at + CHUNK.size : at + CHUNK.size + length]
    if len(body) < length:
        return None
    if zlib.crc32(body) != check:
        raise UsageError(f"{path}: the chunk at byte {at} is damaged (its checksum is wrong)")
    return _decoded(path, at, body, rows, columns), at + CHUNK.size + length


def _decoded(path: Path, at: int, body: bytes, rows: int, columns: tuple[str, ...]) -> NDArray[np.float64]:
    row_bytes = sum(np.dtype(_kind(name)).itemsize for name in columns)
    expander = zlib.decompressobj()
    try:
        raw = expander.decompress(body, rows * row_bytes + 1)  # no more than announced: a bomb stays small
    except zlib.error:
        raw = b""
    if len(raw) != rows * row_bytes:
        raise UsageError(f"{path}: the chunk at byte {at} does not hold {rows} rows of {len(columns)} columns")
    table, place = np.empty((rows, len(columns))), 0
    for i, name in enumerate(columns):
        column = np.frombuffer(raw, _kind(name), rows, place)
        table[:, i], place = column, place + column.nbytes
    return table
