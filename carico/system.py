"""Which commands run on which operating system: measuring needs Linux, queries do not."""

from __future__ import annotations

import sys

from carico.errors import UsageError

ANYWHERE = ("explain", "decisions", "classes", "replay", "version", "help", "completion")


def runs_here(command: str) -> bool:
    return _system() == "linux" or command in ANYWHERE


def require_linux(command: str) -> None:
    """Raises UsageError if the command needs Linux. Call it before the import of its module, which may need it too."""
    if not runs_here(command):
        *others, last = (name for name in ANYWHERE if name != "help")
        raise UsageError(
            f"`carico {command}` needs Linux, and this system is {_system()}; {', '.join(others)} and {last} work here"
        )


def _system() -> str:
    return sys.platform
