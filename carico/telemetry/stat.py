"""/proc/stat: cpu utilisation and runnable tasks (https://docs.kernel.org/filesystems/proc.html).

    cpu  user nice system idle iowait irq softirq steal guest guest_nice      clock ticks since boot, all processors
    …
    procs_running 3                                                           tasks that run or wait, now

`user` includes `guest`, and `nice` includes `guest_nice`: they are left out, or virtual machines would count twice.
Steal is time that the hypervisor gave to another guest: it is not available, so it counts as used.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from carico.errors import SourceError
from carico.telemetry.procfs import KernelFile
from carico.telemetry.source import U64, clamped, counter

IDLE, IOWAIT, GUEST = 3, 4, 8  # positions of fields in the line


class CpuTimes(NamedTuple):
    """Clock ticks since boot, summed over the processors."""

    idle: int
    busy: int


def parse_times(text: bytes) -> CpuTimes:
    """
    >>> parse_times(b"cpu  10 1 5 80 4 0 0 2 7 1\\ncpu0 5 0 2 40 2 0 0 1 3 0")
    CpuTimes(idle=84, busy=18)
    """
    line = text[: text.find(b"\n")] if b"\n" in text else text
    words = line.split()
    if len(words) <= IDLE + 1 or words[0] != b"cpu":
        raise SourceError(f"/proc/stat starts with {line[:40]!r} instead of cpu and at least four counters")
    try:
        ticks = [int(word) for word in words[1 : GUEST + 1]]
    except ValueError:
        raise SourceError(f"/proc/stat: {line[:80]!r} has a field that is not a number") from None
    if min(ticks) < 0 or max(ticks) >= U64:
        raise SourceError(f"/proc/stat: {line[:80]!r} has a number that is not a counter of the kernel")
    idle = sum(ticks[IDLE : IOWAIT + 1])  # kernels before 2.6 have no iowait
    return CpuTimes(idle, sum(ticks) - idle)


def parse_running(text: bytes) -> int:
    """Tasks that run or wait for a processor at this time, including the reader."""
    start = text.rfind(b"\nprocs_running ")  # near the end of the text, which is long with many processors
    if start < 0:
        raise SourceError("/proc/stat has no line procs_running")
    return counter(text[start + 15 :].split(b"\n", 1)[0].strip(), "/proc/stat procs_running")


def count_processors(text: bytes) -> int:
    """Processors that are online; the number changes with hotplug."""
    return text.count(b"\ncpu")


def utilisation(before: CpuTimes, after: CpuTimes) -> float | None:
    """Share of the processors' time used between two readings; None if a counter decreased or none changed.

    >>> utilisation(CpuTimes(idle=100, busy=50), CpuTimes(idle=115, busy=55))
    0.25
    """
    idle, busy = after.idle - before.idle, after.busy - before.busy
    if idle < 0 or busy < 0 or idle + busy == 0:
        return None
    return busy / (idle + busy)


def queue_in(text: bytes) -> float:
    """The run queue as a share of the processors."""
    return queue(parse_running(text), count_processors(text))


def queue(running: int, processors: int) -> float:
    """Replaces pressure where PSI is missing: waiting tasks per processor, without the reader.

    For tasks that always run it is equal to pressure: 3 on 2 processors give 0.5, 4 give 1.

    >>> queue(running=4, processors=2), queue(running=9, processors=2), queue(running=1, processors=2)
    (0.5, 1.0, 0.0)
    """
    return clamped((running - 1 - processors) / max(1, processors))


class CpuStat:
    """The source of cpu utilisation."""

    name = "stat"

    def __init__(self, proc: Path) -> None:
        self._file = KernelFile(proc / "stat")
        self.fetch = self._file.read
        self._before: CpuTimes | None = None

    def usage(self, fetched: bytes, now: float) -> float | None:  # noqa: ARG002  the counters are their own clock
        times = parse_times(fetched)
        if times == self._before:
            return None  # less than a clock tick has passed: the next sample covers it
        before, self._before = self._before, times
        return None if before is None else utilisation(before, times)

    def count(self) -> int:
        """Processors that are online now."""
        return max(1, count_processors(self._file.read()))
