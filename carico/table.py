"""Tables and colours, the same in every command.

Columns are two spaces apart and as wide as their widest cell; figures are right-aligned. Colours are used on a terminal
only: never in a pipe, and not if NO_COLOR is set or the terminal is dumb.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import TextIO

CODES = {"bold": "1", "quiet": "2", "red": "31", "green": "32", "yellow": "33"}


def table(head: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> str:
    """
    >>> print(table(("NODE", "FREE"), [("n1", "12"), ("node-2", "3")], right=(1,)))
    NODE    FREE
    n1        12
    node-2     3
    """
    lines = [tuple(head), *map(tuple, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return "\n".join(_line(line, widths, right) for line in lines)


def _line(cells: Sequence[str], widths: Sequence[int], right: Collection[int]) -> str:
    padded = [
        cell.rjust(width) if i in right else cell.ljust(width)
        for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(padded).rstrip()


class Colours:
    """Adds colour codes to text for `out`, if it is a terminal with colours."""

    def __init__(self, out: TextIO = sys.stdout, environ: Mapping[str, str] = os.environ) -> None:
        self.on = out.isatty() and "NO_COLOR" not in environ and environ.get("TERM") != "dumb"

    def paint(self, text: str, colour: str) -> str:
        return f"\x1b[{CODES[colour]}m{text}\x1b[0m" if self.on else text
