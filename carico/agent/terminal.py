"""A terminal that is redrawn in place, and left as it was found: cursor shown, the last picture still there."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from types import TracebackType
from typing import TextIO

from carico.agent.screen import Line, paint

HOME, CLEAR, REST_OF_LINE, REST_OF_SCREEN = "\x1b[H", "\x1b[2J", "\x1b[K", "\x1b[J"
HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
PLAIN = str.maketrans("█░▏▎▍▌▋▊▉▁▂▃▄▅▆▇…", "#.-------..:-=+*.")


class LastWarning(logging.Handler):
    """Log lines would tear the picture apart: the last one is shown in it instead."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage()


class Terminal:
    """Use as a context: logging is caught and the cursor hidden inside it."""

    def __init__(self, out: TextIO = sys.stdout) -> None:
        self._out = out
        self._colours = "NO_COLOR" not in os.environ
        self._unicode = (out.encoding or "").lower().replace("-", "") == "utf8"
        self._size: tuple[int, int] | None = None
        self._warning = LastWarning()
        self._handlers: list[logging.Handler] = []

    @property
    def notice(self) -> str:
        return self._warning.text

    def size(self) -> tuple[int, int]:
        """Columns and lines; the last line stays free, or the picture would scroll."""
        columns, lines = shutil.get_terminal_size()
        return columns, lines - 1

    def draw(self, lines: list[Line]) -> None:
        size = self.size()
        start = HOME if size == self._size else HOME + CLEAR  # what was wrapped by a resize is no longer ours
        self._size = size
        text = "".join(f"{paint(line, self._colours)}{REST_OF_LINE}\n" for line in lines)
        self._out.write(start + (text if self._unicode else text.translate(PLAIN)) + REST_OF_SCREEN)
        self._out.flush()

    def __enter__(self) -> Terminal:
        root = logging.getLogger()
        self._handlers, root.handlers = root.handlers, [self._warning]
        self._out.write(HIDE_CURSOR)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._out.write(SHOW_CURSOR)
        self._out.flush()
        logging.getLogger().handlers = self._handlers
