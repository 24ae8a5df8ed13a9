"""Pods admitted by the nodes' reports: overload, work done and room against the truth, by case and estimator.

Every case runs with each estimator and with two oracles that have the same queue and the same right to overtake: one
admits by each pod's true peak, one knows what every pod will demand at every moment. Work is pod-seconds, over the
first 150 s of a cold start and after that, when the classes are known. If other schedulers place the pods, only room
is judged.

SEEDS=20 (constants were tuned on seeds from 1000 on; FIRST=1000 uses those), CASE= and ESTIMATOR= choose by name,
several separated by commas; CASE=steady chooses all steady ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from statistics import fmean

from carico.settings import ESTIMATORS, EstimateSettings
from carico.sim.closed_loop import FUTURE, ORACLES, PEAK, Case, LoopVerdict, follow, judge
from harness.estimate.closed_loop_cases import CASES

SEEDS = int(os.environ.get("SEEDS", "20"))
FIRST = int(os.environ.get("FIRST", "0"))
DEFAULT = EstimateSettings().estimator
COLUMNS = (
    ("worst_demand", "worst demand"),
    ("worst_memory", "memory"),
    ("first_demand", "first gen."),
    ("seconds_over", "s over 1"),
    ("work_cold", "work, cold"),
    ("work_known", "known"),
    ("work_known_worst_seed", "worst seed"),
    ("work_future", "of future's"),
    ("room_within", "room within"),
    ("room_over", "too high"),
)

Figures = dict[str, float]


def run() -> dict[str, object]:
    cases, ways = list(chosen_cases()), (*ORACLES, *chosen_estimators())
    seeds = range(FIRST, FIRST + SEEDS)
    by_case: dict[str, dict[str, Figures]] = {}
    jobs = [(case.name, way, seed) for case in cases for way in ways for seed in seeds]
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        verdicts = pool.map(measure, *zip(*jobs, strict=True))
        for case in cases:
            runs = {way: list(islice(verdicts, SEEDS)) for way in ways}
            by_case[case.name] = {way: summary(case, runs[way], runs[PEAK], runs[FUTURE]) for way in ways}
            show(case, by_case[case.name])
    return {**headline(cases, by_case), "seeds": SEEDS, "by_case": by_case}


def chosen_cases() -> Iterator[Case]:
    wanted = [name for name in os.environ.get("CASE", "").split(",") if name]
    for case in CASES:
        if not wanted or case.name in wanted or case.kind in wanted:
            yield case


def chosen_estimators() -> tuple[str, ...]:
    wanted = tuple(name for name in os.environ.get("ESTIMATOR", "").split(",") if name)
    return wanted or ESTIMATORS


def measure(name: str, method: str, seed: int) -> LoopVerdict:
    case = next(case for case in CASES if case.name == name)
    return judge(case, follow(case, method, seed))


def summary(case: Case, runs: list[LoopVerdict], peak: list[LoopVerdict], future: list[LoopVerdict]) -> Figures:
    """Over all seeds: the worst demand, the mean of the shares, and work relative to the oracles'."""
    figures = {
        "worst_demand": max(run.worst_demand for run in runs),
        "worst_memory": max(run.worst_memory for run in runs),
        "first_demand": max(run.first_demand for run in runs),
        "seconds_over": fmean(run.seconds_over for run in runs),
        "room_within": fmean(run.room_within for run in runs),
        "room_over": fmean(run.room_over for run in runs),
    }
    if case.admitted:
        figures |= {
            "work_cold": _ratio([r.work_cold for r in runs], [p.work_cold for p in peak]),
            "work_known": _ratio([r.work_known for r in runs], [p.work_known for p in peak]),
            "work_known_worst_seed": min(r.work_known / p.work_known for r, p in zip(runs, peak, strict=True)),
            "work_future": _ratio([r.work_known for r in runs], [f.work_known for f in future]),
        }
    return {key: round(value, 3) for key, value in figures.items() if value == value}


def _ratio(one: list[float], other: list[float]) -> float:
    return sum(one) / max(sum(other), 1e-9)


def headline(cases: list[Case], by_case: dict[str, dict[str, Figures]]) -> Figures:
    """The default estimator over the steady cases."""
    steady = [case for case in cases if case.kind == "steady"]
    rows = {case.name: by_case[case.name].get(DEFAULT, {}) for case in steady}
    admitted = [rows[case.name] for case in steady if case.admitted and rows[case.name]]
    found = [row for row in rows.values() if row]
    if not admitted or not found:
        return {}
    return {
        "worst_demand_max": max(row["worst_demand"] for row in admitted),
        "worst_memory_max": max(row["worst_memory"] for row in admitted),
        "throughput_min": min(row["work_known"] for row in admitted),
        "throughput_cold_min": min(row["work_cold"] for row in admitted),
        "room_within_min": min(row["room_within"] for row in found),
        "room_over_max": max(row["room_over"] for row in found),
    }


def show(case: Case, figures: dict[str, Figures]) -> None:
    print(f"\n{case.name + ' (' + case.kind + ')':<28}" + "".join(f"{title:>13}" for _, title in COLUMNS))
    for way, row in figures.items():
        cells = [f"{row[key]:>13.2f}" if key in row else f"{'':>13}" for key, _ in COLUMNS]
        print(f"  {way:<26}" + "".join(cells), flush=True)
