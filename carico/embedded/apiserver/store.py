"""All objects, by kind and name, with one version that every change increments, as etcd's revision."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from carico.embedded.apiserver.history import ObjectChange, ObjectHistory, ObjectRecord, Plain
from carico.embedded.apiserver.kinds import KINDS, ApiKind

HISTORY = 10_000  # changes per kind that a watch can go back; between this and twice this number are kept

Key = tuple[str, str]  # namespace ("" for cluster-scoped objects) and name


class Collection:
    """The objects of one kind."""

    def __init__(self, limit: int) -> None:
        self.records: dict[Key, ObjectRecord] = {}
        self.history = ObjectHistory(limit)


class ApiStore:
    """`first` is the initial version. After a restart it must be above all versions of the previous process: a client
    with one of those gets 410 (too old) and lists again.
    """

    def __init__(self, first: int = 1, history: int = HISTORY) -> None:
        self.first = self.version = first
        self._collections = {kind.place: Collection(history) for kind in KINDS if not kind.hidden}
        self._kinds = {
            kind.place: kind for kind in reversed(KINDS)
        }  # by the name of the collection: the kind that it stores
        self._owned: defaultdict[str, set[tuple[str, Key]]] = defaultdict(set)  # UID of an owner to its dependents
        self.uids: set[str] = set()  # of all objects
        self._inside: defaultdict[str, int] = defaultdict(int)  # namespace to the number of objects in it

    def collection(self, kind: ApiKind) -> Collection:
        return self._collections[kind.place]

    def get(self, kind: ApiKind, key: Key) -> ObjectRecord | None:
        return self.collection(kind).records.get(key)

    def put(self, kind: ApiKind, plain: Plain) -> ObjectRecord:
        """Store `plain` under a new version; the caller must not modify it any more."""
        self.version += 1
        plain["metadata"]["resourceVersion"] = str(self.version)
        record = ObjectRecord(plain, self.version)
        collection, key = self.collection(kind), record.key
        old = collection.records.get(key)
        collection.records[key] = record
        self._own(kind, old, record)
        if old is None:
            self._inside[key[0]] += 1
            self.uids.add(plain["metadata"]["uid"])
        collection.history.append(ObjectChange(old, record, self.version))
        return record

    def remove(self, kind: ApiKind, key: Key) -> ObjectRecord:
        """Delete the object; returns its last state with the version of the deletion."""
        collection = self.collection(kind)
        old = collection.records.pop(key)
        self.version += 1
        self._own(kind, old, None)
        self._inside[key[0]] -= 1
        self.uids.discard(old.plain["metadata"]["uid"])
        change = ObjectChange(old, None, self.version)
        collection.history.append(change)
        return change.last_seen()

    def owned_by(self, uid: str) -> list[tuple[ApiKind, Key]]:
        return [(self._kinds[place], key) for place, key in sorted(self._owned.get(uid, ()))]

    def empty(self, namespace: str) -> bool:
        return not self._inside[namespace]

    def content(self, namespace: str) -> Iterator[tuple[ApiKind, Key]]:
        for place, collection in self._collections.items():
            for key in [key for key in collection.records if key[0] == namespace]:
                yield self._kinds[place], key

    def _own(self, kind: ApiKind, old: ObjectRecord | None, new: ObjectRecord | None) -> None:
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


def _owners(record: ObjectRecord | None) -> list[str]:
    if record is None:
        return []
    return [owner.get("uid", "") for owner in record.plain["metadata"].get("ownerReferences") or ()]
