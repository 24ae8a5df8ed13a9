"""The metadata of every Kubernetes object, and the base of the structs that objects are decoded into.

The structs of this package name only the fields that a scheduler reads; the decoder skips the others without building
anything for them. They are frozen: an object of a watch is shared by many readers and replaced, never changed.

Every field has a default, Go's zero value of it, because the API server may leave a field out or write null for it
(decode.py). Integers have the width of Go's fields; larger values are invalid.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class KubeStruct(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """Base of all structs: camelCase on the wire, no garbage-collector bookkeeping (there are no cycles).

    Every subclass repeats `frozen=True`, because type checkers do not inherit it.
    """


class OwnerReference(KubeStruct, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectName(KubeStruct, frozen=True):
    """Which object this is, and its resource version."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""

    @property
    def key(self) -> str:
        """`namespace/name`, or the name alone for a cluster-scoped object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class ObjectMeta(ObjectName, frozen=True):
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    creation_timestamp: str | None = None  # RFC 3339, seconds
    deletion_timestamp: str | None = None
    owner_references: tuple[OwnerReference, ...] = ()

    @property
    def controller(self) -> OwnerReference | None:
        """The one owner that manages this object."""
        if not self.owner_references:
            return None
        return next((owner for owner in self.owner_references if owner.controller), None)


class LabelRequirement(KubeStruct, frozen=True):
    key: str = ""
    operator: str = ""  # In, NotIn, Exists, DoesNotExist; node selectors also Gt and Lt
    values: tuple[str, ...] = ()


class LabelSelector(KubeStruct, frozen=True):
    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelRequirement, ...] = ()


class NamedObject(KubeStruct, frozen=True):
    """An object of which a watch stores only its name, UID and resource version."""

    metadata: ObjectName = ObjectName()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def namespace(self) -> str:
        return self.metadata.namespace

    @property
    def uid(self) -> str:
        return self.metadata.uid

    @property
    def key(self) -> str:
        """`namespace/name`, or the name alone for a cluster-scoped object."""
        meta = self.metadata
        return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name


class KubeObject(NamedObject, frozen=True):
    """An object with all of its metadata."""

    metadata: ObjectMeta = ObjectMeta()
