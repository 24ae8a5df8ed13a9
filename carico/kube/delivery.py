"""Delivers changes to the handler; a handler that raises stops neither the watch nor the process.

A change whose handler raised is kept as owed and delivered again with exponential back-off, merged with later changes
of the same object. The reflector's cache has all that this takes: nothing is requested from the API server.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import TracebackType
from typing import Generic, TypeVar

from carico.backoff import doubled
from carico.clock import Clock
from carico.kube.meta import NamedObject

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 300.0  # s between two attempts to deliver what is owed
AT_ONCE = 200  # owed changes delivered in one pass, because nothing else runs meanwhile
PLACES = 1000  # known places in the code that raised errors, after which all are forgotten

T = TypeVar("T", bound=NamedObject)
Change = Callable[[T | None, T | None], None]


class Firewall:
    """Contains errors: each is counted, and logged if it is the first from its place in the code.

    `what` names what failed: "a change of a Pod".
    """

    def __init__(self, what: str, count: Callable[[], object]) -> None:
        self._what, self._count = what, count
        self._known: set[tuple[type[BaseException], str, int]] = set()

    def caught(self, error: Exception) -> None:
        self._count()
        place = (type(error), *_place(error.__traceback__))
        if place in self._known:
            return
        if len(self._known) >= PLACES:
            self._known.clear()
        self._known.add(place)
        log.error("%s: %s; more errors from this place are only counted", self._what, error, exc_info=error)


def _place(trace: TracebackType | None) -> tuple[str, int]:
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return ("", 0) if trace is None else (trace.tb_frame.f_code.co_filename, trace.tb_lineno)


class Delivery(Generic[T]):
    """Calls `on_change` for every change, in order for each object, until it returns without an error."""

    def __init__(self, on_change: Change[T], firewall: Firewall, clock: Clock) -> None:
        self._on_change, self._firewall, self._clock = on_change, firewall, clock
        self._owed: dict[str, tuple[T | None, T | None]] = {}  # key to (last delivered, failed) state
        self._failures = 1  # rounds in a row without a success, this one included
        self._call_off: Callable[[], object] | None = None

    def deliver(self, key: str, old: T | None, new: T | None) -> None:
        """The object changed from `old` to `new`; None: it did not or does not exist."""
        if self._owed and (owed := self._owed.pop(key, None)) is not None:
            taken, tried = owed
            # The handler may have processed a part of the change that failed.
            begun = tried is not None and (new is None or new.uid != tried.uid)
            old = tried if taken is None and begun else taken
        if old is not None or new is not None:
            self._try(key, old, new)

    def stop(self) -> None:
        if self._call_off is not None:
            self._call_off()
            self._call_off = None

    def _try(self, key: str, old: T | None, new: T | None) -> bool:
        try:
            if old is not None and new is not None and old.uid != new.uid:  # deleted and re-created in between
                self._on_change(old, None)
                old = None
            self._on_change(old, new)
        except Exception as error:
            self._owed[key] = (old, new)
            self._firewall.caught(error)
            if self._call_off is None:
                self._call_later()
            return False
        return True

    def _again(self) -> None:
        self._call_off = None
        self._failures += 1
        for key in list(self._owed)[:AT_ONCE]:
            if self._try(key, *self._owed.pop(key)):
                self._failures = 1
        if self._owed and self._call_off is None:
            self._call_later()

    def _call_later(self) -> None:
        pause = doubled(FIRST_PAUSE, LONGEST_PAUSE, self._failures)
        self._call_off = self._clock.call_at(self._clock.monotonic() + pause, self._again)
