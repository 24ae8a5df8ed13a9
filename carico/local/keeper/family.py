"""Processes as /proc shows them: who descends from whom, and how to end all of a family.

A process that is being killed may start another one. So all are stopped first, again and again until no new one is
found, and only then killed: what is stopped starts nothing.

Between being found and being signalled a process may end, and its number be given to a stranger. So a descriptor is
opened for whatever was found, and signalled is only who is found once more after that: if the number has changed hands
meanwhile, the descriptor belongs either to somebody who is not found any more, or to a process that has ended.
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

Find = Callable[[], set[int]]


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
    """To a child that this process has not reaped: its number cannot be anybody else's."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def signal_found(find: Find, number: int) -> None:
    """To everything that `find` finds."""
    _signal(find(), find, number)


def _signal(pids: set[int], find: Find, number: int) -> set[int]:
    """To those of `pids` that `find` still finds; returns all that it finds."""
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
    """None where there is none to be had: the kernel is older than 5.3, or all descriptors are in use."""
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
    """Takes note of the end of those among them that are children of this process."""
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def kill_all(find: Find, reap: Callable[[], object] = lambda: None) -> set[int]:
    """Kills everything that `find` finds until it finds nothing; what is left after all patience is returned."""
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
