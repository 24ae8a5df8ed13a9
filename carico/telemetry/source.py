"""What a source of telemetry is, and the watch over it.

Reading has two halves. `fetch` asks the kernel, at the tick, and does nothing else; `usage` makes a number of what was
fetched and may come later: ten texts in a row cost a fraction of ten texts each in its own tick, when the processor has
slept in between and forgotten the way.

A source that raises keeps only itself from being read: its watch remembers the problem, says so once in the log, once
more when it is over, and the other sources are read all the same.
"""

from __future__ import annotations

import logging
from typing import Any, Protocol

from carico.errors import SourceError, SourceMissing

log = logging.getLogger(__name__)

U64 = 2**64


class Source(Protocol):
    """Something in the kernel that can be more or less used up."""

    @property
    def name(self) -> str:
        """The label of carico_agent_source_success."""

    def fetch(self) -> Any:
        """What the kernel says now, as `usage` takes it."""

    def usage(self, fetched: Any, now: float) -> float | None:
        """Usage in [0, 1] since the time before, from what was fetched at `now`.

        None: there is nothing to compare with yet, or a counter stepped back, so that this one sample is missed.
        Both halves may raise. SourceMissing: this machine does not have it. SourceError: it is there and broken.
        """


class Watch:
    """A source that never raises."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.name = source.name
        self.problem: str | None = None

    def fetch(self) -> Any:
        """As the source, or the error that it raised."""
        try:
            return self._source.fetch()
        except SourceError as error:
            return error

    def usage(self, fetched: Any, now: float) -> float | None:
        """As the source; None with a `problem` when one of its halves raised."""
        try:
            if isinstance(fetched, SourceError):
                raise fetched
            value = self._source.usage(fetched, now)
        except SourceError as error:
            self._failed(error)
            return None
        if self.problem is not None:
            log.warning("%s can be read again", self.name)
            self.problem = None
        return value

    def _failed(self, error: SourceError) -> None:
        if self.problem is None:
            kind = "is not here" if isinstance(error, SourceMissing) else "is broken"
            log.warning("%s %s: %s", self.name, kind, error)
        self.problem = str(error)


def clamped(ratio: float) -> float:
    """
    >>> clamped(-0.1), clamped(0.5), clamped(7.0)
    (0.0, 0.5, 1.0)
    """
    return 0.0 if ratio < 0.0 else 1.0 if ratio > 1.0 else ratio


def counter(text: bytes, what: str) -> int:
    """A number as the kernel prints its counters; more than 64 bits cannot come from there."""
    if not text.isdigit() or len(text) > 20:
        raise SourceError(f"{what} is {text[:40]!r}, which is not a counter of the kernel")
    return min(int(text), U64 - 1)


def rate(before: tuple[float, int] | None, now: float, value: int) -> float | None:
    """Growth per second of a counter that stood at (time, value) before; None without a past, or when it stepped back.

    >>> rate((10.0, 500), 10.5, 600)
    200.0
    >>> rate(None, 10.5, 600), rate((10.0, 500), 10.5, 499), rate((10.5, 500), 10.5, 600)
    (None, None, None)
    """
    if before is None:
        return None
    seconds = now - before[0]
    grown = value - before[1]
    return grown / seconds if seconds > 0 and grown >= 0 else None
