"""Objects must have the shape of their kind, as far as anybody here reads them: others would stop their readers.

kube-apiserver decodes every field and refuses what does not fit. Here the fields are checked that Carico's own client
decodes; the others are kept as they come.
"""

from __future__ import annotations

from typing import Any

import msgspec

from carico.kube import objects, quantity, storage
from carico.kube.meta import KubeObject
from carico.local.api.history import Plain
from carico.local.api.kinds import NAMESPACES, NODES, PODS, Kind
from carico.local.api.refusal import bad_request

TYPES: dict[str, type[KubeObject]] = {
    PODS.resource: objects.Pod,
    NODES.resource: objects.Node,
    NAMESPACES.resource: objects.Namespace,
    "services": objects.Service,
    "replicationcontrollers": objects.ReplicationController,
    "replicasets.apps": objects.ReplicaSet,
    "statefulsets.apps": objects.StatefulSet,
    "poddisruptionbudgets.policy": objects.PodDisruptionBudget,
    "persistentvolumeclaims": storage.PersistentVolumeClaim,
    "persistentvolumes": storage.PersistentVolume,
    "storageclasses.storage.k8s.io": storage.StorageClass,
    "csinodes.storage.k8s.io": storage.CSINode,
    "csidrivers.storage.k8s.io": storage.CSIDriver,
    "csistoragecapacities.storage.k8s.io": storage.CSIStorageCapacity,
    "volumeattachments.storage.k8s.io": storage.VolumeAttachment,
}
_ROOMS = ("capacity", "allocatable", "requests", "limits")  # fields that hold quantities by resource


class _Metadata(msgspec.Struct):
    """What every kind has and this server itself reads, named as in JSON."""

    name: str = ""
    generateName: str = ""
    namespace: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: list[str] = []
    ownerReferences: list[dict[str, Any]] = []


class _Any(msgspec.Struct):
    metadata: _Metadata


def shaped(kind: Kind, plain: Plain) -> Plain:
    """The object, with numbers written as quantities where they mean that; refused when its readers cannot read it."""
    if kind in (PODS, NODES):
        plain = _quantities(plain)
    try:
        return _checked(kind, plain)
    except msgspec.ValidationError:
        plain = without_nulls(plain)  # null is the same as nothing
    try:
        return _checked(kind, plain)
    except msgspec.ValidationError as error:
        raise bad_request(
            f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {error}'
        ) from error


def _checked(kind: Kind, plain: Plain) -> Plain:
    msgspec.convert(plain, _Any)
    if (shape := TYPES.get(kind.resource)) is not None:
        msgspec.convert(plain, shape)
    return plain


def without_nulls(thing: Any) -> Any:
    """
    >>> without_nulls({"a": None, "b": [{"c": None}]})
    {'b': [{}]}
    """
    if isinstance(thing, dict):
        return {key: without_nulls(value) for key, value in thing.items() if value is not None}
    return [without_nulls(value) for value in thing] if isinstance(thing, list) else thing


def _quantities(thing: Any) -> Any:
    """YAML's `cpu: 1` is a number and means the quantity "1"."""
    if isinstance(thing, list):
        return [_quantities(value) for value in thing] if thing and isinstance(thing[0], dict) else thing
    if not isinstance(thing, dict):
        return thing
    return {
        key: {name: _quantity(amount) for name, amount in value.items()}
        if key in _ROOMS and isinstance(value, dict)
        else _quantities(value)
        if isinstance(value, (dict, list))
        else value
        for key, value in thing.items()
    }


def _quantity(amount: Any) -> Any:
    """
    >>> _quantity(1), _quantity(0.5), _quantity("100m")
    ('1', '0.5', '100m')
    """
    if isinstance(amount, bool) or not isinstance(amount, (int, float, str)):
        raise bad_request(f"{amount!r} is not a quantity")
    text = str(amount)
    try:
        quantity.parse(text)
    except ValueError as error:
        raise bad_request(f"quantities must match the regular expression of quantities: {error}") from error
    return text
