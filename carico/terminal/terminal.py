"""Redraws a terminal in place; restores screen, cursor and echo at the end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Callable
from types import TracebackType
from typing import Any, TextIO

from carico.terminal.keys import Keys
from carico.terminal.screen import Line, paint

HOME, CLEAR, REST_OF_LINE, REST_OF_SCREEN = "\x1b[H", "\x1b[2J", "\x1b[K", "\x1b[J"
OPEN = "\x1b[?1049h\x1b[?25l"  # the alternate screen, without a cursor
CLOSE = "\x1b[?25h\x1b[?1049l"
PLAIN = str.maketrans("█░▏▎▍▌▋▊▉▁▂▃▄▅▆▇…", "#.-------..:-=+*.")


class LastWarning(logging.Handler):
    """Keeps the last warning to show it in the picture, which log lines would overwrite.

    Those of carico.runtime are left out: the picture shows the state of the pod source anyway.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        if not record.name.startswith("carico.runtime"):
            self.text = record.getMessage()


class Terminal:
    """A context manager for use in an event loop: captures logging; keys are not echoed but passed to `on_key`."""

    def __init__(self, on_key: Callable[[str], None], out: TextIO = sys.stdout) -> None:
        self._out = out
        self._on_key = on_key
        self._keys = Keys()
        self._keyboard = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
        self._was: list[Any] = []  # the keyboard's settings
        self._colours = "NO_COLOR" not in os.environ
        self._unicode = (out.encoding or "").lower().replace("-", "") == "utf8"
        self._size: tuple[int, int] | None = None
        self._warning = LastWarning()
        self._handlers: list[logging.Handler] = []

    @property
    def notice(self) -> str:
        return self._warning.text

    def size(self) -> tuple[int, int]:
        """Columns and lines, without the last line: writing it would scroll the picture."""
        columns, lines = shutil.get_terminal_size()
        return columns, lines - 1

    def draw(self, lines: list[Line]) -> None:
        size = self.size()
        start = HOME if size == self._size else HOME + CLEAR  # a resize may have wrapped lines
        self._size = size
        text = "".join(f"{paint(line, self._colours)}{REST_OF_LINE}\n" for line in lines)
        self._out.write(start + (text if self._unicode else text.translate(PLAIN)) + REST_OF_SCREEN)
        self._out.flush()

    def __enter__(self) -> Terminal:
        root = logging.getLogger()
        self._handlers, root.handlers = root.handlers, [self._warning]
        self._open()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTSTP, self._suspend)
        if self._keyboard is not None:
            loop.add_reader(self._keyboard, self._on_input)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_signal_handler(signal.SIGTSTP)
        if self._keyboard is not None:
            loop.remove_reader(self._keyboard)
        self._close()
        logging.getLogger().handlers = self._handlers

    def _open(self) -> None:
        if self._keyboard is not None:
            self._was = termios.tcgetattr(self._keyboard)
            tty.setcbreak(self._keyboard)  # keys are delivered immediately and not echoed
        self._out.write(OPEN)
        self._out.flush()
        self._size = None

    def _close(self) -> None:
        self._out.write(CLOSE)
        self._out.flush()
        if self._keyboard is not None:
            with contextlib.suppress(termios.error):  # the terminal was closed
                termios.tcsetattr(self._keyboard, termios.TCSAFLUSH, self._was)

    def _suspend(self) -> None:
        """Ctrl-Z: restores the terminal for the shell until this process continues."""
        self._close()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._open()

    def _on_input(self) -> None:
        assert self._keyboard is not None
        data = os.read(self._keyboard, 1024)
        if not data:
            asyncio.get_running_loop().remove_reader(self._keyboard)
        for key in self._keys.feed(data.decode(errors="replace")):
            if key:
                self._on_key(key)
