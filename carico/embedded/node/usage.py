"""What a pod's processes use, from /proc: the same figures that a container runtime takes from a pod's cgroup.

    processor time  utime + stime of every process of the tree, and of the children that they have waited for
    waiting         time that threads were runnable and did not run (schedstat), summed over the threads
    memory          anonymous and shared memory; file cache can be reclaimed

A process that leaves the tree (its parent ends before it) is no longer counted.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import NamedTuple

TICK = 1.0 / os.sysconf("SC_CLK_TCK")  # s
NANOSECOND = 1e-9


class Usage(NamedTuple):
    cpu: float  # s of processor time since the pod started
    waited: float  # s that threads waited for a processor
    memory: int  # bytes
    swap: int  # bytes


class PodUsage:
    """The usage of one pod. Its sums never decrease: what an ended process used remains counted."""

    def __init__(self) -> None:
        self._ended = 0.0  # s of processor time of processes that have ended
        self._cpu = 0.0  # s, of those that existed at the last call
        self._waited = 0.0
        self._threads: dict[tuple[int, int], int] = {}  # process, thread → ns waited at the last call

    def look(self, pids: Collection[int]) -> Usage:
        """`pids`: the first process of each of its running containers."""
        processes = [pid for first in pids for pid in tree(first)]
        cpu = sum([_cpu_seconds(pid) for pid in processes])
        self._ended += max(0.0, self._cpu - cpu)
        self._cpu = cpu
        self._add_waits(processes)
        memory, swap = _memory(processes)
        return Usage(self._ended + cpu, self._waited, memory, swap)

    def _add_waits(self, processes: list[int]) -> None:
        before, self._threads = self._threads, {}
        for pid in processes:
            for tid in _threads(pid):
                with suppress(OSError, ValueError, IndexError):
                    waited = int(_text(f"/proc/{pid}/task/{tid}/schedstat").split()[1])
                    self._threads[pid, tid] = waited
                    self._waited += max(0, waited - before.get((pid, tid), 0)) * NANOSECOND


def tree(first: int) -> list[int]:
    """A process and all its descendants, parents first."""
    found = [first]
    for pid in found:  # grows during the iteration
        found.extend(_children(pid))
    return found


def _children(pid: int) -> Iterator[int]:
    for tid in _threads(pid):
        with suppress(OSError, ValueError):
            yield from map(int, _text(f"/proc/{pid}/task/{tid}/children").split())


def _threads(pid: int) -> list[int]:
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def _cpu_seconds(pid: int) -> float:
    try:
        text = _text(f"/proc/{pid}/stat")
        # The name in parentheses may contain any characters, also spaces and parentheses.
        return sum(map(int, text[text.rfind(b")") + 2 :].split()[11:15])) * TICK
    except (OSError, ValueError):
        return 0.0


def _memory(processes: list[int]) -> tuple[int, int]:
    """Bytes in memory and in swap. Pages shared with forked processes are divided among them (Pss)."""
    if len(processes) == 1:
        fields = _kilobytes(f"/proc/{processes[0]}/status")
        return fields.get(b"RssAnon", 0) + fields.get(b"RssShmem", 0), fields.get(b"VmSwap", 0)
    rollups = [_kilobytes(f"/proc/{pid}/smaps_rollup") for pid in processes]
    memory = sum([fields.get(b"Pss_Anon", 0) + fields.get(b"Pss_Shmem", 0) for fields in rollups])
    return memory, sum([fields.get(b"SwapPss", 0) for fields in rollups])


def _kilobytes(path: str) -> dict[bytes, int]:
    """The `Name: number kB` lines of a file, in bytes."""
    try:
        lines = [line.split() for line in _text(path).splitlines()]
    except OSError:
        return {}
    return {words[0][:-1]: int(words[1]) * 1024 for words in lines if len(words) == 3 and words[2] == b"kB"}


def _text(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
