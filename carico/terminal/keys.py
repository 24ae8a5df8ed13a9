"""Key names from the terminal input of `carico top`."""

from __future__ import annotations

import re

ESCAPE = "\x1b"
SEQUENCE = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|O.|[^\x1b\[O])")
BEGUN = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*|O)")  # an incomplete sequence
NAMES = {
    "\x1b[A": "up",
    "\x1bOA": "up",
    "\x1b[B": "down",
    "\x1bOB": "down",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    "\x1b[H": "home",
    "\x1b[1~": "home",
    "\x1b[F": "end",
    "\x1b[4~": "end",
    "\t": "tab",
    "\x03": "q",  # Ctrl-C where the terminal does not convert it to a signal
}


class Keys:
    """Parses terminal input; buffers an incomplete escape sequence until the rest arrives.

    Escape at the end of the input is the key itself and is ignored.
    """

    def __init__(self) -> None:
        self._rest = ""

    def feed(self, text: str) -> list[str]:
        r"""
        >>> keys = Keys()
        >>> keys.feed("q\x1b[A\x1b["), keys.feed("5~x\x1b[99;7u")
        (['q', 'up'], ['page up', 'x', ''])
        >>> keys.feed("\x1b"), keys.feed("q"), keys.feed("\x1b\x1b[B")
        ([], ['q'], ['down'])
        """
        text, self._rest, found = self._rest + text, "", []
        while text:
            if text[0] != ESCAPE:
                found.append(NAMES.get(text[0], text[0]))
                text = text[1:]
            elif match := SEQUENCE.match(text):
                found.append(NAMES.get(match[0], ""))
                text = text[match.end() :]
            elif BEGUN.fullmatch(text):
                self._rest, text = text, ""
            else:
                text = text[1:]
        return found
