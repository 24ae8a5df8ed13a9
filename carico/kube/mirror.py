"""The reflector's cache of one kind of object, and the calls to the handlers of its changes.

An object that cannot be decoded leaves the cache unchanged: `on_undecodable` is called for it, and again when it is
gone or can be decoded. It is counted each time it is received and logged once.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from carico.clock import Clock
from carico.kube.decode import FAILURES, Remains, Tree, decode_patiently, read_remains
from carico.kube.delivery import Change, Delivery, Firewall
from carico.kube.meta import NamedObject, ObjectName

log = logging.getLogger(__name__)

NAMELESS = "it has no name or no UID"
LOGGED = 1024  # undecodable objects remembered as logged

T = TypeVar("T", bound=NamedObject)

# Which object cannot be decoded, and what else can be read of it; None: it is gone, or can be decoded now.
OnUndecodable = Callable[[ObjectName, Tree | None], None]


def ignore(_: ObjectName, __: Tree | None) -> None:
    """Ignores objects that cannot be decoded."""


class ListResult(Generic[T]):
    """The result of a list."""

    def __init__(self) -> None:
        self.objects: dict[str, T] = {}
        self.undecodable: dict[str, Remains] = {}

    def add(self, obj: T | Remains) -> None:
        if isinstance(obj, Remains):
            self.undecodable[obj.metadata.key] = obj
        else:
            self.objects[obj.key] = obj

    def has(self, key: str) -> bool:
        return key in self.objects or key in self.undecodable


class Mirror(Generic[T]):
    def __init__(
        self,
        kind: type[T],
        on_change: Change[T],
        on_undecodable: OnUndecodable,
        count_undecodable: Callable[[], object],
        firewall: Firewall,
        clock: Clock,
    ) -> None:
        self._kind = kind
        self._decode = msgspec.json.Decoder(kind).decode
        self._on_undecodable, self._count_undecodable = on_undecodable, count_undecodable
        self._firewall = firewall
        self._delivery: Delivery[T] = Delivery(on_change, firewall, clock)
        self._undecodable: dict[str, ObjectName] = {}  # by key, while they are
        self._logged: OrderedDict[str, None] = OrderedDict()
        self.objects: dict[str, T] = {}  # by key

    def stop(self) -> None:
        """Stops the delivery of changes that are still owed to a handler."""
        self._delivery.stop()

    def decode(self, data: msgspec.Raw) -> T | Remains:
        try:
            obj = self._decode(data)
        except FAILURES:
            return self._decode_patiently(data)
        meta = obj.metadata
        return obj if meta.uid and meta.name else self._remains(data, NAMELESS)

    def replace(self, found: ListResult[T]) -> None:
        for key in [key for key in self.objects if not found.has(key)]:
            self._remove(key)
        for key in [key for key in self._undecodable if not found.has(key)]:
            self._decodable(key)
        for obj in found.objects.values():
            self.put(obj)
        for remains in found.undecodable.values():
            self._keep(remains)

    def put(self, new: T | Remains) -> None:
        if isinstance(new, Remains):
            self._keep(new)
            return
        key = new.key
        old = self.objects.get(key)
        if old is None or old.metadata.resource_version != new.metadata.resource_version:
            self.objects[key] = new
            self._delivery.deliver(key, old, new)
        if self._undecodable:
            self._decodable(key)

    def delete(self, obj: T | Remains) -> None:
        """`obj` is the object's state when it was deleted."""
        key = obj.metadata.key
        self._remove(key, None if isinstance(obj, Remains) else obj)
        if self._undecodable:
            self._decodable(key)

    def _decode_patiently(self, data: msgspec.Raw) -> T | Remains:
        try:
            obj = decode_patiently(self._kind, data)
        except msgspec.DecodeError as error:
            return self._remains(data, str(error))
        return obj if obj.uid and obj.name else self._remains(data, NAMELESS)

    def _remains(self, data: msgspec.Raw, why: str) -> Remains:
        remains = read_remains(data)
        self._count_undecodable()
        key = remains.metadata.key
        if key not in self._logged:
            log.error("%s %r cannot be decoded and its last known state is kept: %s", self._kind.__name__, key, why)
            self._logged[key] = None
            if len(self._logged) > LOGGED:
                self._logged.popitem(last=False)
        return remains

    def _remove(self, key: str, last: T | None = None) -> None:
        """`last` is the object's state when it was deleted."""
        if (old := self.objects.pop(key, None)) is not None:
            self._delivery.deliver(key, last if last is not None and last.uid == old.uid else old, None)

    def _keep(self, remains: Remains) -> None:
        """Leaves the cached object unchanged, unless it is another one under the same name."""
        name = remains.metadata
        if not name.name:
            return
        key = name.key
        known = self.objects.get(key)
        if known is not None and name.uid and known.uid != name.uid:
            self._remove(key)
            known = None
        before = self._undecodable.get(key)
        if not name.uid:
            uid = known.uid if known is not None else before.uid if before is not None else key
            name = msgspec.structs.replace(name, uid=uid)
        if before is not None and before.uid != name.uid:
            self._decodable(key)
        self._undecodable[key] = name
        self._deliver_undecodable(name, remains.content)

    def _decodable(self, key: str) -> None:
        """The object is gone, or can be decoded now."""
        if (name := self._undecodable.pop(key, None)) is not None:
            self._deliver_undecodable(name, None)

    def _deliver_undecodable(self, name: ObjectName, content: Tree | None) -> None:
        try:
            self._on_undecodable(name, content)
        except Exception as error:
            self._firewall.caught(error)
