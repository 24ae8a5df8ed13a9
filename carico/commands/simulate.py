"""`carico simulate`: compares schedulers in a scenario, on simulated nodes and time."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from carico import output
from carico.errors import UsageError
from carico.sim import results
from carico.sim.figures import Figures, by_workload, figures
from carico.sim.recorder import Recorder
from carico.sim.scenario import Scenario, load
from carico.sim.simulation import Simulation

log = logging.getLogger(__name__)

MOST_SEEDS = 1000


class Run(NamedTuple):
    scheduler: str
    seed: int
    figures: Figures
    workloads: dict[str, Figures]
    recorder: Recorder | None  # if files are written


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = f"{parser.prog} SCENARIO [OPTION …]"
    parser.add_argument("scenario", type=Path, metavar="SCENARIO", help="YAML file; scenarios/ has examples")
    parser.add_argument("--seed", type=int, default=1, metavar="NUMBER", help="first seed (default: 1)")
    parser.add_argument("--seeds", type=int, default=1, metavar="COUNT", help="runs of each scheduler (default: 1)")
    parser.add_argument(
        "--scheduler", action="append", default=[], metavar="NAME", help="only this one of the scenario; repeatable"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="write pods and node-seconds of each run there")
    parser.add_argument("--format", choices=("csv", "parquet"), default="csv", help="of those files (default: csv)")
    parser.add_argument("--png", type=Path, metavar="FILE", help="draw the runs of the first seed")
    parser.add_argument("--jobs", type=int, default=0, metavar="COUNT", help="runs at once (default: one per core)")
    output.add_flag(parser, ("json", "yaml"))


def run(args: argparse.Namespace) -> int:
    if not 1 <= args.seeds <= MOST_SEEDS:
        raise UsageError(f"--seeds: {args.seeds} is not between 1 and {MOST_SEEDS}")
    if args.seed < 0 or args.jobs < 0:
        raise UsageError("--seed and --jobs cannot be negative")
    scenario = load(args.scenario)
    names = _chosen(scenario, args.scheduler)
    if args.out is not None:
        args.out.mkdir(parents=True, exist_ok=True)
    keep = args.out is not None or args.png is not None
    runs: dict[str, list[Run]] = {name: [] for name in names}
    for one in _runs(scenario, names, range(args.seed, args.seed + args.seeds), keep, args.jobs):
        runs[one.scheduler].append(one)
        _write(args, one)
        log.info("%s, seed %d: done", one.scheduler, one.seed)
    _show(args, scenario, runs)
    return 0


def _chosen(scenario: Scenario, wanted: list[str]) -> list[str]:
    names = [entry.title for entry in scenario.entries]
    for name in wanted:
        if name not in names:
            raise UsageError(f"--scheduler: the scenario has no scheduler {name!r}; it has {', '.join(names)}")
    return [name for name in names if not wanted or name in wanted]


def _runs(scenario: Scenario, names: list[str], seeds: range, keep: bool, jobs: int) -> Iterator[Run]:
    """In order, so that output does not depend on which run is faster."""
    work = [(scenario, name, seed, keep) for name in names for seed in seeds]
    workers = min(len(work), jobs or len(os.sched_getaffinity(0)))
    simulate(*work[0][:2], work[0][2], keep=False, dry=True)  # an error of the scenario ends the command at once
    if workers == 1:
        yield from (simulate(one, name, seed, keep=keeps) for one, name, seed, keeps in work)
        return
    with ProcessPoolExecutor(workers) as pool:
        futures = [pool.submit(simulate, one, name, seed, keep=keeps) for one, name, seed, keeps in work]
        for future in futures:
            yield future.result()


def simulate(scenario: Scenario, name: str, seed: int, *, keep: bool, dry: bool = False) -> Run:
    """One run; `dry` builds every scheduler of the scenario and runs none."""
    if dry:
        for entry in scenario.entries:
            Simulation(scenario, entry, seed)
        return Run(name, seed, {}, {}, None)
    entry = next(one for one in scenario.entries if one.title == name)
    recorder = Simulation(scenario, entry, seed).run()
    return Run(name, seed, figures(recorder), dict(by_workload(recorder)), recorder if keep else None)


def _write(args: argparse.Namespace, one: Run) -> None:
    if args.out is None or one.recorder is None:
        return
    write = results.write_csv if args.format == "csv" else results.write_parquet
    try:
        write(args.out, f"{one.scheduler}-{one.seed}", one.recorder)
    except OSError as error:
        raise UsageError(f"{args.out}: cannot be written ({error.strerror}); name another folder in --out") from error


def _show(args: argparse.Namespace, scenario: Scenario, runs: dict[str, list[Run]]) -> None:
    if args.png is not None:
        from carico.sim.plots import draw  # matplotlib is large and rarely needed

        first = {name: of[0].recorder for name, of in runs.items() if of[0].recorder is not None}
        draw(args.png, f"{scenario.name}, seed {args.seed}", first, scenario.warm_up)
    if args.output:
        output.show(args.output, _plain(scenario, runs))
    else:
        print(results.summary({name: [one.figures for one in of] for name, of in runs.items()}))
        sys.stdout.flush()


def _plain(scenario: Scenario, runs: dict[str, list[Run]]) -> dict[str, Any]:
    found = [
        {"scheduler": one.scheduler, "seed": one.seed, "figures": _known(one.figures)}
        | {"workloads": {name: _known(each) for name, each in one.workloads.items()}}
        for of in runs.values()
        for one in of
    ]
    return {"scenario": scenario.name, "runs": found}


def _known(values: Figures) -> dict[str, float | None]:
    """Without what JSON cannot express."""
    return {name: None if value != value else round(value, 6) for name, value in values.items()}
