"""What an API server says when it does not do what it was asked: a `Status`, with kube-apiserver's codes and words."""

from __future__ import annotations

from typing import Any

import msgspec

from carico.errors import CaricoError
from carico.local.api.kinds import Kind


class Refusal(CaricoError):
    """An answer of 400 or more. `reason` is Kubernetes' word for it."""

    def __init__(self, code: int, reason: str, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code, self.reason, self.details = code, reason, details

    def status(self) -> dict[str, Any]:
        body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": str(self)}
        if self.reason:
            body["reason"] = self.reason
        return body | ({"details": self.details} if self.details else {}) | {"code": self.code}

    def encode(self) -> bytes:
        return msgspec.json.encode(self.status())


def details(kind: Kind, name: str, **more: Any) -> dict[str, Any]:
    found = {"name": name, "group": kind.group, "kind": kind.plural}
    return {key: value for key, value in found.items() if value} | more


def not_found(kind: Kind, name: str) -> Refusal:
    """
    >>> from carico.local.api.kinds import PODS
    >>> str(not_found(PODS, "p"))
    'pods "p" not found'
    """
    return Refusal(404, "NotFound", f'{kind.resource} "{name}" not found', details(kind, name))


def already_exists(kind: Kind, name: str) -> Refusal:
    return Refusal(409, "AlreadyExists", f'{kind.resource} "{name}" already exists', details(kind, name))


def conflict(kind: Kind, name: str, why: str, sub: str = "") -> Refusal:
    what = f"{kind.resource}/{sub}" if sub else kind.resource
    said = details(kind, name)
    if sub:
        said["kind"] = f"{kind.plural}/{sub}"
    return Refusal(409, "Conflict", f'Operation cannot be fulfilled on {what} "{name}": {why}', said)


def changed_meanwhile(kind: Kind, name: str) -> Refusal:
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(kind, name, why)


def invalid(kind: Kind, name: str, field: str, why: str, cause: str = "FieldValueInvalid") -> Refusal:
    """A field that cannot be so; `why` starts with Kubernetes' word for it, e.g. `Required value`."""
    causes = [{"reason": cause, "message": why, "field": field}]
    what = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    said = details(kind, name) | {"kind": kind.kind, "causes": causes}
    return Refusal(422, "Invalid", f'{what} "{name}" is invalid: {field}: {why}', said)


def without_version(kind: Kind, name: str) -> Refusal:
    why = "Invalid value: 0: must be specified for an update"
    causes = [{"reason": "FieldValueInvalid", "message": why, "field": "metadata.resourceVersion"}]
    said = f'{kind.resource} "{name}" is invalid: metadata.resourceVersion: {why}'
    return Refusal(422, "Invalid", said, details(kind, name) | {"causes": causes})


def other_object(kind: Kind, name: str, why: str) -> Refusal:
    """A deletion that was meant for an object that is not this one."""
    whole = f"{why} The object might have been deleted and then recreated"
    said = details(kind, name) | {"kind": kind.kind}
    return Refusal(409, "Conflict", f'Operation cannot be fulfilled on {kind.kind} "{name}": {whole}', said)


def forbidden(kind: Kind, name: str, why: str) -> Refusal:
    return Refusal(403, "Forbidden", f'{kind.resource} "{name}" is forbidden: {why}', details(kind, name))


def bad_request(message: str) -> Refusal:
    return Refusal(400, "BadRequest", message)


def expired(message: str) -> Refusal:
    return Refusal(410, "Expired", message)


UNAUTHORIZED = Refusal(401, "Unauthorized", "Unauthorized")
NOT_JSON = Refusal(
    415,
    "UnsupportedMediaType",
    "the body of the request was in an unknown format - accepted media types include: application/json; where kubectl "
    "sends protobuf, have it write the object first: --dry-run=client -o yaml | kubectl apply -f -",
)
NO_SUCH_PATCH = Refusal(415, "UnsupportedMediaType", "415: Unsupported Media Type")
METHOD_NOT_ALLOWED = Refusal(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
NO_SUCH_PATH = Refusal(404, "NotFound", "the server could not find the requested resource")
