"""Processes as /proc shows them: who descends from whom, and how to end all of a family.

A process that is being killed may start another one. So all are stopped first, again and again until no new one is
found, and only then killed: what is stopped starts nothing.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from typing import NamedTuple

PAUSE = 0.002  # s between two looks whether the killed ones are gone
PATIENCE = 10.0  # s; a process that hangs in the kernel (a dead disk) dies when the kernel lets it


class Look(NamedTuple):
    parent: int
    session: int
    started: int  # clock ticks since boot
    ended: bool  # a zombie: it only waits for its parent to take note


def look(pid: int) -> Look | None:
    """One process; None when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None
    # The name in parentheses may hold anything, spaces and parentheses too.
    words = text[text.rfind(b")") + 2 :].split()
    if len(words) < 20:
        return None
    return Look(int(words[1]), int(words[3]), int(words[19]), words[0] in (b"Z", b"X"))


def everyone() -> dict[int, Look]:
    """All processes that can be seen."""
    numbers = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    looks = ((pid, look(pid)) for pid in numbers)
    return {pid: seen for pid, seen in looks if seen is not None}


def living() -> set[int]:
    return {pid for pid, seen in everyone().items() if not seen.ended}


def descendants(of: int) -> set[int]:
    """Living descendants of a process, without itself."""
    processes = everyone()
    children: dict[int, list[int]] = {}
    for pid, seen in processes.items():
        children.setdefault(seen.parent, []).append(pid)
    found: set[int] = set()
    todo = [of]
    while todo:
        for pid in children.get(todo.pop(), ()):
            if pid not in found:
                found.add(pid)
                todo.append(pid)
    return {pid for pid in found if not processes[pid].ended}


def children(of: int) -> set[int]:
    """Direct children, zombies too; one file where the kernel has it, all of /proc where not."""
    try:
        with open(f"/proc/{of}/task/{of}/children", "rb") as file:
            return {int(word) for word in file.read().split()}
    except OSError:
        return {pid for pid, seen in everyone().items() if seen.parent == of}


def send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def reap(pids: set[int]) -> None:
    """Takes note of the end of those among them that are children of this process."""
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def kill_all(find: Callable[[], set[int]], reap: Callable[[], object] = lambda: None) -> set[int]:
    """Kills everything that `find` finds until it finds nothing; what is left after all patience is returned."""
    stopped: set[int] = set()
    while new := find() - stopped:
        for pid in new:
            send(pid, signal.SIGSTOP)
        stopped |= new
    for pid in stopped:
        send(pid, signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE
    reap()
    while left := find():
        if time.monotonic() > deadline:
            return left
        for pid in left:
            send(pid, signal.SIGKILL)
        time.sleep(PAUSE)
        reap()
    return set()
