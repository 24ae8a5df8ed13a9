"""The work of a run: sized to the machine, the same for each of the three.

A pod takes about two seconds of one core, and there are twelve for every core, so that a run takes some 25 s however
the pods are placed. `memory` pods also hold memory: the pods that run at once with requests of 100m fill half of the
free memory, and no more, because the machine may have other users.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from carico.embedded.demo import programs
from carico.errors import CaricoError
from carico.types import NodeSize

PODS_PER_CORE = 12
POD_SECONDS = 2.1  # s of one core
PODS_AT_100M = 10  # on a core
MEMORY_SHARE = 0.5  # of free memory, for all pods that run at once with requests of 100m
TRIAL_DIGITS = 25_000
KINDS = ("cpu", "memory", "mixed")


class Workload(NamedTuple):
    """The commands of the pods, one each."""

    kind: str
    pods: list[list[str]]

    @property
    def about(self) -> str:
        return f"{len(self.pods)} pods ({self.kind}), {POD_SECONDS:g} s of one core each"


def program(*words: str) -> list[str]:
    """-S and -E: no site-packages and no Python environment variables, so that a pod starts in a few milliseconds."""
    return [sys.executable, "-S", "-E", str(Path(programs.__file__)), *words]


def make_workload(kind: str, pods: int | None, machine: NodeSize, free_bytes: float) -> Workload:
    count = pods if pods is not None else PODS_PER_CORE * max(1, round(machine.cores))
    at_once = max(1, math.floor(PODS_AT_100M * machine.cores))
    megabytes = max(programs.GROW, int(MEMORY_SHARE * free_bytes / at_once / programs.MEGABYTE))
    memory = program("memory", str(megabytes), f"{POD_SECONDS:g}")
    if kind == "memory":
        return Workload(kind, [memory] * count)
    computing = program("pi", str(digits_for(POD_SECONDS)))
    if kind == "cpu":
        return Workload(kind, [computing] * count)
    return Workload(kind, [computing if i % 2 else memory for i in range(count)])


def digits_for(seconds: float) -> int:
    """Decimal places of π that take this long on one core of this machine; the work grows with their square."""
    took = min(_cpu_seconds(program("pi", str(TRIAL_DIGITS))) for _ in range(3))
    return round(TRIAL_DIGITS * math.sqrt(seconds / took))


def _cpu_seconds(command: list[str]) -> float:
    before = os.times()
    try:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError) as error:
        raise CaricoError(f"the demo's own program does not run here: {error}") from error
    after = os.times()
    return after.children_user - before.children_user + after.children_system - before.children_system
