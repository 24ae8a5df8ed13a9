"""Parses the binary recordings of versions before the gzip format.

carico recording 1\\n                        name and version of the format
{"columns": ["t", "n", …], …}\\n             one line of JSON
chunk, chunk, …                             length, rows, checksum (three u32), then zlib over one column after the
                                            other: t as float64, the others as float32, all little-endian
"""

from __future__ import annotations

import json
import logging
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carico.errors import UsageError

log = logging.getLogger(__name__)

MAGIC = b"carico recording 1\n"
CHUNK = struct.Struct("<III")  # bytes of the body, rows, CRC-32 of the body
TIME = "t"  # the one column of 64 bits
HEAD_LIMIT = 1 << 16  # bytes


def parse(path: Path, data: bytes) -> tuple[tuple[str, ...], NDArray[np.float64], Mapping[str, Any]]:
    """Columns, values as rows × columns, and metadata of the recorder."""
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
    return columns, np.concatenate(tables), head


def _chunk(path: Path, data: bytes, at: int, columns: tuple[str, ...]) -> tuple[NDArray[np.float64], int] | None:
    """The chunk at an offset in the file and the offset after it; None where no complete chunk is left."""
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
        raw = expander.decompress(body, rows * row_bytes + 1)  # at most the announced size: limits a zip bomb
    except zlib.error:
        raw = b""
    if len(raw) != rows * row_bytes:
        raise UsageError(f"{path}: the chunk at byte {at} does not hold {rows} rows of {len(columns)} columns")
    table, place = np.empty((rows, len(columns))), 0
    for i, name in enumerate(columns):
        column = np.frombuffer(raw, _kind(name), rows, place)
        table[:, i], place = column, place + column.nbytes
    return table


def _kind(column: str) -> str:
    return "<f8" if column == TIME else "<f4"
