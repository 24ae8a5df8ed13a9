"""The progress line on the terminal: tasks done, tasks at once, time left."""

from __future__ import annotations

import shutil
import sys

from carico.run.tasks import TaskCounts

EIGHTHS = " ▏▎▍▌▋▊▉"
REST_OF_LINE = "\x1b[K"


def line(counts: TaskCounts, running: int, seconds: float, width: int, *, complete: bool = True) -> str:
    """`complete`: all inputs have been read.

    >>> line(TaskCounts(100, succeeded=49, failed=1), running=4, seconds=30.0, width=60)
    '█████████░░░░░░░░░  50/100  4 at once  30 s left  1 failed'
    >>> line(TaskCounts(100, succeeded=50), running=4, seconds=30.0, width=40, complete=False)
    '█████████░░░░░░░░░  50/100+  4 at once'
    """
    done = counts.succeeded + counts.failed
    todo = counts.tasks - counts.skipped
    left = f"{seconds / done * (todo - done):.0f} s left" if done and complete else ""
    failed = f"{counts.failed} failed" if counts.failed else ""
    words = "  ".join(
        word for word in (f"{done}/{todo}{'' if complete else '+'}", f"{running} at once", left, failed) if word
    )
    room = max(5, min(45, width - len(words) - 4))
    eighths = round(done / max(1, todo) * room * 8)
    bar = ("█" * (eighths // 8) + EIGHTHS[eighths % 8].strip()).ljust(room, "░")
    return f"{bar}  {words}"[: width - 1]


class RunProgress:
    """Draws on standard error, if requested and if that is a terminal."""

    def __init__(self, wanted: bool) -> None:
        self._on = wanted and sys.stderr.isatty()
        self._shown = False

    def draw(self, counts: TaskCounts, running: int, seconds: float, *, complete: bool) -> None:
        if self._on:
            width = shutil.get_terminal_size().columns
            sys.stderr.write(f"\r{line(counts, running, seconds, width, complete=complete)}{REST_OF_LINE}")
            sys.stderr.flush()
            self._shown = True

    def clear(self) -> None:
        """Call before anything else is written: otherwise it would be appended to the line."""
        if self._shown:
            sys.stderr.write(f"\r{REST_OF_LINE}")
            sys.stderr.flush()
            self._shown = False
