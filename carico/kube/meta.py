"""What every Kubernetes object carries, and how the rest is decoded.

The structs of this package name only the fields that a scheduler reads; the decoder skips the others without building
anything for them. They are frozen: an object of a watch is shared by many readers and replaced, never changed.
"""

from __future__ import annotations

import msgspec


class Piece(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """Base of all structs: camelCase on the wire, no garbage-collector bookkeeping (there are no cycles).

    Every subclass says `frozen=True` again, because type checkers do not inherit it.
    """


class OwnerReference(Piece, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(Piece, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    creation_timestamp: str | None = None  # RFC 3339, seconds
    deletion_timestamp: str | None = None
    owner_references: tuple[OwnerReference, ...] = ()

    @property
    def controller(self) -> OwnerReference | None:
        """The one owner that manages this object."""
        return next((owner for owner in self.owner_references if owner.controller), None)


class LabelRequirement(Piece, frozen=True):
    key: str
    operator: str  # In, NotIn, Exists, DoesNotExist; node selectors also Gt and Lt
    values: tuple[str, ...] = ()


class LabelSelector(Piece, frozen=True):
    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelRequirement, ...] = ()


class KubeObject(Piece, frozen=True):
    """Anything with metadata. `key` is how the API server's paths name it."""

    metadata: ObjectMeta = ObjectMeta()

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
        """`namespace/name`, or the name alone of what belongs to no namespace."""
        meta = self.metadata
        return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
