"""Progress of a long build: one redrawn line on a terminal; elsewhere a line every LOG_EVERY seconds."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable

TERMINAL_EVERY = 1.0
LOG_EVERY = 30.0


def spoken(seconds: float) -> str:
    """A rounded duration for users.

    >>> spoken(45), spoken(900)
    ('45 s', '15 min')
    """
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def clock(seconds: float) -> str:
    """
    >>> clock(316)
    '5:16'
    """
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


class Line:
    """The progress of one build."""

    def __init__(self, title: str, expected: float, say: Callable[[str], None]) -> None:
        self._title, self._expected, self._say = title, expected, say

    def watch(self, child: subprocess.Popen[str]) -> str:
        """Wait for the child and show the elapsed time; returns what it wrote to standard error."""
        began = time.monotonic()
        written: list[str] = []
        assert child.stderr is not None
        reader = threading.Thread(target=lambda pipe: written.append(pipe.read()), args=(child.stderr,), daemon=True)
        reader.start()
        moving = sys.stderr.isatty()
        self._show(0.0, moving)
        while reader.is_alive():
            reader.join(TERMINAL_EVERY if moving else LOG_EVERY)
            if reader.is_alive():
                self._show(time.monotonic() - began, moving)
        child.wait()
        child.stderr.close()
        if moving:
            sys.stderr.write("\r\x1b[K")
        self._say(
            f"{self._title}  {'done' if child.returncode == 0 else 'failed'} after {spoken(time.monotonic() - began)}"
        )
        return "".join(written)

    def _show(self, elapsed: float, moving: bool) -> None:
        text = f"{self._title}  {clock(elapsed)} of up to about {clock(self._expected)}"
        if moving:
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()
        else:
            self._say(text)
