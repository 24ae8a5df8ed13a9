"""Writes what was simulated: a table for people, and files of pods and node-seconds."""

from __future__ import annotations

import csv
import importlib.util
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from carico.errors import UsageError
from carico.sim.figures import Figures
from carico.sim.recorder import NodeSecond, PodRecord, Recorder
from carico.table import table

COLUMNS = (
    ("jct", "JCT", "{:.1f} s"),
    ("pct_mean", "PCT MEAN", "{:.1f} s"),
    ("pct_std", "STD", "{:.1f} s"),
    ("slowdown_p95", "SLOWDOWN P95", "{:.1f}"),
    ("usage_mean", "CPU", "{:.0%}"),
    ("ramp", "TO 95%", "{:.0f} s"),
    ("hot_two", "HOT >2", "{:.0f} s"),
    ("hot_one", "HOT >1", "{:.0f} s"),
    ("memory_max", "MEMORY", "{:.0%}"),
    ("oom_kills", "OOM KILLS", "{:.0f}"),
    ("unfinished", "UNFINISHED", "{:.0f}"),
)
POD_FIELDS = tuple(PodRecord.__dataclass_fields__)
NODE_FIELDS = ("second", "node", *NodeSecond._fields)
DIGITS = 6  # after the point, in files


def summary(rows: Mapping[str, Sequence[Figures]]) -> str:
    """A row for each scheduler: the mean over the seeds, with half the width of its 95 % interval from two seeds on."""
    heads = ("SCHEDULER", *(title for _, title, _ in COLUMNS))
    cells = [[name, *(_cell(runs, key, form) for key, _, form in COLUMNS)] for name, runs in rows.items()]
    return table(heads, cells, right=range(1, len(heads)))


def _cell(runs: Sequence[Figures], key: str, form: str) -> str:
    values = [run[key] for run in runs if not math.isnan(run[key])]
    if not values:
        return "-"
    mean, half = interval(values)
    text = form.format(mean)
    if half is None:
        return text
    number = form.partition("}")[0] + "}"
    return f"{text} ±{number.format(half)}"


# Student's t at 97.5 %, by degrees of freedom.
T = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10, 2.09)


def interval(values: Sequence[float]) -> tuple[float, float | None]:
    """The mean, and half the width of its 95 % interval; None for a single value.

    >>> interval([1.0, 3.0])[0], round(interval([1.0, 3.0])[1], 2), interval([4.0])
    (2.0, 12.71, (4.0, None))
    """
    mean = sum(values) / len(values)
    if len(values) < 2:
        return mean, None
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return mean, T[min(len(values) - 2, len(T) - 1)] * math.sqrt(variance / len(values))


def write_csv(folder: Path, run: str, recorder: Recorder) -> list[Path]:
    """pods-RUN.csv and nodes-RUN.csv."""
    files = [(folder / f"pods-{run}.csv", POD_FIELDS, _pods), (folder / f"nodes-{run}.csv", NODE_FIELDS, _nodes)]
    for file, heads, rows in files:
        with file.open("w", newline="", encoding="utf-8") as out:
            writer = csv.writer(out, lineterminator="\n")
            writer.writerow(heads)
            writer.writerows([_text(value) for value in row] for row in rows(recorder))
    return [file for file, _, _ in files]


def write_parquet(folder: Path, run: str, recorder: Recorder) -> list[Path]:
    if importlib.util.find_spec("pyarrow") is None:
        raise UsageError("Parquet needs the package pyarrow: pip install pyarrow, or use --format csv")
    import pyarrow  # type: ignore[import-not-found, import-untyped, unused-ignore]
    import pyarrow.parquet  # type: ignore[import-not-found, import-untyped, unused-ignore]

    written = []
    for name, heads, rows in (("pods", POD_FIELDS, _pods), ("nodes", NODE_FIELDS, _nodes)):
        columns = list(zip(*rows(recorder), strict=True)) or [() for _ in heads]
        file = folder / f"{name}-{run}.parquet"
        pyarrow.parquet.write_table(pyarrow.table(dict(zip(heads, map(list, columns), strict=True))), file)
        written.append(file)
    return written


def _text(value: object) -> object:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.{DIGITS}f}".rstrip("0").rstrip(".")
    return value


def _pods(recorder: Recorder) -> Iterator[tuple[object, ...]]:
    for pod in recorder.pods.values():
        yield tuple(getattr(pod, name) for name in POD_FIELDS)


def _nodes(recorder: Recorder) -> Iterator[tuple[object, ...]]:
    for second, nodes in recorder.seconds():
        for name, one in zip(recorder.nodes, nodes, strict=True):
            yield (second, name, *one)
