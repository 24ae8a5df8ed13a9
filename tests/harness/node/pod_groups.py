"""Real control groups like those of pods, on a machine with v1 controllers and the unified mount."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path("/sys/fs/cgroup")
TREES = ("cpu", "cpuacct", "memory", "unified")
BUSY = "while True: pass"
PATIENCE = 30.0  # s


class Delay(NamedTuple):
    """The kernel scheduler's figures of tasks, in s: exact, regardless of other load on the machine."""

    at: float
    ran: float
    waited: float


class PodLike:
    """A group with the same path in every hierarchy, and the processes in it."""

    def __init__(self, name: str) -> None:
        self.path = f"/carico-test-{os.getpid()}-{name}"
        self.processes: list[subprocess.Popen[bytes]] = []
        for tree in TREES:
            self.folder(tree).mkdir()

    def folder(self, tree: str) -> Path:
        return ROOT / tree / self.path.lstrip("/")

    def limit_cpu(self, cores: float) -> None:
        (self.folder("cpu") / "cpu.cfs_quota_us").write_text(str(int(cores * 100_000)))

    def weigh(self, weight: float) -> None:
        """In multiples of the default weight of a process."""
        (self.folder("cpu") / "cpu.shares").write_text(str(max(2, int(1024 * weight))))

    def run(self, program: str = BUSY, *arguments: str, count: int = 1) -> None:
        """Start processes that join the group before their program starts."""
        entering = f"import os\nfor t in {[str(self.folder(tree)) for tree in TREES]!r}:\n"
        entering += "    open(t + '/cgroup.procs', 'w').write(str(os.getpid()))\n"
        for _ in range(count):
            command = [sys.executable, "-c", entering + program, *arguments]
            self.processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        end = time.monotonic() + PATIENCE
        while len((self.folder("unified") / "cgroup.procs").read_text().split()) < len(self.processes):
            assert time.monotonic() < end, "a process did not get into its group"
            time.sleep(0.01)

    def runnable(self) -> int:
        """Processes that run or wait for a processor at this instant."""
        states = [
            Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] for process in self.processes
        ]
        return states.count("R")

    def delay(self) -> Delay:
        ran = waited = 0
        for process in self.processes:
            for task in Path(f"/proc/{process.pid}/task").iterdir():
                run, wait, _ = (task / "schedstat").read_text().split()
                ran, waited = ran + int(run), waited + int(wait)
        return Delay(time.monotonic(), ran * 1e-9, waited * 1e-9)

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()
        for tree in TREES:
            _remove(self.folder(tree))


def _remove(folder: Path) -> None:
    """A group remains for a moment after its last process has ended."""
    end = time.monotonic() + PATIENCE
    while folder.exists():
        with contextlib.suppress(OSError):
            folder.rmdir()
            return
        assert time.monotonic() < end, f"{folder} cannot be removed"
        time.sleep(0.05)


@contextlib.contextmanager
def pods_like(*names: str) -> Iterator[list[PodLike]]:
    made: list[PodLike] = []
    try:
        for name in names:
            made.append(PodLike(name))
        yield made
    finally:
        for pod in made:
            pod.end()
