"""The changes of one kind of object, newest last, and the callbacks that are called for new ones.

The length is limited: a client that requests dropped changes must list again. A reader stores its own position, so a
slow one costs no memory: it falls behind until its position has been dropped.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable
from typing import Any

import msgspec

Plain = dict[str, Any]


class ObjectRecord:
    """One state of one object: never changed, only replaced. Encoded once, on first use."""

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


class ObjectChange:
    """From `old` to `new`: None before the object was created and after it was deleted."""

    __slots__ = ("gone", "lines", "new", "old", "version")

    def __init__(self, old: ObjectRecord | None, new: ObjectRecord | None, version: int) -> None:
        self.old, self.new, self.version = old, new, version
        self.gone: ObjectRecord | None = (
            None  # the old state under the new version, for watches that it no longer matches
        )
        self.lines: dict[tuple[Any, str], bytes] = {}  # by form and type: encoded once for all watches

    def last_seen(self) -> ObjectRecord:
        """The old state as a DELETED event shows it."""
        if self.gone is None:
            assert self.old is not None
            meta = self.old.plain["metadata"] | {"resourceVersion": str(self.version)}
            self.gone = ObjectRecord(self.old.plain | {"metadata": meta}, self.version)
        return self.gone


class ObjectHistory:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._changes: list[ObjectChange] = []
        self._first = 0  # the position of the oldest change that is kept
        self._dropped = 0  # the version of the newest change that was dropped
        self.listeners: set[Callable[[], None]] = set()

    def append(self, change: ObjectChange) -> None:
        self._changes.append(change)
        if len(self._changes) > 2 * self._limit:  # dropping half at once is cheaper than one at a time
            self._dropped = self._changes[self._limit].version
            del self._changes[: self._limit + 1]
            self._first += self._limit + 1
        for listener in self.listeners:
            listener()

    @property
    def end(self) -> int:
        """The position of the next change."""
        return self._first + len(self._changes)

    @property
    def oldest(self) -> int:
        """The oldest version from which all changes are still kept."""
        return self._dropped

    def place_after(self, version: int) -> int | None:
        """The position of the first change after `version`; None if some of those were dropped.

        >>> history = ObjectHistory(limit=2)
        >>> for version in range(1, 6):
        ...     history.append(ObjectChange(None, ObjectRecord({}, version), version))
        >>> history.place_after(3), history.place_after(2), history.place_after(9)
        (3, None, 5)
        """
        if version < self._dropped:
            return None
        return self._first + bisect.bisect_right(self._changes, version, key=lambda change: change.version)

    def since(self, place: int, most: int) -> list[ObjectChange] | None:
        """Up to `most` changes from `place` on; None if that position was dropped."""
        start = place - self._first
        return None if start < 0 else self._changes[start : start + most]
