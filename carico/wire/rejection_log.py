"""Rejections are always counted and seldom logged: a broken sender must not fill a disk."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

from carico.errors import InvalidMessage

LOG_EVERY = 10.0  # s between two lines about the same reason


class RejectionLog:
    """`on_refused(reason)` is called for each, e.g. to count it in a metric."""

    def __init__(self, log: logging.Logger, on_refused: Callable[[str], None] = lambda _: None) -> None:
        self._log = log
        self._on_refused = on_refused
        self._logged_at: dict[str, float] = {}
        self._unlogged: Counter[str] = Counter()

    def note(self, error: InvalidMessage, now: float) -> None:
        """`now` is monotonic time in seconds."""
        self._on_refused(error.reason)
        last = self._logged_at.get(error.reason)
        if last is not None and now - last < LOG_EVERY:
            self._unlogged[error.reason] += 1
            return
        self._logged_at[error.reason] = now
        self._log.warning("refused, %s (and %d more before)", error, self._unlogged.pop(error.reason, 0))
