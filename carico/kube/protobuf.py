"""Encodes the few messages that a scheduler writes by the thousand in Kubernetes' protobuf form.

A protobuf Binding or Event costs the API server less than one in JSON, and it responds in the same form. Messages are
the same dicts that would become JSON: the tables below map fields to numbers (generated.proto of k8s.io/api), and a
field that they do not name is an error, so nothing is lost silently.

>>> write(BINDING, {"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n"}}).hex(" ", -4)
'6b387300 0a0d0a02 76311207 42696e64 696e6712 100a030a 01611209 0a044e6f 64651a01 6e'
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from carico.errors import CaricoError

MEDIA = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\0"  # in front of every top-level object
TEXT, TIME, NUMBER = "text", "time", "number"  # a string; microseconds, from RFC 3339; no less than 0

Field = tuple[int, Any]  # number, and TEXT, TIME, NUMBER or the fields of a nested message
Fields = dict[str, Field]

METADATA: Fields = {"name": (1, TEXT), "namespace": (3, TEXT), "uid": (5, TEXT)}
REFERENCE: Fields = {
    "kind": (1, TEXT),
    "namespace": (2, TEXT),
    "name": (3, TEXT),
    "uid": (4, TEXT),
    "apiVersion": (5, TEXT),
    "resourceVersion": (6, TEXT),
}


class ProtobufKind(NamedTuple):
    """A kind of object with its fields. The envelope carries kind and version, so the message does not."""

    version: str
    name: str
    fields: Fields


BINDING = ProtobufKind("v1", "Binding", {"metadata": (1, METADATA), "target": (2, REFERENCE)})
EVENT = ProtobufKind(
    "events.k8s.io/v1",
    "Event",
    {
        "metadata": (1, METADATA),
        "eventTime": (2, TIME),
        "series": (3, {"count": (1, NUMBER), "lastObservedTime": (2, TIME)}),
        "reportingController": (4, TEXT),
        "reportingInstance": (5, TEXT),
        "action": (6, TEXT),
        "reason": (7, TEXT),
        "regarding": (8, REFERENCE),
        "related": (9, REFERENCE),
        "note": (10, TEXT),
        "type": (11, TEXT),
    },
)


def write(kind: ProtobufKind, thing: dict[str, Any]) -> bytes:
    """The object with its envelope, as the body of a request."""
    envelope = _sized(1, kind.version.encode()) + _sized(2, kind.name.encode())
    return MAGIC + _sized(1, envelope) + _sized(2, _message(kind.fields, thing))


def _message(fields: Fields, thing: dict[str, Any]) -> bytes:
    parts = []
    for name, value in thing.items():
        number, form = fields[name]
        if form is NUMBER:
            parts.append(bytes((number << 3,)) + _number(value))
            continue
        if form is TEXT:
            content = value.encode()
        elif form is TIME:
            at = datetime.fromisoformat(value)
            content = b"\x08" + _number(int(at.timestamp())) + b"\x10" + _number(at.microsecond * 1000)
        else:
            content = _message(form, value)
        parts.append(_sized(number, content))
    return b"".join(parts)


def _sized(number: int, content: bytes) -> bytes:
    """A length-delimited field."""
    length = len(content)
    if length < 128:
        return bytes((number << 3 | 2, length)) + content
    return bytes((number << 3 | 2,)) + _number(length) + content


def _number(value: int) -> bytes:
    """
    >>> _number(300).hex()
    'ac02'
    """
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def read_status(body: bytes) -> tuple[str, str]:
    """Reason and message of a Status, the body of an error response."""
    if not body.startswith(MAGIC):
        raise CaricoError("the answer is not in Kubernetes' binary form")
    raw = _fields(body[len(MAGIC) :]).get(2, b"")
    found = _fields(raw)
    return found.get(4, b"").decode(errors="replace"), found.get(3, b"").decode(errors="replace")


def _fields(message: bytes) -> dict[int, bytes]:
    """The length-delimited fields; varints are skipped."""
    found: dict[int, bytes] = {}
    at = 0
    try:
        while at < len(message):
            key, at = _take(message, at)
            size, at = _take(message, at)
            if key & 7 == 2:
                found[key >> 3] = message[at : at + size]
                at += size
            elif key & 7 != 0:
                raise CaricoError(f"field {key >> 3} of the answer is of an unknown form")
    except IndexError:
        raise CaricoError("the answer ends in the middle of a field") from None
    return found


def _take(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
