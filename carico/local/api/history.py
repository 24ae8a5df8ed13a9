"""What has changed of one kind of object, newest last, and who wants to hear of it.

Bounded: whoever asks for changes that were dropped must list again. A reader keeps its own place, so that a slow one
costs no memory: it falls behind until its place is gone.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable
from typing import Any

import msgspec

Plain = dict[str, Any]


class Record:
    """One state of one object: never changed, only replaced. Encoded when it is first asked for, and once."""

    __slots__ = ("_raw", "plain", "version")

    def __init__(self, plain: Plain, version: int) -> None:
        self.plain, self.version = plain, version
        self._raw: bytes | None = None

    @property
    def raw(self) -> bytes:
        if self._raw is None:
            self._raw = msgspec.json.encode(self.plain)
        return self._raw

    @property
    def key(self) -> tuple[str, str]:
        meta = self.plain["metadata"]
        return meta.get("namespace", ""), meta["name"]


class Change:
    """From `old` to `new`: None before it was made and after it has gone."""

    __slots__ = ("gone", "lines", "new", "old", "version")

    def __init__(self, old: Record | None, new: Record | None, version: int) -> None:
        self.old, self.new, self.version = old, new, version
        self.gone: Record | None = None  # the old state under the version of the change, for those who lose sight of it
        self.lines: dict[tuple[Any, str], bytes] = {}  # by form and type: what goes to every watcher is encoded once

    def last_seen(self) -> Record:
        """The old state as a deletion shows it."""
        if self.gone is None:
            assert self.old is not None
            meta = self.old.plain["metadata"] | {"resourceVersion": str(self.version)}
            self.gone = Record(self.old.plain | {"metadata": meta}, self.version)
        return self.gone


class History:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._changes: list[Change] = []
        self._first = 0  # the place of the oldest change that is kept
        self._dropped = 0  # the version of the newest change that is not
        self.listeners: set[Callable[[], None]] = set()

    def append(self, change: Change) -> None:
        self._changes.append(change)
        if len(self._changes) > 2 * self._limit:  # halved now and then: cheaper than one at a time
            self._dropped = self._changes[self._limit].version
            del self._changes[: self._limit + 1]
            self._first += self._limit + 1
        for listener in self.listeners:
            listener()

    @property
    def end(self) -> int:
        """The place of the next change."""
        return self._first + len(self._changes)

    @property
    def oldest(self) -> int:
        """The oldest version from which everything is still known."""
        return self._dropped

    def place_after(self, version: int) -> int | None:
        """The place of the first change after `version`; None when some of those are gone.

        >>> history = History(limit=2)
        >>> for version in range(1, 6):
        ...     history.append(Change(None, Record({}, version), version))
        >>> history.place_after(3), history.place_after(2), history.place_after(9)
        (3, None, 5)
        """
        if version < self._dropped:
            return None
        return self._first + bisect.bisect_right(self._changes, version, key=lambda change: change.version)

    def since(self, place: int, most: int) -> list[Change] | None:
        """Up to `most` changes from `place` on; None when that place is gone."""
        start = place - self._first
        return None if start < 0 else self._changes[start : start + most]
