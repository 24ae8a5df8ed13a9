"""What can be done with objects: made, read, changed, deleted. State without I/O; the time comes from the clock."""

from __future__ import annotations

from typing import Any, NamedTuple

from carico.clock import Clock
from carico.local.api import metadata, patches, refusal, rules, strategic
from carico.local.api.history import Plain, Record
from carico.local.api.kinds import EVENTS, NAMESPACES, Kind
from carico.local.api.metadata import timestamp
from carico.local.api.refusal import Refusal, not_found
from carico.local.api.selection import Test
from carico.local.api.store import Key, Store

MOST_EVENTS = 20_000  # Events that are kept; the oldest go first
PATCHES = (patches.JSON_PATCH, patches.MERGE_PATCH, patches.STRATEGIC_PATCH)


class DeleteOptions(NamedTuple):
    grace: int | None = None  # s
    uid: str = ""
    version: str = ""
    orphan: bool = False
    dry: bool = False


class Verbs:
    def __init__(self, clock: Clock, store: Store) -> None:
        self._clock, self.store = clock, store
        for kind, plain in rules.first_objects(clock.wall()):
            self.create(kind, "", plain)

    def read(self, kind: Kind, key: Key) -> Record:
        record = self.store.get(kind, key)
        if record is None:
            raise not_found(kind, key[1])
        return record

    def found(self, kind: Kind, namespace: str, test: Test | None) -> list[Record]:
        """All that match, in the order of their names, as etcd has them."""
        records = self.store.shelf(kind).records
        keys = sorted(records) if not namespace else sorted(key for key in records if key[0] == namespace)
        chosen = [records[key] for key in keys]
        return chosen if test is None else [record for record in chosen if test(record.plain)]

    def create(self, kind: Kind, namespace: str, body: Any, dry: bool = False) -> Record:
        plain = metadata.checked(kind, body, namespace)
        if plain["metadata"].get("resourceVersion"):
            raise refusal.bad_request("resourceVersion should not be set on objects to be created")
        self._check_namespace(kind, namespace, plain)
        metadata.stamp_new(kind, plain, self._clock.wall())
        if kind.view is not None:
            plain = kind.view.inward(plain)
        rules.of(kind).create(kind, plain, self.store, self._clock.wall())
        name = plain["metadata"]["name"]
        if self.store.get(kind, (namespace, name)) is not None:
            raise refusal.already_exists(kind, name)
        if dry:
            return Record(plain, 0)
        if kind.place == EVENTS.place:
            self._make_room_for_events()
        return self.store.put(kind, plain)

    def _check_namespace(self, kind: Kind, namespace: str, plain: Plain) -> None:
        if not kind.namespaced:
            return
        home = self.read(NAMESPACES, ("", namespace)).plain
        if "deletionTimestamp" in home["metadata"]:
            name = plain["metadata"].get("name", "")
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise refusal.forbidden(kind, name, why)

    def _make_room_for_events(self) -> None:
        kept = self.store.shelf(EVENTS).records
        while len(kept) >= MOST_EVENTS:
            self.store.remove(EVENTS, next(iter(kept)))

    def update(self, kind: Kind, key: Key, body: Any, status: bool = False, dry: bool = False) -> tuple[Record, bool]:
        """Replaces an object; True beside it when it was made."""
        new = metadata.checked(kind, body, key[0])
        if new["metadata"].setdefault("name", key[1]) != key[1]:
            said = f"the name of the object ({new['metadata']['name']}) does not match the name on the URL ({key[1]})"
            raise refusal.bad_request(said)
        old = self.store.get(kind, key)
        if old is None and kind.make_on_put and not status:
            return self.create(kind, key[0], new, dry), True
        if old is None:
            raise not_found(kind, key[1])
        if not new["metadata"].get("resourceVersion") and not kind.blind_put:
            why = "Invalid value: 0: must be specified for an update"
            raise refusal.invalid(kind, key[1], "metadata.resourceVersion", why)
        if kind.view is not None:
            new = kind.view.inward(new)
        return self._replace(kind, old, new, status, dry), False

    def patch(self, kind: Kind, key: Key, media: str, patch: Any, status: bool = False, dry: bool = False) -> Record:
        old = self.read(kind, key)
        shown = old.plain if kind.view is None else kind.view.outward(old.plain)
        if media == patches.JSON_PATCH:
            body = patches.stepwise(shown, patch)
        elif not isinstance(patch, dict):
            raise refusal.bad_request("a patch is an object")
        elif media == patches.MERGE_PATCH:
            body = patches.merged(shown, patch)
        elif media == patches.STRATEGIC_PATCH:
            body = strategic.merged(shown, patch)
        else:
            raise refusal.unsupported(media, PATCHES)
        new = metadata.checked(kind, body, key[0])
        return self._replace(kind, old, new if kind.view is None else kind.view.inward(new), status, dry)

    def _replace(self, kind: Kind, old: Record, new: Plain, status: bool, dry: bool) -> Record:
        name = old.plain["metadata"]["name"]
        if new["metadata"].get("resourceVersion", str(old.version)) not in (str(old.version), "0"):
            raise refusal.changed_meanwhile(kind, name)
        metadata.carry_over(kind, new, old.plain)
        _keep_other_half(kind, new, old.plain, status)
        if not status:
            rules.of(kind).update(kind, new, old.plain)
        new["metadata"]["resourceVersion"] = str(old.version)
        if new == old.plain:
            return old  # nothing has changed: no new version, and nobody need hear of it
        if _generation_moves(new, old.plain):
            new["metadata"]["generation"] = old.plain["metadata"]["generation"] + 1
        if dry:
            return Record(new, old.version)
        record = self.store.put(kind, new)
        if "deletionTimestamp" in new["metadata"] and not new["metadata"].get("finalizers"):
            self._finish(kind, record)
        return record

    def _finish(self, kind: Kind, record: Record) -> None:
        """The last finalizer of an object that was deleted has gone: unless it has time left, it goes too."""
        if not record.plain["metadata"].get("deletionGracePeriodSeconds") and kind is not NAMESPACES:
            self._remove(kind, record.key, orphan=False)

    def delete(self, kind: Kind, key: Key, options: DeleteOptions) -> Record:
        record = self.read(kind, key)
        _check_preconditions(kind, record, options)
        if options.dry:
            return record
        if kind is NAMESPACES:
            return self._delete_namespace(record)
        grace = rules.of(kind).grace(record.plain, options.grace)
        if grace > 0 or record.plain["metadata"].get("finalizers"):
            return self._mark_deleted(kind, record, grace)
        return self._remove(kind, key, options.orphan)

    def _mark_deleted(self, kind: Kind, record: Record, grace: int) -> Record:
        meta = record.plain["metadata"]
        if meta.get("deletionGracePeriodSeconds", grace + 1) <= grace:
            return record  # a second deletion can only shorten the time
        until = timestamp(self._clock.wall() + grace)
        marked = meta | {"deletionTimestamp": until, "deletionGracePeriodSeconds": grace}
        return self.store.put(kind, record.plain | {"metadata": marked})

    def _remove(self, kind: Kind, key: Key, orphan: bool) -> Record:
        gone = self.store.remove(kind, key)
        for owned, other in [] if orphan else self.store.owned_by(gone.plain["metadata"]["uid"]):
            if self.store.get(owned, other) is not None and not self._has_other_owner(owned, other):
                self.delete(owned, other, DeleteOptions())
        if key[0] and self.store.empty(key[0]):
            home = self.store.get(NAMESPACES, ("", key[0]))
            if home is not None and "deletionTimestamp" in home.plain["metadata"]:
                self.store.remove(NAMESPACES, ("", key[0]))
        return gone

    def _has_other_owner(self, kind: Kind, key: Key) -> bool:
        uids = {owner.get("uid") for owner in self.read(kind, key).plain["metadata"]["ownerReferences"]}
        alive = (self.store.uids & uids) if uids else set()
        return bool(alive)

    def _delete_namespace(self, record: Record) -> Record:
        """It goes with the last thing in it; pods that run may take their time."""
        name = record.plain["metadata"]["name"]
        if name in ("default", "kube-system", "kube-public", "kube-node-lease"):
            raise refusal.forbidden(NAMESPACES, name, "this namespace may not be deleted")
        if "deletionTimestamp" not in record.plain["metadata"]:
            meta = record.plain["metadata"] | {"deletionTimestamp": timestamp(self._clock.wall())}
            record = self.store.put(NAMESPACES, record.plain | {"metadata": meta, "status": {"phase": "Terminating"}})
        for kind, key in list(self.store.content(name)):
            if self.store.get(kind, key) is not None:
                self.delete(kind, key, DeleteOptions())
        if self.store.empty(name) and self.store.get(NAMESPACES, ("", name)) is not None:
            self.store.remove(NAMESPACES, ("", name))
        return record

    def bind(self, kind: Kind, key: Key, binding: Any, dry: bool = False) -> None:
        """Gives a pod its node, once."""
        node = _target(kind, key, binding)
        record = self.read(kind, key)
        meta, spec = record.plain["metadata"], record.plain["spec"]
        wanted = (binding.get("metadata") or {}).get("uid")
        if wanted and wanted != meta["uid"]:
            why = f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {meta['uid']}"
            raise refusal.conflict(kind, key[1], why, "binding")
        if why := _why_not_bound(meta, spec, key[1]):
            raise refusal.conflict(kind, key[1], why, "binding")
        since = timestamp(self._clock.wall())
        condition = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": since}
        status = strategic.merged(record.plain["status"], {"conditions": [{"$patch": "delete"} | condition]})
        status["conditions"] = [*status.get("conditions", []), condition]
        noted = (binding.get("metadata") or {}).get("annotations") or {}
        annotations = {"annotations": (meta.get("annotations") or {}) | noted} if noted else {}
        bound = {"spec": spec | {"nodeName": node}, "status": status, "metadata": meta | annotations}
        if not dry:
            self.store.put(kind, record.plain | bound)


def _target(kind: Kind, key: Key, binding: Any) -> str:
    target = binding.get("target") if isinstance(binding, dict) else None
    if not isinstance(target, dict) or not target.get("name"):
        raise refusal.invalid(kind, key[1], "target.name", "Required value", "FieldValueRequired")
    if target.get("kind", "Node") not in ("", "Node"):
        why = f'Unsupported value: "{target["kind"]}": supported values: "", "Node"'
        raise refusal.invalid(kind, key[1], "target.kind", why, "FieldValueNotSupported")
    return str(target["name"])


def _why_not_bound(meta: Plain, spec: Plain, name: str) -> str:
    if "deletionTimestamp" in meta:
        return f"pod {name} is being deleted, cannot be assigned to a host"
    if node := spec.get("nodeName"):
        return f'pod {name} is already assigned to node "{node}"'
    if spec.get("schedulingGates"):
        return f"pod {name} has non-empty .spec.schedulingGates"
    return ""


def _keep_other_half(kind: Kind, new: Plain, old: Plain, status: bool) -> None:
    """An object and its status are written apart from each other."""
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


def _check_preconditions(kind: Kind, record: Record, options: DeleteOptions) -> None:
    meta = record.plain["metadata"]
    for word, wanted, there in (
        ("UID", options.uid, meta["uid"]),
        ("ResourceVersion", options.version, meta["resourceVersion"]),
    ):
        if wanted and wanted != there:
            said = f"Precondition failed: {word} in precondition: {wanted}, {word} in object meta: {there}"
            raise _precondition(kind, meta["name"], said)


def _precondition(kind: Kind, name: str, why: str) -> Refusal:
    return refusal.conflict(kind, name, why)
