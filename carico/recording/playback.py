"""A recording as input of the pipeline: samples and pod counts, validated row by row.

A recording of another tool contains the number of pods but not the times of runtime activity: churn and unsettled pods
are then derived from the changes of n, with the same windows as in the agent.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from carico.errors import UsageError
from carico.recording.format import TIME, Recording
from carico.runtime.meter import ACCOUNTED
from carico.settings import DIMENSIONS, NodeSettings
from carico.telemetry import combine
from carico.types import MeasuredPod, NodeSize, PodCount, Sample

PODS = "n"
RAW = {"cpu": ("util", "psi"), "memory": ("mem",)}  # columns of a dimension; the others have one of their own name
GAP = 5.0  # median steps; a longer one is a pause of the recorder
SHORTEST_STEP, LONGEST_STEP = 1e-4, 1e4  # s between two rows; outside this range t is not in seconds
MEASURED_FOR = 1.5  # s; pods are measured once a second
SLACK = 0.1  # a ratio up to this far outside [0, 1] is clock noise and is clipped; a larger deviation is an error


class Playback:
    """A validated recording."""

    def __init__(self, path: Path, recording: Recording, settings: NodeSettings) -> None:
        self._path = path
        self._settings = settings
        self._columns = {name: recording.values[:, i] for i, name in enumerate(recording.columns)}
        if settings.cpu == "utilisation" and "util" in self._columns:
            self._columns.setdefault("psi", np.zeros(len(recording.values)))  # not used
        self.dimensions = tuple(d for d in DIMENSIONS if set(_raw(d)) <= set(self._columns))
        self._check(recording)
        self.rate_hz = self._rate()
        self.size = _size(recording.head)
        self.full = _full(recording.head, self.dimensions)
        # The demand of pods is absolute: it cannot be used for a node whose size is not known.
        self._pod_seconds = recording.pods if self.size is not None and self._measured_in(recording) else ()
        self._pod_rows = [second.row for second in self._pod_seconds]

    def __len__(self) -> int:
        return len(self._columns[TIME])

    def __iter__(self) -> Iterator[tuple[Sample, PodCount]]:
        ratios = [[np.clip(self._columns[name], 0, 1).tolist() for name in _raw(d)] for d in self.dimensions]
        for row, (at, pods) in enumerate(zip(self._columns[TIME].tolist(), self._pods(), strict=True)):
            yield Sample(at, tuple(self._value(columns, row) for columns in ratios)), pods

    def measured(self, row: int) -> Sequence[MeasuredPod] | None:
        """The last measurement of the pods at that row; None if it is stale, or pods were not measured."""
        found = bisect_right(self._pod_rows, row) - 1
        if found < 0 or row - self._pod_rows[found] > MEASURED_FOR * self.rate_hz:
            return None
        return self._pod_seconds[found].pods

    def _measured_in(self, recording: Recording) -> bool:
        """Whether the figures of pods are in the order of this playback's dimensions."""
        return tuple(recording.head.get("resources", ())) == tuple(d for d in self.dimensions if d in ACCOUNTED)

    def raw(self, name: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """A column, for plots."""
        return self._columns[name]

    def _value(self, columns: list[list[float]], row: int) -> float:
        if len(columns) == 1:
            return columns[0][row]
        return combine.cpu(columns[0][row], columns[1][row], self._settings.cpu)

    def _pods(self) -> Iterator[PodCount]:
        counts = [int(n) for n in self._columns[PODS]]
        if {"churn", "unsettled"} <= set(self._columns):
            rest = zip(self._columns["churn"].tolist(), self._columns["unsettled"].tolist(), strict=True)
            for n, (churn, unsettled) in zip(counts, rest, strict=True):
                yield PodCount(n, churn > 0.5, min(n, int(unsettled)))
        else:
            yield from derived_pods(self._columns[TIME].tolist(), counts, self._settings)

    def _rate(self) -> float:
        """Actual samples per second, not the configured rate; gaps in the recording are left out."""
        steps = np.diff(self._columns[TIME])
        step = float(steps[steps <= GAP * np.median(steps)].mean())
        if not SHORTEST_STEP <= step <= LONGEST_STEP:
            raise UsageError(f"{self._path}: rows are {step:g} s apart; t is in seconds")
        return 1.0 / step

    def _check(self, recording: Recording) -> None:
        missing = [name for name in (TIME, PODS) if name not in self._columns]
        if missing:
            raise UsageError(f"{self._path}: there is no column {missing[0]}; columns: {', '.join(recording.columns)}")
        if "util" in self._columns and "cpu" not in self.dimensions:
            raise UsageError(f"{self._path}: there is util but no psi; --cpu utilisation does without it")
        if not self.dimensions:
            raise UsageError(f"{self._path}: wants at least the columns util and psi (cpu), or mem (memory)")
        if len(self) < 2:
            raise UsageError(f"{self._path}: {len(self)} rows are too few to replay; at least 2 are needed")
        for name, column in self._columns.items():
            self._refuse(name, ~np.isfinite(column), "is not finite")
        steps = np.diff(self._columns[TIME], prepend=-np.inf)
        self._refuse(TIME, steps <= 0, "is not later than the row before")
        counts = self._columns[PODS]
        self._refuse(PODS, (counts < 0) | (counts != np.floor(counts)) | (counts > 1e6), "is not a number of pods")
        for name in (name for dimension in self.dimensions for name in _raw(dimension)):
            column = self._columns[name]
            self._refuse(name, (column < -SLACK) | (column > 1 + SLACK), "is not a ratio between 0 and 1")

    def _refuse(self, name: str, bad: np.ndarray[tuple[int], np.dtype[np.bool_]], why: str) -> None:
        if bad.any():
            row = int(np.argmax(bad))
            raise UsageError(f"{self._path}: row {row}, column {name}: {self._columns[name][row]:g} {why}")


def _size(head: Mapping[str, Any]) -> NodeSize | None:
    """The size of the recorded node; None where the head does not contain it as numbers."""
    amounts = _amounts(head, ("cores", "memory_bytes"))
    return None if amounts is None else NodeSize(*amounts)


def _full(head: Mapping[str, Any], dimensions: tuple[str, ...]) -> tuple[float, ...] | None:
    """What the recorded node could hold, absolute; None where the head does not contain it."""
    full = head.get("full")
    return _amounts(full, dimensions) if isinstance(full, dict) else None


def _amounts(full: Mapping[str, Any], names: tuple[str, ...]) -> tuple[float, ...] | None:
    found = [one for name in names if isinstance(one := full.get(name), (int, float)) and one > 0]
    return tuple(found) if len(found) == len(names) else None


def _raw(dimension: str) -> tuple[str, ...]:
    return RAW.get(dimension, (dimension,))


def derived_pods(times: list[float], counts: list[int], settings: NodeSettings) -> Iterator[PodCount]:
    """Churn after each change of the count, and a start per pod that was added.

    >>> rows = derived_pods([0.0, 0.1, 0.15, 0.3, 2.2, 2.3], [1, 2, 2, 2, 2, 1], NodeSettings())
    >>> [(pods.running, pods.churn, pods.unsettled) for pods in rows]
    [(1, False, 0), (2, True, 1), (2, True, 1), (2, False, 1), (2, False, 0), (1, True, 0)]
    """
    starts: deque[float] = deque()
    before, busy_until = counts[0], times[0]
    for at, count in zip(times, counts, strict=True):
        if count != before:
            window = settings.churn_after_start if count > before else settings.churn_after_delete
            busy_until = max(busy_until, at + window)
            starts.extend([at] * (count - before))
            before = count
        while starts and at - starts[0] >= settings.settle:
            starts.popleft()
        yield PodCount(count, at < busy_until, min(count, len(starts)))
