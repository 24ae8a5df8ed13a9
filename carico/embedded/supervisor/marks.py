"""The mark that every process under a guard has in its environment, and processes whose mark has a dead owner.

    CARICO_GUARD=4026531836.812.99123.5f0c2ab1/3
                 │          │   │     │        └ number of the job
                 │          │   │     └ random
                 │          │   └ when the owner started, in clock ticks since boot
                 │          └ the owner's process number
                 └ the PID namespace of that number

The environment is inherited, so every descendant that did not clear its environment has the mark. Nested guards append
their mark after a space. A mark names its owner, so any process can check whether the owner still lives.
"""

from __future__ import annotations

import contextlib
import os
import secrets

from carico.embedded.supervisor import family

VARIABLE = "CARICO_GUARD"


def new_mark() -> str:
    """A mark with this process as the owner."""
    pid = os.getpid()
    start = family.look(pid)
    assert start is not None
    return f"{_namespace()}.{pid}.{start.started}.{secrets.token_hex(8)}"


def marked(environment: dict[str, str], mark: str, job: int) -> dict[str, str]:
    """
    >>> marked({"CARICO_GUARD": "1.2.3.a/1"}, "1.5.9.b", 7)["CARICO_GUARD"]
    '1.2.3.a/1 1.5.9.b/7'
    """
    before = environment.get(VARIABLE, "")
    return environment | {VARIABLE: f"{before} {mark}/{job}".strip()}


def marks_of(pid: int) -> list[str]:
    """The marks of a process; none if it has ended or belongs to another user."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            text = file.read()
    except OSError:
        return []
    prefix = VARIABLE.encode() + b"="
    for entry in text.split(b"\0"):
        if entry.startswith(prefix):
            return entry[len(prefix) :].decode("ascii", "replace").split()
    return []


def bearers(mark: str, job: int | None = None) -> set[int]:
    """The living processes under a guard, or of one of its jobs."""
    wanted = mark + "/" if job is None else f"{mark}/{job}"

    def bears(pid: int) -> bool:
        return any(own.startswith(wanted) if job is None else own == wanted for own in marks_of(pid))

    return {pid for pid in family.living() if bears(pid)}


def supervisor_lives(mark: str) -> bool:
    """Whether the mark's owner still runs; marks of another namespace cannot be checked and count as living."""
    parts = mark.partition("/")[0].split(".")
    if len(parts) != 4 or parts[0] != _namespace() or not parts[1].isdecimal():
        return True
    process = family.look(int(parts[1]))
    return process is not None and not process.ended and str(process.started) == parts[2]


def orphans() -> set[int]:
    """Living processes of this user under a guard whose owner is dead."""
    return {pid for pid in family.living() if any(not supervisor_lives(mark) for mark in marks_of(pid))}


def _namespace() -> str:
    with contextlib.suppress(OSError):
        return os.readlink("/proc/self/ns/pid").strip("pid:[]")
    return "0"
