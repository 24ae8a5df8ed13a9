"""Where the inputs come from: after `:::`, out of files, or one per line of standard input."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from carico.errors import UsageError

SEPARATOR = ":::"


def split(words: list[str]) -> tuple[list[str], list[str] | None]:
    """The command, and the inputs behind `:::` if there are any.

    >>> split(["echo", "{}", ":::", "a", "b"])
    (['echo', '{}'], ['a', 'b'])
    """
    words = words[1:] if words[:1] == ["--"] else words
    if SEPARATOR not in words:
        return words, None
    at = words.index(SEPARATOR)
    if SEPARATOR in words[at + 1 :]:
        raise UsageError("':::' stands there twice; give one list")
    return words[:at], words[at + 1 :]


def gather(given: list[str] | None, files: Sequence[Path], null: bool) -> list[str]:
    if given is not None and files:
        raise UsageError("inputs come from ':::' or from --arg-file, not from both")
    if given is not None:
        return given
    if files:
        return [line for file in files for line in _lines(_read(file), null)]
    if sys.stdin.isatty():
        raise UsageError("no inputs; write them after ':::', name a file with -a, or pipe them in")
    return _lines(sys.stdin.buffer.read(), null)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise UsageError(f"{file}: cannot be read ({error.strerror}); check --arg-file") from error


def _lines(data: bytes, null: bool) -> list[str]:
    r"""
    >>> _lines(b"a\nb c\n\nd", null=False), _lines(b"a\0b\nc\0", null=True)
    (['a', 'b c', '', 'd'], ['a', 'b\nc'])
    """
    separator = b"\0" if null else b"\n"
    parts = data.split(separator)
    if parts[-1] == b"":
        parts.pop()
    return [part.decode("utf-8", "surrogateescape") for part in parts]
