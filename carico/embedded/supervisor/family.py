"""Process trees from /proc, and how to end all processes of a tree.

A process that is being killed may start another one. So all are stopped first, repeatedly until no new one is found,
and only then killed: a stopped process starts nothing.

After a process was found it may end, and its number may be reused before the signal is sent. So a pidfd is opened for
every process that was found, and only those that are found once more are signalled. If the number was reused in the
meantime, the pidfd refers either to a process that is no longer found, or to one that has ended.
"""

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
    started: int  # clock ticks since boot
    ended: bool  # a zombie: it only waits to be reaped by its parent


def look(pid: int) -> ProcessStat | None:
    """One process; None if it does not exist."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None
    # The name in parentheses may contain any characters, also spaces and parentheses.
    words = text[text.rfind(b")") + 2 :].split()
    if len(words) < 20:
        return None
    return ProcessStat(int(words[1]), int(words[3]), int(words[19]), words[0] in (b"Z", b"X"))


def everyone() -> dict[int, ProcessStat]:
    """All visible processes."""
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
    """Direct children, including zombies; from one file if the kernel has it, otherwise from all of /proc."""
    try:
        with open(f"/proc/{of}/task/{of}/children", "rb") as file:
            return {int(word) for word in file.read().split()}
    except OSError:
        return {pid for pid, seen in everyone().items() if seen.parent == of}


def send(pid: int, number: int) -> None:
    """Signal a child that this process has not reaped: its number cannot have been reused."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def signal_found(find: Find, number: int) -> None:
    """Signal every process that `find` finds."""
    _signal(find(), find, number)


def _signal(pids: set[int], find: Find, number: int) -> set[int]:
    """Signal those of `pids` that `find` still finds; returns all that it finds."""
    held: dict[int, int | None] = {}
    try:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                held[pid] = _descriptor(pid)
        found = find()
        for pid in held.keys() & found:
            _send_held(pid, held[pid], number)
        return found
    finally:
        for descriptor in held.values():
            if descriptor is not None:
                os.close(descriptor)


def _descriptor(pid: int) -> int | None:
    """A pidfd; None if not available: the kernel is older than 5.3, or all descriptors are in use."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except OSError:
        return None


def _send_held(pid: int, descriptor: int | None, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if descriptor is None:
            os.kill(pid, number)
        else:
            signal.pidfd_send_signal(descriptor, number)


def reap(pids: set[int]) -> None:
    """Reap those among them that are ended children of this process."""
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def kill_all(find: Find, reap: Callable[[], object] = lambda: None) -> set[int]:
    """Kill everything that `find` finds until it finds nothing; returns what is left after PATIENCE."""
    stopped: set[int] = set()
    found = find()
    while new := found - stopped:
        found = _signal(new, find, signal.SIGSTOP)
        stopped |= new
    _signal(found, find, signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE
    reap()
    while left := find():
        if time.monotonic() > deadline:
            return left
        _signal(left, find, signal.SIGKILL)
        time.sleep(PAUSE)
        reap()
    return set()
