"""The figures of a run, and the table of all runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from carico import table as tables
from carico.embedded.demo.job import DemoRun


class FigureSpread(NamedTuple):
    mean: float
    std: float
    p50: float
    p75: float
    p95: float
    p99: float
    max: float


def spread(values: Sequence[float]) -> FigureSpread:
    """
    >>> spread([1.0, 2.0, 3.0]).mean, spread([1.0, 2.0, 3.0]).max
    (2.0, 3.0)
    """
    if not values:
        return FigureSpread(*[float("nan")] * 7)
    array = np.asarray(values)
    p50, p75, p95, p99 = (float(np.quantile(array, share)) for share in (0.5, 0.75, 0.95, 0.99))
    return FigureSpread(float(array.mean()), float(array.std()), p50, p75, p95, p99, float(array.max()))


class Summary(NamedTuple):
    """In seconds, except for the last two."""

    way: str
    label: str
    job_completion: float  # from the first pod's creation to the last one's end
    pod_completion: FigureSpread  # from start to end
    turnaround: FigureSpread  # from creation to end
    latency: FigureSpread  # of the web server
    utilisation: float
    at_once: int  # pods that ran at the same time, at most


def summary(run: DemoRun) -> Summary:
    pods = [(p.created, p.started, p.done) for p in run.pods.values() if p.started is not None and p.done is not None]
    return Summary(
        way=run.way.name,
        label=run.way.label,
        job_completion=max(done for _, _, done in pods) - run.published,
        pod_completion=spread([done - started for _, started, done in pods]),
        turnaround=spread([done - created for created, _, done in pods]),
        latency=spread(run.latencies),
        utilisation=run.utilisation,
        at_once=at_once([(started, done) for _, started, done in pods]),
    )


def as_json(summary: Summary) -> dict[str, Any]:
    fields = summary._asdict()
    spreads = {name: value._asdict() for name, value in fields.items() if isinstance(value, FigureSpread)}
    return fields | spreads


def at_once(spans: Sequence[tuple[float, float]]) -> int:
    """
    >>> at_once([(0, 2), (1, 3), (2, 4)])
    2
    """
    edges = sorted([(start, 1) for start, _ in spans] + [(end, -1) for _, end in spans])
    running = most = 0
    for _, change in edges:
        running += change
        most = max(most, running)
    return most


def ratios(summaries: Sequence[Summary]) -> dict[str, float]:
    """The figures by which the demo is judged."""
    by = {summary.way: summary for summary in summaries}
    packed, chosen, carico = by["100m"], by["500m"], by["carico"]
    return {
        "pct_mean_ratio": round(packed.pod_completion.mean / carico.pod_completion.mean, 3),
        "jct_ratio": round(carico.job_completion / packed.job_completion, 3),
        "turnaround_ratio_500m": round(carico.turnaround.mean / chosen.turnaround.mean, 3),
        "turnaround_ratio_100m": round(carico.turnaround.mean / packed.turnaround.mean, 3),
    }


def table(summaries: Sequence[Summary]) -> str:
    rows: list[tuple[str, ...]] = [("job completion", "", *(f"{s.job_completion:.1f} s" for s in summaries))]
    for subject, pick in (("pod completion", "pod_completion"), ("pod turnaround", "turnaround")):
        for part in ("mean", "std", "p50", "p75", "p95", "max"):
            values = (f"{getattr(getattr(s, pick), part):.1f} s" for s in summaries)
            rows.append((subject if part == "mean" else "", part, *values))
    for part in ("p50", "p95", "p99"):
        values = (f"{1000 * getattr(s.latency, part):.0f} ms" for s in summaries)
        rows.append(("web answers" if part == "p50" else "", part, *values))
    rows.append(("pods at once", "max", *(str(s.at_once) for s in summaries)))
    rows.append(("cpu utilisation", "mean", *(f"{s.utilisation:.0%}" for s in summaries)))
    return tables.table(("", "", *(s.label for s in summaries)), rows, right=range(2, 2 + len(summaries)))


def verdict(summaries: Sequence[Summary]) -> str:
    by, found = {summary.way: summary for summary in summaries}, ratios(summaries)
    mean = {way: summary.pod_completion.mean for way, summary in by.items()}
    return (
        f"By Carico a pod took {mean['carico']:.1f} s instead of {mean['100m']:.1f} s ({found['pct_mean_ratio']:.1f} "
        f"times less), and the whole job {found['jct_ratio']:.2f} times as long.\n"
        f"Against a well-chosen request, a pod was done after {found['turnaround_ratio_500m']:.2f} times "
        "the time. Carico needs no request at all."
    )
