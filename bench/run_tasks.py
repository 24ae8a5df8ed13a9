"""carico run against xargs -P: 500 short tasks with the best fixed P, and a memory-intensive mix in a memory cgroup.

The best P is found by trying each of TRIED with part of the tasks. The memory mix runs in a control group (v1, root)
whose limit fits a few of its large tasks at once; xargs uses the same P there that was best for short tasks, and twice
that.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

CORES = os.cpu_count() or 1
TASKS = 500
TRIAL = 60  # tasks with which a P is tried
TRIED = [CORES, CORES + 1, CORES * 3 // 2 + 1, 2 * CORES, 3 * CORES, 4 * CORES]
SECONDS = (0.1, 0.3)  # of processor time per task, uniformly distributed
MIX = 40  # tasks of the memory mix
LARGE, SMALL = 300 << 20, 20 << 20  # bytes; one task in three is large
LIMIT = 800 << 20  # bytes
GROUPS = Path("/sys/fs/cgroup/memory")
WORK = "import sys\nfor _ in range(int(sys.argv[1])): pass"
# Grows to its size over about a second, holds it for a moment, then ends.
GROW = """
import sys, time
size, held = int(sys.argv[1]), []
for _ in range(20):
    held.append(bytearray(b'x') * (size // 20))
    time.sleep(0.05)
time.sleep(0.3)
"""
Inputs = list[str]


def run() -> dict[str, object]:
    short = _short_tasks()
    trials = {p: _xargs(p, WORK, short[:TRIAL])[0] for p in sorted(set(TRIED))}
    for p, seconds in trials.items():
        print(f"xargs -P {p:<3} {TRIAL} tasks  {seconds:6.2f} s")
    best = min(trials, key=lambda p: trials[p])
    fixed, _ = _xargs(best, WORK, short)
    ours, failed = _carico(WORK, short)
    print(f"xargs -P {best}   {TASKS} tasks  {fixed:6.2f} s")
    print(f"carico run   {TASKS} tasks  {ours:6.2f} s   {failed} failed")
    figures: dict[str, object] = {
        "tasks": TASKS,
        "best_p": best,
        "seconds_best_fixed": round(fixed, 2),
        "seconds_carico": round(ours, 2),
        "ratio_best_fixed": round(ours / fixed, 4),
        "failed_carico": failed,
    }
    return figures | _memory_mix(best)


def _memory_mix(best: int) -> dict[str, object]:
    if not (GROUPS / "cgroup.procs").exists() or os.geteuid() != 0:
        print("the memory mix needs root and cgroup v1: left out")
        return {}
    rng = random.Random(7)
    mix = [str(LARGE if rng.random() < 1 / 3 else SMALL) for _ in range(MIX)]
    figures: dict[str, object] = {}
    for p in (best, 2 * best):
        with _limited() as group:
            seconds, left = _xargs(p, GROW, mix, group)
        figures["memory_mix_failed_fixed" if p == best else f"memory_mix_failed_fixed_p{p}"] = left
        print(f"memory mix   xargs -P {p}   {seconds:6.2f} s   {left} of {MIX} not done")
    with _limited() as group:
        seconds, failed = _carico(GROW, mix, group)
    print(f"memory mix   carico run   {seconds:6.2f} s   {failed} of {MIX} not done")
    return figures | {"memory_mix_failed_carico": failed, "memory_mix_seconds_carico": round(seconds, 2)}


def _short_tasks() -> Inputs:
    probe = f"import sys, time\nsys.argv = ['', '2000000']\n{WORK}\nprint(time.process_time())"
    spent = float(subprocess.run([sys.executable, "-I", "-S", "-c", probe], capture_output=True, text=True).stdout)
    per_second = 2_000_000 / spent
    rng = random.Random(1)
    return [str(round(per_second * rng.uniform(*SECONDS))) for _ in range(TASKS)]


def _xargs(p: int, script: str, inputs: Inputs, group: Path | None = None) -> tuple[float, int]:
    """Seconds, and how many tasks were not done: xargs stops when one of its commands is killed."""
    done = script + "\nprint('done', flush=True)"
    command = ["xargs", "-P", str(p), "-n", "1", sys.executable, "-I", "-S", "-c", done]
    return _timed(command, inputs, group)


def _carico(script: str, inputs: Inputs, group: Path | None = None) -> tuple[float, int]:
    done = script + "\nprint('done', flush=True)"
    command = [sys.executable, "-m", "carico.cli", "run", "--", sys.executable, "-I", "-S", "-c", done, "{}"]
    return _timed(command, inputs, group)


def _timed(command: list[str], inputs: Inputs, group: Path | None) -> tuple[float, int]:
    if group is not None:
        command = ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh", *command]
    began = time.monotonic()
    ended = subprocess.run(command, input="\n".join(inputs) + "\n", capture_output=True, text=True)
    seconds = time.monotonic() - began
    if ended.stderr:
        print(*sorted(set(ended.stderr.strip().splitlines()))[:3], sep="\n")
    return seconds, len(inputs) - ended.stdout.count("done")


@contextlib.contextmanager
def _limited() -> Iterator[Path]:
    group = GROUPS / f"carico-bench-{os.getpid()}"
    group.mkdir()
    (group / "memory.limit_in_bytes").write_text(str(LIMIT))
    try:
        yield group
    finally:
        for _ in range(100):
            with contextlib.suppress(OSError):
                group.rmdir()
                break
            time.sleep(0.05)
