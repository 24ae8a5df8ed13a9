"""Process trees from /proc, and how to kill all processes of a tree."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from typing import NamedTuple

PAUSE = 0.002  # s between two checks whether the killed processes have ended
PATIENCE = 10.0  # s; a process that is blocked in the kernel (a dead disk) ends only when the kernel returns

Find = Callable[[], set[int]]


class ProcessStat(NamedTuple):
    parent: int
    session: int


def living() -> dict[int, ProcessStat]:
    """All visible processes but zombies, which only wait to be reaped by their parents."""
    found: dict[int, ProcessStat] = {}
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
            # The program's name is in parentheses and may contain any characters.
            words = file.read().rpartition(b")")[2].split()
            if len(words) > 3 and words[0] not in (b"Z", b"X"):
                found[int(name)] = ProcessStat(int(words[1]), int(words[3]))
    return found


def descendants(of: int, processes: dict[int, ProcessStat]) -> set[int]:
    """The descendants of a process, without itself.

    >>> tree = {2: ProcessStat(1, 2), 3: ProcessStat(2, 2), 4: ProcessStat(3, 4), 5: ProcessStat(1, 5)}
    >>> sorted(descendants(2, tree))
    [3, 4]
    """
    found, parents = set[int](), {of}
    while parents:
        parents = {pid for pid, seen in processes.items() if seen.parent in parents} - found
        found |= parents
    return found


def children(of: int) -> set[int]:
    """Direct children, zombies too; from one file if the kernel has it, otherwise from all of /proc."""
    try:
        with open(f"/proc/{of}/task/{of}/children", "rb") as file:
            return {int(word) for word in file.read().split()}
    except OSError:
        return {pid for pid, seen in living().items() if seen.parent == of}


def send(pids: set[int], number: int) -> None:
    """Signal all of them. Numbers that were found a moment ago are taken to be still those processes."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def kill_all(find: Find, reap: Callable[[], object] = lambda: None) -> set[int]:
    """Kill what `find` finds until it finds nothing; returns what is left after PATIENCE."""
    deadline = time.monotonic() + PATIENCE
    while left := find():
        if time.monotonic() > deadline:
            return left
        send(left, signal.SIGSTOP)  # else one could start another while the rest is being killed
        send(left, signal.SIGKILL)
        time.sleep(PAUSE)
        reap()
    return set()
