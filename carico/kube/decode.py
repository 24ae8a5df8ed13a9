"""Objects decoded from JSON, with Go's nulls accepted.

Go writes null for an empty list, map or pointer unless its struct field has `omitempty`: the API server sends
`"names": null` for an image that has no name. An object is therefore decoded as it is and, only if that fails, once
more without its nulls; an absent field has its default. Valid objects have no extra cost.

An object that cannot be decoded even then has a value of a wrong type. `read_remains` finds out which object it is.

Go's decoder takes ten thousand levels, msgspec's about one thousand: any client that may write a pod can
nest `metadata.managedFields` deeper than that. `read` cuts off what is below DEEPEST levels instead of giving up.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple, TypeVar

import msgspec

from carico.kube.meta import ObjectName

T = TypeVar("T")

# What msgspec raises for bytes that are not JSON, not of the type, not UTF-8, or nested a thousand deep.
FAILURES = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

DEEPEST = 100  # levels that are kept of data which is nested too deep; the fields that are read end far above
_STRING_OR_BRACKET = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]', re.DOTALL)

Tree = dict[str, Any]


def read(kind: type[T], data: bytes | msgspec.Raw) -> T:
    """The value as it is, nulls included; what is nested too deep for the decoder counts as null."""
    try:
        return msgspec.json.decode(data, type=kind)
    except RecursionError:
        return msgspec.json.decode(without_depths(bytes(data)), type=kind)


def without_depths(data: bytes, deepest: int = DEEPEST) -> bytes:
    """JSON with null in place of every list and object below `deepest` levels.

    >>> without_depths(b'{"a": [1, {"b": "]"}], "c": {}}', deepest=2)
    b'{"a": [1, null], "c": {}}'
    """
    kept: list[bytes] = []
    depth = start = 0
    for found in _STRING_OR_BRACKET.finditer(data):
        sign = data[found.start()]
        if sign in b"[{":
            depth += 1
            if depth == deepest + 1:
                kept.append(data[start : found.start()])
        elif sign in b"]}":
            if depth == deepest + 1:
                kept.append(b"null")
                start = found.end()
            depth -= 1
    kept.append(data[start:] if depth <= deepest else b"")
    return b"".join(kept)


def decode(kind: type[T], data: bytes) -> T:
    """One object of type `kind`, with nulls taken as absent fields; raises msgspec.DecodeError if it is not one.

    >>> from carico.kube.objects import Node
    >>> decode(Node, b'{"metadata": {"name": "n"}, "status": {"images": [{"names": null}]}}').status.images
    (ContainerImage(names=(), size_bytes=0),)
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except FAILURES:
        return decode_patiently(kind, data)


def decode_patiently(kind: type[T], data: bytes | msgspec.Raw) -> T:
    """For a caller that has tried to decode it as it is, and failed."""
    try:
        return msgspec.convert(without_nulls(_tree(data)), kind)
    except msgspec.DecodeError:
        raise
    except FAILURES as error:
        raise msgspec.DecodeError(str(error)) from error


def without_nulls(value: Any) -> Any:
    """The value without the fields and list members that are null, at any depth.

    >>> without_nulls({"a": None, "b": [1, None, {"c": None}], "d": 0})
    {'b': [1, {}], 'd': 0}
    """
    if isinstance(value, dict):
        return {name: without_nulls(member) for name, member in value.items() if member is not None}
    if isinstance(value, list):
        return [without_nulls(member) for member in value if member is not None]
    return value


class Remains(NamedTuple):
    """The readable parts of an object that cannot be decoded; a name that cannot be read is empty."""

    metadata: ObjectName
    content: Tree


def read_remains(data: bytes | msgspec.Raw) -> Remains:
    """
    >>> found = read_remains(b'{"metadata": {"name": "p", "uid": 7, "labels": []}, "spec": {"nodeName": "n"}}')
    >>> found.metadata, text_at(found.content, "spec", "nodeName")
    (ObjectName(name='p', namespace='', uid='', resource_version=''), 'n')
    """
    try:
        content = _tree(data)
    except FAILURES:
        content = {}
    if not isinstance(content, dict):
        content = {}
    fields = ("name", "namespace", "uid", "resourceVersion")
    return Remains(ObjectName(*(text_at(content, "metadata", field) for field in fields)), content)


def text_at(content: Tree, *path: str) -> str:
    """The string at this path; empty if there is none."""
    value = _value_at(content, *path)
    return value if isinstance(value, str) else ""


def is_true_at(content: Tree, *path: str) -> bool:
    """Whether this path has the value true."""
    return _value_at(content, *path) is True


def _value_at(content: Tree, *path: str) -> Any:
    value: Any = content
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _tree(data: bytes | msgspec.Raw) -> Any:
    try:
        return read(Any, data)
    except UnicodeDecodeError:  # Go replaces what is not UTF-8; so does this
        return read(Any, bytes(data).decode(errors="replace").encode())
