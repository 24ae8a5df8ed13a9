"""Type checks of the fields that Carico's components read: an object of another shape would stop its readers.

kube-apiserver decodes every field and rejects what does not fit. Here only the fields that Carico's client decodes are
checked; the others are stored unchanged.
"""

from __future__ import annotations

from typing import Any

import msgspec

from carico.embedded.apiserver.history import Plain
from carico.embedded.apiserver.kinds import NAMESPACES, NODES, PODS, ApiKind
from carico.embedded.apiserver.status_error import bad_request
from carico.kube import objects, quantity, storage
from carico.kube.meta import KubeObject

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
    """Metadata that every kind has and this server reads, named as in JSON."""

    name: str = ""
    generateName: str = ""
    namespace: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: list[str] = []
    ownerReferences: list[dict[str, Any]] = []


class _Any(msgspec.Struct):
    metadata: _Metadata


def shaped(kind: ApiKind, plain: Plain) -> Plain:
    """The object, with numbers converted to quantities where expected; rejected if its readers cannot decode it."""
    if kind in (PODS, NODES):
        plain = _quantities(plain)
    try:
        return _checked(kind, plain)
    except msgspec.ValidationError:
        plain = without_nulls(plain)  # null is the same as an absent field
    try:
        return _checked(kind, plain)
    except msgspec.ValidationError as error:
        raise bad_request(
            f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {error}'
        ) from error


def _checked(kind: ApiKind, plain: Plain) -> Plain:
    msgspec.convert(plain, _Any)
    if (shape := TYPES.get(kind.resource)) is not None:
        msgspec.convert(plain, shape)
    return plain


def without_nulls(tree: Any) -> Any:
    """
    >>> without_nulls({"a": None, "b": [{"c": None}]})
    {'b': [{}]}
    """
    if isinstance(tree, dict):
        return {key: without_nulls(value) for key, value in tree.items() if value is not None}
    return [without_nulls(value) for value in tree] if isinstance(tree, list) else tree


def _quantities(tree: Any) -> Any:
    """Convert numbers to quantities: YAML's `cpu: 1` means the quantity "1"."""
    if isinstance(tree, list):
        return [_quantities(value) for value in tree] if tree and isinstance(tree[0], dict) else tree
    if not isinstance(tree, dict):
        return tree
    return {
        key: {name: _quantity(amount) for name, amount in value.items()}
        if key in _ROOMS and isinstance(value, dict)
        else _quantities(value)
        if isinstance(value, (dict, list))
        else value
        for key, value in tree.items()
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
