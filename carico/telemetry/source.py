"""The protocol of a telemetry source, and its wrapper.

Reading has two steps. `fetch` only reads the kernel, at the tick; `usage` computes a number from what was fetched and
may run later: parsing ten texts in a row takes a fraction of the time of parsing each in its own tick, with cold caches
after the processor has slept.

A source that raises does not affect the others: its watch stores the problem, logs it once, and logs once more when it
is over.
"""

from __future__ import annotations

import logging
from typing import Any, Protocol

from carico.errors import SourceError, SourceMissing

log = logging.getLogger(__name__)

U64 = 2**64


class TelemetrySource(Protocol):
    """Measures the usage of one resource."""

    @property
    def name(self) -> str:
        """The label of carico_agent_source_success."""

    def fetch(self) -> Any:
        """Reads the kernel; the result is the input of `usage`."""

    def usage(self, fetched: Any, now: float) -> float | None:
        """Usage in [0, 1] since the previous call, from what was fetched at `now`.

        None: there is no previous value, or a counter decreased, so that this sample is missed.
        Both steps may raise. SourceMissing: this machine does not have it. SourceError: it exists but cannot be read.
        """


class GuardedSource:
    """A source that never raises."""

    def __init__(self, source: TelemetrySource) -> None:
        self._source = source
        self.name = source.name
        self.problem: str | None = None

    def fetch(self) -> Any:
        """The result of the source, or the error that it raised."""
        try:
            return self._source.fetch()
        except SourceError as error:
            return error

    def usage(self, fetched: Any, now: float) -> float | None:
        """The result of the source; None with a `problem` if one of its steps raised."""
        try:
            if isinstance(fetched, SourceError):
                raise fetched
            value = self._source.usage(fetched, now)
        except SourceError as error:
            self._on_failure(error)
            return None
        if self.problem is not None:
            log.warning("%s can be read again", self.name)
            self.problem = None
        return value

    def _on_failure(self, error: SourceError) -> None:
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
    """Parses a counter of the kernel, which has at most 64 bits."""
    if not text.isdigit() or len(text) > 20:
        raise SourceError(f"{what} is {text[:40]!r}, which is not a counter of the kernel")
    return min(int(text), U64 - 1)


def rate(before: tuple[float, int] | None, now: float, value: int) -> float | None:
    """Increase per second of a counter since (time, value) `before`; None without one, or if the counter decreased.

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
