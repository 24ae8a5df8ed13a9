"""Reviews: who a token belongs to, and what a user, or the client itself, may do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from carico.kube import calls
from carico.kube.calls import ApiCall
from carico.kube.client import Client

Status = dict[str, Any]


async def token(client: Client, bearer: str, audiences: Sequence[str] = ()) -> Status:
    """Without `audiences` the token has to be for the API server itself."""
    spec: dict[str, Any] = {"token": bearer} | ({"audiences": list(audiences)} if audiences else {})
    return await _review(client, calls.CREATE_TOKEN_REVIEW, "TokenReview", spec, urgent=True)


async def subject_access(client: Client, spec: dict[str, Any]) -> Status:
    return await _review(client, calls.CREATE_SUBJECT_ACCESS_REVIEW, "SubjectAccessReview", spec, urgent=True)


async def self_access(client: Client, attributes: dict[str, str]) -> bool:
    """Whether the client's own user may do this: `attributes` are resourceAttributes of the review."""
    spec = {"resourceAttributes": attributes}
    status = await _review(client, calls.CREATE_SELF_REVIEW, "SelfSubjectAccessReview", spec)
    return bool(status.get("allowed"))


async def _review(client: Client, call: ApiCall, kind: str, spec: dict[str, Any], *, urgent: bool = False) -> Status:
    version = f"{call.resource.group}/{call.resource.version}"
    body = msgspec.json.encode({"apiVersion": version, "kind": kind, "spec": spec})
    answer = await client.call("POST", call.path(), body, urgent=urgent)
    return msgspec.json.decode(answer, type=dict[str, Any]).get("status") or {}
