"""Encodes the few messages that a scheduler writes by the thousand in Kubernetes' protobuf form.

A protobuf Binding or Event costs the API server less than one in JSON, and it responds in the same form. Messages are
the same dicts that would become JSON; a field that protos/carico/kube/messages/objects.proto does not have is an error,
so nothing is lost silently.

>>> write(BINDING, {"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n"}}).hex(" ", -4)
'6b387300 0a0d0a02 76311207 42696e64 696e6712 100a030a 01611209 0a044e6f 64651a01 6e'
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError, Message

from carico.errors import CaricoError
from carico.kube.messages import objects_pb2

MEDIA = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\0"  # in front of every top-level object

JsonTree = dict[str, Any]


class StatusText(NamedTuple):
    reason: str
    message: str
    causes: dict[str, str]  # reason to message


class ProtobufKind(NamedTuple):
    """A kind of object. The envelope carries kind and version, so the message does not."""

    head: bytes  # the body's start, up to the message
    message: Callable[[JsonTree], Message]


def _kind(version: str, name: str, message: Callable[[JsonTree], Message]) -> ProtobufKind:
    envelope = objects_pb2.Unknown(typeMeta={"apiVersion": version, "kind": name})
    return ProtobufKind(MAGIC + envelope.SerializeToString(), message)


def _binding(obj: JsonTree) -> Message:
    made: Message = objects_pb2.Binding(**obj)
    return made


def _event(obj: JsonTree) -> Message:
    fields = obj | {"eventTime": _micro_time(obj["eventTime"])}
    if series := obj.get("series"):
        fields["series"] = series | {"lastObservedTime": _micro_time(series["lastObservedTime"])}
    made: Message = objects_pb2.Event(**fields)
    return made


def _micro_time(text: str) -> JsonTree:
    """
    >>> _micro_time("1970-01-01T00:01:00.250000Z")
    {'seconds': 60, 'nanos': 250000000}
    """
    at = datetime.fromisoformat(text)
    return {"seconds": int(at.timestamp()), "nanos": at.microsecond * 1000}


BINDING = _kind("v1", "Binding", _binding)
EVENT = _kind("events.k8s.io/v1", "Event", _event)


def write(kind: ProtobufKind, obj: JsonTree) -> bytes:
    """The object with its envelope, as the body of a request."""
    raw = kind.message(obj).SerializeToString()
    return kind.head + bytes(objects_pb2.Unknown(raw=raw).SerializeToString())


def read_status(body: bytes) -> StatusText:
    """The fields of a Status, the body of an error response."""
    if not body.startswith(MAGIC):
        raise CaricoError("the answer is not in Kubernetes' binary form")
    try:
        status = objects_pb2.Status.FromString(objects_pb2.Unknown.FromString(body[len(MAGIC) :]).raw)
    except DecodeError as error:
        raise CaricoError(f"the answer is no Status in protobuf: {error}") from error
    return StatusText(status.reason, status.message, {cause.reason: cause.message for cause in status.details.causes})
