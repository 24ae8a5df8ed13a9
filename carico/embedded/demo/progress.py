"""Progress of a run: a line that is redrawn on a terminal; elsewhere a new line every LINE_EVERY seconds."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from typing import TextIO

from carico.embedded.demo.job import DemoRun
from carico.terminal.screen import bar

REDRAW = 0.2  # s
LINE_EVERY = 10.0  # s, if nothing can be redrawn
LABEL = 20


class DemoProgress:
    """Writes to standard error, so that a pipe gets only the results."""

    def __init__(self, out: TextIO = sys.stderr) -> None:
        self._out = out
        self._live = out.isatty()

    def say(self, text: str) -> None:
        print(text, file=self._out, flush=True)

    async def follow(self, run: DemoRun, pods: int) -> None:
        """Until cancelled; then the last state remains."""
        try:
            while True:
                self._show(run, pods, last=False)
                await asyncio.sleep(REDRAW if self._live else LINE_EVERY)
        finally:
            self._show(run, pods, last=True)

    def _show(self, run: DemoRun, pods: int, *, last: bool) -> None:
        line = _line(run, pods, time.monotonic() - run.published, shutil.get_terminal_size().columns)
        if self._live:
            self._out.write(f"\r{line}\x1b[K" + ("\n" if last else ""))
        else:
            self._out.write(line + "\n")
        self._out.flush()


def _line(run: DemoRun, pods: int, seconds: float, columns: int) -> str:
    about = f" {run.done:>3}/{pods} done  {run.running:>3} running  {seconds:>4.0f} s"
    room = max(5, min(40, columns - LABEL - len(about) - 1))
    return f"{run.way.label:<{LABEL}}{bar(run.done / pods, room)}{about}"[
        : columns - 1
    ]  # a longer one could not be redrawn
