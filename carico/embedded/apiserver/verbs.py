"""Create, read, update and delete objects. State without I/O; the time comes from the clock."""

from __future__ import annotations

from typing import Any, NamedTuple

from carico.clock import Clock
from carico.embedded.apiserver import metadata, patches, schemas, status_error, strategic, strategies
from carico.embedded.apiserver.history import ObjectRecord, Plain
from carico.embedded.apiserver.kinds import EVENTS, NAMESPACES, ApiKind
from carico.embedded.apiserver.metadata import timestamp
from carico.embedded.apiserver.selection import Test
from carico.embedded.apiserver.status_error import not_found
from carico.embedded.apiserver.store import ApiStore, Key

MOST_EVENTS = 20_000  # Events that are kept; the oldest are removed first


class DeleteOptions(NamedTuple):
    grace: int | None = None  # s
    uid: str = ""
    version: str = ""
    orphan: bool = False
    dry: bool = False


class ApiVerbs:
    def __init__(self, clock: Clock, store: ApiStore) -> None:
        self._clock, self.store = clock, store
        for kind, plain in strategies.first_objects(clock.wall()):
            self.create(kind, "", plain)

    def read(self, kind: ApiKind, key: Key) -> ObjectRecord:
        record = self.store.get(kind, key)
        if record is None:
            raise not_found(kind, key[1])
        return record

    def found(self, kind: ApiKind, namespace: str, test: Test | None) -> list[ObjectRecord]:
        """All that match, in the order of their names, as in etcd."""
        records = self.store.collection(kind).records
        keys = sorted(records) if not namespace else sorted(key for key in records if key[0] == namespace)
        chosen = [records[key] for key in keys]
        return chosen if test is None else [record for record in chosen if test(record.plain)]

    def create(self, kind: ApiKind, namespace: str, body: Any, dry: bool = False) -> ObjectRecord:
        plain = schemas.shaped(kind, metadata.checked(kind, body, namespace))
        if plain["metadata"].get("resourceVersion"):
            raise status_error.bad_request("resourceVersion should not be set on objects to be created")
        self._check_namespace(kind, namespace, plain)
        metadata.stamp_new(kind, plain, self._clock.wall())
        if kind.view is not None:
            plain = kind.view.inward(plain)
        strategies.of(kind).create(kind, plain, self.store, self._clock.wall())
        name = plain["metadata"]["name"]
        if self.store.get(kind, (namespace, name)) is not None:
            raise status_error.already_exists(kind, name)
        if dry:
            return ObjectRecord(plain, 0)
        if kind.place == EVENTS.place:
            self._make_room_for_events()
        return self.store.put(kind, plain)

    def _check_namespace(self, kind: ApiKind, namespace: str, plain: Plain) -> None:
        if not kind.namespaced:
            return
        home = self.read(NAMESPACES, ("", namespace)).plain
        if "deletionTimestamp" in home["metadata"]:
            name = plain["metadata"].get("name", "")
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise status_error.forbidden(kind, name, why)

    def _make_room_for_events(self) -> None:
        kept = self.store.collection(EVENTS).records
        while len(kept) >= MOST_EVENTS:
            self.store.remove(EVENTS, next(iter(kept)))

    def update(
        self, kind: ApiKind, key: Key, body: Any, status: bool = False, dry: bool = False
    ) -> tuple[ObjectRecord, bool]:
        """Replace an object; the second value is True if it was created."""
        new = metadata.checked(kind, body, key[0])
        if new["metadata"].setdefault("name", key[1]) != key[1]:
            message = (
                f"the name of the object ({new['metadata']['name']}) does not match the name on the URL ({key[1]})"
            )
            raise status_error.bad_request(message)
        old = self.store.get(kind, key)
        if old is None and kind.make_on_put and not status:
            return self.create(kind, key[0], new, dry), True
        if old is None:
            raise not_found(kind, key[1])
        if not new["metadata"].get("resourceVersion") and not kind.blind_put:
            raise status_error.without_version(kind, key[1])
        if kind.view is not None:
            new = kind.view.inward(new)
        return self._replace(kind, old, new, status, dry), False

    def patch(
        self, kind: ApiKind, key: Key, media: str, patch: Any, status: bool = False, dry: bool = False
    ) -> ObjectRecord:
        old = self.read(kind, key)
        shown = old.plain if kind.view is None else kind.view.outward(old.plain)
        if media == patches.JSON_PATCH:
            body = patches.stepwise(shown, patch)
        elif not isinstance(patch, dict):
            raise status_error.bad_request("a patch is an object")
        elif media == patches.MERGE_PATCH:
            body = patches.merged(shown, patch)
        elif media == patches.STRATEGIC_PATCH:
            body = strategic.merged(shown, patch)
        else:
            raise status_error.NO_SUCH_PATCH
        new = metadata.checked(kind, body, key[0])
        return self._replace(kind, old, new if kind.view is None else kind.view.inward(new), status, dry)

    def _replace(self, kind: ApiKind, old: ObjectRecord, new: Plain, status: bool, dry: bool) -> ObjectRecord:
        name = old.plain["metadata"]["name"]
        if new["metadata"].get("resourceVersion", str(old.version)) not in (str(old.version), "0"):
            raise status_error.changed_meanwhile(kind, name)
        new = schemas.shaped(kind, new)
        metadata.carry_over(kind, new, old.plain)
        _keep_other_half(kind, new, old.plain, status)
        if not status:
            strategies.of(kind).update(kind, new, old.plain)
        new["metadata"]["resourceVersion"] = str(old.version)
        if new == old.plain:
            return old  # nothing has changed: no new version, no watch event
        if _generation_moves(new, old.plain):
            new["metadata"]["generation"] = old.plain["metadata"]["generation"] + 1
        if dry:
            return ObjectRecord(new, old.version)
        record = self.store.put(kind, new)
        if kind is not NAMESPACES and "deletionTimestamp" in new["metadata"] and not _stays(new["metadata"]):
            self._remove(kind, record.key, orphan=False)  # its last finalizer was removed
        return record

    def delete(self, kind: ApiKind, key: Key, options: DeleteOptions) -> ObjectRecord:
        record = self.read(kind, key)
        _check_preconditions(kind, record, options)
        marked = self._marked(kind, record, options)
        if options.dry:
            return marked
        if kind is NAMESPACES:
            return self._delete_namespace(record)
        if marked is not record:
            marked = self.store.put(kind, marked.plain)
        if _stays(marked.plain["metadata"]):
            return marked
        return self._remove(kind, key, options.orphan)

    def _marked(self, kind: ApiKind, record: ObjectRecord, options: DeleteOptions) -> ObjectRecord:
        """The object with its deletion timestamp, if its kind has a grace period or a finalizer blocks the deletion."""
        meta = record.plain["metadata"]
        grace = strategies.of(kind).grace(record.plain, options.grace)
        if grace is None and not meta.get("finalizers"):
            return record
        if meta.get("deletionGracePeriodSeconds", (grace or 0) + 1) <= (grace or 0):
            return record  # a second deletion can only shorten the grace period
        until = timestamp(self._clock.wall() + (grace or 0))
        marks: Plain = {"deletionTimestamp": until, "deletionGracePeriodSeconds": grace or 0}
        if "generation" in meta and "deletionTimestamp" not in meta:
            marks["generation"] = meta["generation"] + 1
        return ObjectRecord(record.plain | {"metadata": meta | marks}, record.version)

    def _remove(self, kind: ApiKind, key: Key, orphan: bool) -> ObjectRecord:
        gone = self.store.remove(kind, key)
        for owned, other in [] if orphan else self.store.owned_by(gone.plain["metadata"]["uid"]):
            if self.store.get(owned, other) is not None and not self._has_other_owner(owned, other):
                self.delete(owned, other, DeleteOptions())
        if key[0] and self.store.empty(key[0]):
            home = self.store.get(NAMESPACES, ("", key[0]))
            if home is not None and "deletionTimestamp" in home.plain["metadata"]:
                self.store.remove(NAMESPACES, ("", key[0]))
        return gone

    def _has_other_owner(self, kind: ApiKind, key: Key) -> bool:
        uids = {owner.get("uid") for owner in self.read(kind, key).plain["metadata"]["ownerReferences"]}
        alive = (self.store.uids & uids) if uids else set()
        return bool(alive)

    def _delete_namespace(self, record: ObjectRecord) -> ObjectRecord:
        """It is removed with the last object in it; running pods may take their grace period."""
        name = record.plain["metadata"]["name"]
        if name in ("default", "kube-system", "kube-public", "kube-node-lease"):
            raise status_error.forbidden(NAMESPACES, name, "this namespace may not be deleted")
        if "deletionTimestamp" not in record.plain["metadata"]:
            meta = record.plain["metadata"] | {"deletionTimestamp": timestamp(self._clock.wall())}
            record = self.store.put(NAMESPACES, record.plain | {"metadata": meta, "status": {"phase": "Terminating"}})
        for kind, key in list(self.store.content(name)):
            if self.store.get(kind, key) is not None:
                self.delete(kind, key, DeleteOptions())
        if self.store.empty(name) and self.store.get(NAMESPACES, ("", name)) is not None:
            self.store.remove(NAMESPACES, ("", name))
        return record


def _keep_other_half(kind: ApiKind, new: Plain, old: Plain, status: bool) -> None:
    """An object and its status are written separately: keep the part that this request does not write."""
    if not kind.status:
        return
    fields = (
        [field for field in old.keys() | new.keys() if field not in ("status", "metadata")] if status else ["status"]
    )
    for field in fields:
        new.pop(field, None)
        if field in old:
            new[field] = old[field]


def _generation_moves(new: Plain, old: Plain) -> bool:
    return "generation" in old["metadata"] and new.get("spec") != old.get("spec")


def _stays(meta: Plain) -> bool:
    """Whether a deleted object remains for now: in its grace period, or blocked by a finalizer."""
    return bool(meta.get("deletionGracePeriodSeconds") or meta.get("finalizers"))


def _check_preconditions(kind: ApiKind, record: ObjectRecord, options: DeleteOptions) -> None:
    meta = record.plain["metadata"]
    pairs = (("UID", options.uid, meta["uid"]), ("ResourceVersion", options.version, meta["resourceVersion"]))
    for word, wanted, there in pairs:
        if wanted and wanted != there:
            message = f"the {word} in the precondition ({wanted}) does not match the {word} in record ({there})."
            raise status_error.other_object(kind, meta["name"], message)
