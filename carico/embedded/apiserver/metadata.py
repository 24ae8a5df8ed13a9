"""Validation of an object's metadata, and the fields that the API server sets."""

from __future__ import annotations

import random
import re
import uuid
from datetime import UTC, datetime
from typing import Any

from carico.embedded.apiserver.history import Plain
from carico.embedded.apiserver.kinds import ApiKind
from carico.embedded.apiserver.status_error import StatusError, bad_request, invalid

_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # as in Kubernetes: no vowels, so that no words are formed
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    f"'{_SUBDOMAIN.pattern}')"
)
LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    f"an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL.pattern}')"
)
LABEL_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    f"'{_LABEL_VALUE.pattern}')"
)
KEPT = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink")


def timestamp(wall: float) -> str:
    """
    >>> timestamp(0.9)
    '1970-01-01T00:00:00Z'
    """
    return datetime.fromtimestamp(int(wall), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def checked(kind: ApiKind, body: Any, namespace: str) -> Plain:
    """The object in the body of a request, with a copy of its metadata, checked against kind and namespace."""
    if not isinstance(body, dict):
        raise bad_request("the object provided is unrecognized (must be of type Object)")
    version, word = body.get("apiVersion") or kind.api_version, body.get("kind") or kind.kind
    if version != kind.api_version:
        message = (
            f"the API version in the data ({version}) does not match the expected API version ({kind.api_version})"
        )
        raise bad_request(message)
    if word != kind.kind:
        raise bad_request(f'{word} in version "{kind.version}" cannot be handled as a {kind.kind}')
    meta = body.get("metadata") or {}
    if not isinstance(meta, dict):
        raise bad_request("metadata is not an object")
    if kind.namespaced:
        if meta.get("namespace", namespace) != namespace:
            why = "the namespace of the provided object does not match the namespace sent on the request"
            raise bad_request(why)
        meta = meta | {"namespace": namespace}
    meta = {key: value for key, value in meta.items() if value is not None and key != "managedFields"}
    return {"kind": kind.kind, "apiVersion": kind.api_version} | body | {"metadata": meta}


def stamp_new(kind: ApiKind, plain: Plain, wall: float) -> None:
    """Set name, UID and creation time of a new object."""
    meta = plain["metadata"]
    for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion", "selfLink"):
        meta.pop(field, None)
    if not meta.get("name"):
        if not meta.get("generateName"):
            why = "Required value: name or generateName is required"
            raise invalid(kind, "", "metadata.name", why, "FieldValueRequired")
        meta["name"] = meta["generateName"][:58] + "".join(random.choices(_LETTERS, k=5))
    check_name(kind, meta["name"])
    check_labels(kind, meta)
    meta["uid"] = str(uuid.uuid4())
    meta["creationTimestamp"] = timestamp(wall)


def check_name(kind: ApiKind, name: str) -> None:
    short = kind.kind in ("Namespace", "Service")
    pattern, most, form = (_LABEL, 63, LABEL) if short else (_SUBDOMAIN, 253, SUBDOMAIN)
    if not isinstance(name, str) or len(name) > most or pattern.fullmatch(name) is None:
        raise invalid(kind, str(name), "metadata.name", f'Invalid value: "{name}": {form}')


def check_labels(kind: ApiKind, meta: Plain) -> None:
    for field in ("labels", "annotations"):
        found = meta.get(field) or {}
        if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
            raise bad_request(f"metadata.{field}: every value must be a string")
    for label in (meta.get("labels") or {}).values():
        if len(label) > 63 or _LABEL_VALUE.fullmatch(label) is None:
            why = f'Invalid value: "{label}": {LABEL_VALUE}'
            raise invalid(kind, meta.get("name", ""), "metadata.labels", why)


def carry_over(kind: ApiKind, new: Plain, old: Plain) -> None:
    """Keep the fields that an update cannot change; reject changes of immutable fields."""
    mine, before = new["metadata"], old["metadata"]
    for field, name in (("uid", "uid"), ("name", "name")):
        if mine.get(field, before[field]) != before[field]:
            raise _immutable(kind, before["name"], f"metadata.{name}", mine[field])
    for field in KEPT:
        mine.pop(field, None)
        if field in before:
            mine[field] = before[field]
    check_labels(kind, mine)


def _immutable(kind: ApiKind, name: str, field: str, value: str) -> StatusError:
    return invalid(kind, name, field, f'Invalid value: "{value}": field is immutable')
