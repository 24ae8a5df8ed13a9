"""All objects, by kind and name, with one version that every change counts up, as etcd's revision does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from carico.local.api.history import Change, History, Plain, Record
from carico.local.api.kinds import KINDS, Kind

HISTORY = 10_000  # changes per kind that a watch can go back; between this and twice as many are kept

Key = tuple[str, str]  # namespace ("" for what belongs to none) and name


class Shelf:
    """The objects of one kind."""

    def __init__(self, limit: int) -> None:
        self.records: dict[Key, Record] = {}
        self.history = History(limit)


class Store:
    """`first` is the version to count from. A later life of the server must start above all versions of an earlier one:
    who comes with one of those is told that it is too old, and lists again.
    """

    def __init__(self, first: int = 1, history: int = HISTORY) -> None:
        self.first = self.version = first
        self._shelves = {kind.place: Shelf(history) for kind in KINDS if not kind.hidden}
        self._kinds = {kind.place: kind for kind in reversed(KINDS)}  # the form in which a shelf is kept
        self._owned: defaultdict[str, set[tuple[str, Key]]] = defaultdict(set)  # UID of an owner to what it owns
        self.uids: set[str] = set()  # of all objects
        self._inside: defaultdict[str, int] = defaultdict(int)  # namespace to the number of objects in it

    def shelf(self, kind: Kind) -> Shelf:
        return self._shelves[kind.place]

    def get(self, kind: Kind, key: Key) -> Record | None:
        return self.shelf(kind).records.get(key)

    def put(self, kind: Kind, plain: Plain) -> Record:
        """Keeps `plain` under a new version; it must not be changed any more."""
        self.version += 1
        plain["metadata"]["resourceVersion"] = str(self.version)
        record = Record(plain, self.version)
        shelf, key = self.shelf(kind), record.key
        old = shelf.records.get(key)
        shelf.records[key] = record
        self._own(kind, old, record)
        if old is None:
            self._inside[key[0]] += 1
            self.uids.add(plain["metadata"]["uid"])
        shelf.history.append(Change(old, record, self.version))
        return record

    def remove(self, kind: Kind, key: Key) -> Record:
        """Takes it away; what it returns is its last state under the version of the deletion."""
        shelf = self.shelf(kind)
        old = shelf.records.pop(key)
        self.version += 1
        self._own(kind, old, None)
        self._inside[key[0]] -= 1
        self.uids.discard(old.plain["metadata"]["uid"])
        change = Change(old, None, self.version)
        shelf.history.append(change)
        return change.last_seen()

    def owned_by(self, uid: str) -> list[tuple[Kind, Key]]:
        return [(self._kinds[place], key) for place, key in sorted(self._owned.get(uid, ()))]

    def empty(self, namespace: str) -> bool:
        return not self._inside[namespace]

    def content(self, namespace: str) -> Iterator[tuple[Kind, Key]]:
        for place, shelf in self._shelves.items():
            for key in [key for key in shelf.records if key[0] == namespace]:
                yield self._kinds[place], key

    def _own(self, kind: Kind, old: Record | None, new: Record | None) -> None:
        before, after = _owners(old), _owners(new)
        if before == after:
            return
        for record, uids in ((old, before), (new, after)):
            for uid in uids:
                assert record is not None
                entry = (kind.place, record.key)
                self._owned[uid].add(entry) if uids is after else self._owned[uid].discard(entry)
                if not self._owned[uid]:
                    del self._owned[uid]


def _owners(record: Record | None) -> list[str]:
    if record is None:
        return []
    return [owner.get("uid", "") for owner in record.plain["metadata"].get("ownerReferences") or ()]
