"""Errors of the API server: a `Status` with kube-apiserver's codes and messages."""

from __future__ import annotations

from typing import Any

import msgspec

from carico.embedded.apiserver.kinds import ApiKind
from carico.errors import CaricoError


class StatusError(CaricoError):
    """A response with code 400 or above. `reason` is the Kubernetes StatusReason."""

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


def details(kind: ApiKind, name: str, **more: Any) -> dict[str, Any]:
    found = {"name": name, "group": kind.group, "kind": kind.plural}
    return {key: value for key, value in found.items() if value} | more


def not_found(kind: ApiKind, name: str) -> StatusError:
    """
    >>> from carico.embedded.apiserver.kinds import PODS
    >>> str(not_found(PODS, "p"))
    'pods "p" not found'
    """
    return StatusError(404, "NotFound", f'{kind.resource} "{name}" not found', details(kind, name))


def already_exists(kind: ApiKind, name: str) -> StatusError:
    return StatusError(409, "AlreadyExists", f'{kind.resource} "{name}" already exists', details(kind, name))


def conflict(kind: ApiKind, name: str, why: str, sub: str = "") -> StatusError:
    what = f"{kind.resource}/{sub}" if sub else kind.resource
    about = details(kind, name)
    if sub:
        about["kind"] = f"{kind.plural}/{sub}"
    return StatusError(409, "Conflict", f'Operation cannot be fulfilled on {what} "{name}": {why}', about)


def changed_meanwhile(kind: ApiKind, name: str) -> StatusError:
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(kind, name, why)


def invalid(kind: ApiKind, name: str, field: str, why: str, cause: str = "FieldValueInvalid") -> StatusError:
    """A field with an invalid value; `why` starts with Kubernetes' phrase for it, e.g. `Required value`."""
    causes = [{"reason": cause, "message": why, "field": field}]
    what = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    about = details(kind, name) | {"kind": kind.kind, "causes": causes}
    return StatusError(422, "Invalid", f'{what} "{name}" is invalid: {field}: {why}', about)


def without_version(kind: ApiKind, name: str) -> StatusError:
    why = "Invalid value: 0: must be specified for an update"
    causes = [{"reason": "FieldValueInvalid", "message": why, "field": "metadata.resourceVersion"}]
    about = f'{kind.resource} "{name}" is invalid: metadata.resourceVersion: {why}'
    return StatusError(422, "Invalid", about, details(kind, name) | {"causes": causes})


def other_object(kind: ApiKind, name: str, why: str) -> StatusError:
    """A deletion whose preconditions do not match the object."""
    whole = f"{why} The object might have been deleted and then recreated"
    about = details(kind, name) | {"kind": kind.kind}
    return StatusError(409, "Conflict", f'Operation cannot be fulfilled on {kind.kind} "{name}": {whole}', about)


def forbidden(kind: ApiKind, name: str, why: str) -> StatusError:
    return StatusError(403, "Forbidden", f'{kind.resource} "{name}" is forbidden: {why}', details(kind, name))


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def expired(message: str) -> StatusError:
    return StatusError(410, "Expired", message)


UNAUTHORIZED = StatusError(401, "Unauthorized", "Unauthorized")
NOT_JSON = StatusError(
    415,
    "UnsupportedMediaType",
    "the body of the request was in an unknown format - accepted media types include: application/json; where kubectl "
    "sends protobuf, have it write the object first: --dry-run=client -o yaml | kubectl apply -f -",
)
NO_SUCH_PATCH = StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type")
METHOD_NOT_ALLOWED = StatusError(
    405, "MethodNotAllowed", "the server does not allow this method on the requested resource"
)
NO_SUCH_PATH = StatusError(404, "NotFound", "the server could not find the requested resource")
