"""What changed since a version, for readers that read at different times."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

GONE_KEPT = 20_000  # names that are remembered as gone; a reader that is further behind gets everything


class JournalEntry(NamedTuple, Generic[K, V]):
    version: int
    name: K
    value: V | None  # None: gone


class VersionedJournal(Generic[K, V]):
    """The newest value of every name, in the order of the changes.

    >>> journal = VersionedJournal(first=10)
    >>> journal.put("a", 1); journal.put("b", 2); journal.put("a", 3); journal.put("b", None)
    >>> journal.since(11)
    [JournalEntry(version=13, name='a', value=3), JournalEntry(version=14, name='b', value=None)]
    >>> journal.version, journal.reaches(9), journal.reaches(12)
    (14, False, True)
    """

    def __init__(self, first: int = 0) -> None:
        self.version = first
        self._complete_since = first  # a reader of an older version has missed removed names
        self._changes: OrderedDict[K, tuple[int, V]] = OrderedDict()
        self._gone: OrderedDict[K, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._changes)

    def get(self, name: K) -> V | None:
        found = self._changes.get(name)
        return None if found is None else found[1]

    def values(self) -> dict[K, V]:
        return {name: value for name, (_, value) in self._changes.items()}

    def put(self, name: K, value: V | None) -> None:
        """`None` removes a name."""
        self.version += 1
        if value is not None:
            self._changes[name] = (self.version, value)
            self._changes.move_to_end(name)
            self._gone.pop(name, None)
            return
        self._changes.pop(name, None)
        self._gone[name] = self.version
        self._gone.move_to_end(name)
        if len(self._gone) > GONE_KEPT:
            self._complete_since = self._gone.popitem(last=False)[1]

    def reaches(self, version: int) -> bool:
        """Whether `since(version)` is all that a reader of that version lacks."""
        return self._complete_since <= version <= self.version

    def since(self, version: int) -> list[JournalEntry[K, V]]:
        """Oldest first."""
        found: list[JournalEntry[K, V]] = []
        for name, (at, value) in reversed(self._changes.items()):
            if at <= version:
                break
            found.append(JournalEntry(at, name, value))
        kept = len(found)
        for name, at in reversed(self._gone.items()):
            if at <= version:
                break
            found.append(JournalEntry(at, name, None))
        if len(found) == kept:
            found.reverse()
        else:
            found.sort(key=lambda change: change.version)
        return found
