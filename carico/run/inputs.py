"""Where the inputs come from: after `:::`, from files, or one per line of standard input.

They are read while tasks run: a task starts as soon as its line is read, and an endless list is read only a little
ahead.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from carico.errors import UsageError

SEPARATOR = ":::"
STANDARD_INPUT = 0
CHUNK = 1 << 16  # bytes
AHEAD = 4  # batches that are read in advance
Batch = list[str]


def split(words: list[str]) -> tuple[list[str], list[str] | None]:
    """The command, and the inputs after `:::` if there are any.

    >>> split(["echo", "{}", ":::", "a", "b"])
    (['echo', '{}'], ['a', 'b'])
    """
    words = words[1:] if words[:1] == ["--"] else words
    for word in words:
        if word in ("::::", ":::+", "::::+"):
            instead = "write -a FILE" if word.startswith("::::") else "give one list"
            raise UsageError(f"{word!r} is GNU parallel's, and not known here; {instead}")
    if SEPARATOR not in words:
        return words, None
    at = words.index(SEPARATOR)
    if SEPARATOR in words[at + 1 :]:
        raise UsageError("':::' stands there twice; give one list")
    return words[:at], words[at + 1 :]


def batches(given: list[str] | None, files: Sequence[Path], null: bool) -> Iterable[Batch]:
    """The inputs in their order; iteration blocks until the next batch can be read.

    Files are opened at once, so that a wrong name is an error before any task has run.
    """
    if given is not None and files:
        raise UsageError("inputs come from ':::' or from --arg-file, not from both")
    if given is not None:
        return [given]
    if files:
        return _lines([_open(file) for file in files], null)
    try:
        if os.isatty(STANDARD_INPUT):
            raise UsageError("no inputs; write them after ':::', name a file with -a, or pipe them in")
        os.fstat(STANDARD_INPUT)
    except OSError:
        raise UsageError("standard input is closed; write the inputs after ':::', or name a file with -a") from None
    return _lines([STANDARD_INPUT], null)


def _open(file: Path) -> int:
    try:
        return os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError(f"{file}: cannot be read ({error.strerror}); check --arg-file") from error


def _lines(descriptors: Sequence[int], null: bool) -> Iterator[Batch]:
    separator = b"\0" if null else b"\n"
    for descriptor in descriptors:
        rest = b""
        while data := os.read(descriptor, CHUNK):
            *whole, rest = (rest + data).split(separator)
            if whole:
                yield [_text(line) for line in whole]
        if rest:
            yield [_text(rest)]


def _text(line: bytes) -> str:
    return line.decode("utf-8", "surrogateescape")


class InputReader:
    """Passes on batches that a thread reads, so that reading blocks neither the tasks nor the end of this process."""

    def __init__(self, source: Iterable[Batch]) -> None:
        self._source = source
        self._read: asyncio.Queue[Batch | OSError | None] = asyncio.Queue()
        self._places = threading.Semaphore(AHEAD)

    async def __aiter__(self) -> AsyncIterator[Batch]:
        loop = asyncio.get_running_loop()
        # A daemon thread: a read of a pipe cannot be interrupted while its writer sends nothing.
        threading.Thread(target=self._follow, args=(loop,), daemon=True).start()
        while (batch := await self._read.get()) is not None:
            if isinstance(batch, OSError):
                raise UsageError(f"the inputs cannot be read: {batch.strerror}")
            yield batch
            self._places.release()

    def _follow(self, loop: asyncio.AbstractEventLoop) -> None:
        with suppress(RuntimeError):  # the event loop was closed: no more input is needed
            try:
                for batch in self._source:
                    self._places.acquire()
                    loop.call_soon_threadsafe(self._read.put_nowait, batch)
                loop.call_soon_threadsafe(self._read.put_nowait, None)
            except OSError as error:
                loop.call_soon_threadsafe(self._read.put_nowait, error)
