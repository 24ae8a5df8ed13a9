"""Rejected requests are always counted and seldom logged: a client must not be able to fill a disk."""

from __future__ import annotations

import logging
from collections import Counter
from http import HTTPStatus
from time import monotonic

log = logging.getLogger(__name__)

LOG_EVERY = 10.0  # s between two lines about the same status


class Refusals:
    def __init__(self, name: str) -> None:
        self._name = name
        self._logged_at: dict[HTTPStatus, float] = {}
        self._unlogged: Counter[HTTPStatus] = Counter()

    def note(self, status: HTTPStatus, caller: str, what: str, reason: str) -> None:
        """`what` is method and path; neither it nor the reason holds a query or a header that may be secret."""
        now = monotonic()
        if now - self._logged_at.get(status, -LOG_EVERY) < LOG_EVERY:
            self._unlogged[status] += 1
            return
        self._logged_at[status] = now
        more = f" (and {unlogged} more before)" if (unlogged := self._unlogged.pop(status, 0)) else ""
        log.warning("%s: refused %s %s with %d: %s%s", self._name, caller, what, status, reason, more)
