r"""Writes and loads raw telemetry: gzip over lines of JSON, readable with `zcat` and in any language.

    {"carico": "recording", "format": 2, "columns": ["t", "n", …], "resources": ["cpu", "memory"], …}   the head
    [12.3, 2, 0, 0, 0.51, 0.02, 0.3]                 one per sample, by the columns
    {"names": {"0": ["uid", "team-a", "team-a/web", "5d"]}, "pods": [[0, 3.1, 1, 1, 1, 0.3, 4e7, 0.29, 4e7], …]}
                                                     one per second, after its sample: the measurements of each pod

A pod has a number, which is defined in `names` before it is used: UID and class, or the UID alone. Its columns are the
head's `pod_columns`: number, age, whether it runs, whether demand is exact, whether it was read in this second, then
demand and use per resource; null where nothing was read yet.

A member of the gzip file is completed every few seconds: a recorder that is killed leaves a file that is valid up to
the last member. At 10 Hz an hour takes about half a megabyte, and 30 pods a few more.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from carico.errors import CaricoError, UsageError
from carico.recording import chunks, plain_json
from carico.recording import lines as recording_lines
from carico.recording.lines import FORMAT, NUMBERED, PodSecond
from carico.types import MeasuredPod

TIME = "t"
CHUNK_ROWS = 50  # 5 s at 10 Hz: the most that a killed recorder loses
DIGITS = 6  # significant digits of a figure: more than the precision of any kernel counter
_encode = msgspec.json.Encoder().encode


class Recording(NamedTuple):
    columns: tuple[str, ...]
    values: NDArray[np.float64]  # rows × columns
    head: Mapping[str, Any]  # metadata of the recorder; empty for plain JSON
    pods: tuple[PodSecond, ...] = ()  # in the order of their rows; empty where pods were not measured


class RecordingWriter:
    """Appends to a new file; `close` writes the rest."""

    def __init__(
        self,
        path: Path,
        columns: Sequence[str],
        about: Mapping[str, Any],
        *,
        force: bool,
        resources: Sequence[str] = (),
    ) -> None:
        self._path = path
        self._time = columns.index(TIME)
        self._pending: list[bytes] = []
        self._pending_rows = 0
        self._numbers: dict[str, tuple[int, tuple[str, ...]]] = {}  # UID → the pod's number and the names written
        self._next_number = 0
        self.rows = 0  # written to the file
        self._file = _create(path, force)
        pods = (*NUMBERED, *(f"{name}_{what}" for what in ("demand", "use") for name in resources))
        kind = {"carico": "recording", "format": FORMAT, "columns": columns, "resources": resources}
        self._write(gzip.compress(json.dumps({**kind, "pod_columns": pods, **about}).encode() + b"\n", mtime=0))

    def add(self, row: Sequence[float]) -> None:
        figures: list[float] = [_short(value) for value in row]
        figures[self._time] = round(row[self._time], 4)
        self._pending.append(_encode(figures))
        self._pending_rows += 1
        if self._pending_rows == CHUNK_ROWS:
            self._flush()

    def add_pods(self, measured: Sequence[MeasuredPod]) -> None:
        """Adds the measurements of pods at the row that was added last."""
        names: dict[str, tuple[str, ...]] = {}
        rows = [self._pod(pod, names) for pod in measured]
        self._pending.append(_encode({"names": names, "pods": rows} if names else {"pods": rows}))
        kept = {pod.uid for pod in measured}
        self._numbers = {uid: known for uid, known in self._numbers.items() if uid in kept}

    def _pod(self, pod: MeasuredPod, names: dict[str, tuple[str, ...]]) -> list[float | None]:
        name = (pod.uid, *(pod.key or ()))
        number, known = self._numbers.get(pod.uid, (-1, ()))
        if known != name:
            number, self._next_number = self._next_number, self._next_number + 1
            self._numbers[pod.uid] = (number, name)
            names[str(number)] = name
        figures = (*(pod.demand or ()), *(pod.use or ()))
        shares: list[float | None] = [_short(value) for value in figures]
        return [number, _short(pod.age), int(pod.running), int(pod.exact), int(pod.fresh), *(shares or [None])]

    def close(self) -> int:
        """Writes the rest and returns the size of the file in bytes."""
        try:
            self._flush()
            return self._file.tell()
        finally:
            self._file.close()

    def _flush(self) -> None:
        if self._pending:
            self._write(gzip.compress(b"\n".join(self._pending) + b"\n", mtime=0))
            self.rows += self._pending_rows
            self._pending.clear()
            self._pending_rows = 0

    def _write(self, part: bytes) -> None:
        good, rest = self._file.tell(), memoryview(part)
        try:
            while rest:  # a write to a nearly full disk may be partial; the next one then fails
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            with contextlib.suppress(OSError):  # a reader stops at the last complete chunk anyway
                self._file.truncate(good)
            self._pending.clear()  # or `close` would try and fail again
            why = "no space left" if error.errno == errno.ENOSPC else error.strerror
            raise CaricoError(f"{self._path}: {why} after {self.rows} rows; those can be replayed") from error


def _short(value: float) -> float:
    """Rounds to DIGITS significant digits.

    >>> _short(0.1234567), _short(2.0), _short(123456789.0)
    (0.123457, 2, 123457000)
    """
    rounded = float(f"{value:.{DIGITS}g}")
    return int(rounded) if rounded.is_integer() else rounded


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


def load(path: Path) -> Recording:
    """Loads a recording of any format; raises a one-line UsageError if it is not a recording or is damaged."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    if data.startswith(recording_lines.GZIP):
        return Recording(*recording_lines.parse(path, data))
    if data.startswith(chunks.MAGIC):
        return Recording(*chunks.parse(path, data))
    return Recording(*plain_json.parse(path, data), {})
