"""Which commands work on which operating system: Carico measures Linux, and can be asked from anywhere."""

from __future__ import annotations

import sys

from carico.errors import UsageError

ANYWHERE = ("explain", "simulate-placement", "decisions", "replay", "version", "help", "completion")


def runs_here(command: str) -> bool:
    return _system() == "linux" or command in ANYWHERE


def require_linux(command: str) -> None:
    """Raises UsageError where the command cannot work. Its module is not even imported: it may need Linux for that."""
    if not runs_here(command):
        *others, last = (name for name in ANYWHERE if name != "help")
        raise UsageError(
            f"`carico {command}` needs Linux, and this system is {_system()}; {', '.join(others)} and {last} work here"
        )


def _system() -> str:
    return sys.platform
