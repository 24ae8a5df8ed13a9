"""Sends the same requests to two API servers, and normalises their responses for comparison.

A conversation is a list of steps. What always differs (UIDs, versions, times, the namespace's name) is replaced by a
placeholder; the few intended differences are removed here, each with its reason, and are listed in docs/local.md.
"""

from __future__ import annotations

import http.client
import json
import re
import ssl
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from harness.cluster.api import Api

JSON = "application/json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_PLACE = re.compile(r"test-[0-9a-f]{8}")
# As HumanDuration prints it: "12s", "2m30s", "15m", "3h5m", "2d". Built-in objects are as old as their cluster.
_AGE = re.compile(r"^(\d+[ydhms]){1,2}$")
_MADE_UP = re.compile(r"^(made-)[a-z0-9]{5}$")


class Step(NamedTuple):
    """`{ns}` is the namespace, `{KEY}` a value that an earlier step kept; `keep` names a path into the response."""

    method: str
    path: str
    body: Any = None
    media: str = JSON
    keep: tuple[str, str] | None = None  # under which name, and which field of the response
    accept: str = JSON


class Answer(NamedTuple):
    code: int
    body: Any


class ContractClient:
    """Sends steps to one server."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        self._api = Api(kubeconfig)
        self._kept = {"ns": namespace}

    def close(self) -> None:
        self._api.close()

    def play(self, steps: list[Step]) -> list[Answer]:
        return [self._one(step) for step in steps]

    def _one(self, step: Step) -> Answer:
        body = _filled(step.body, self._kept)
        code, content = self._api._send(step.method, _filled(step.path, self._kept), body, step.media, step.accept)
        if "watch=1" in step.path and code == 200:
            return Answer(code, [_event(json.loads(line)) for line in content.splitlines() if line])
        try:
            answer = json.loads(content)
        except ValueError:
            return Answer(code, content.decode())
        if step.keep is not None and code < 300:
            self._kept[step.keep[0]] = str(_at(answer, step.keep[1]))
        return Answer(code, normal(answer))


def _at(answer: Any, path: str) -> Any:
    for part in path.split("."):
        answer = answer[int(part)] if isinstance(answer, list) else answer[part]
    return answer


def _filled(obj: Any, kept: dict[str, str]) -> Any:
    if isinstance(obj, str):
        for key, value in kept.items():
            obj = obj.replace("{" + key + "}", value)
        return obj
    if isinstance(obj, dict):
        return {key: _filled(value, kept) for key, value in obj.items()}
    return [_filled(value, kept) for value in obj] if isinstance(obj, list) else obj


def _event(event: Any) -> Any:
    return [event["type"], event["object"].get("metadata", {}).get("name"), normal(event["object"])]


def normal(obj: Any) -> Any:
    """Without what always differs."""
    if isinstance(obj, dict):
        if "items" in obj:  # the real server omits kind and apiVersion of items, the embedded one includes them
            known = {"kind": obj["kind"].removesuffix("List"), "apiVersion": obj["apiVersion"]}
            obj = obj | {"items": [known | one for one in obj["items"] or []]}
        if "metadata" in obj and obj.get("kind") in KINDS_TRIMMED:
            obj = KINDS_TRIMMED[obj["kind"]](dict(obj))
        if "causes" in obj:  # the real server repeats some of them
            obj = obj | {"causes": [one for i, one in enumerate(obj["causes"]) if one not in obj["causes"][:i]]}
        if obj.get("continue"):
            obj = obj | {"continue": "NEXT"}
        return {key: normal(value) for key, value in obj.items() if key not in LEFT_OUT and value not in EMPTY}
    if isinstance(obj, list):
        return [normal(value) for value in obj]
    if isinstance(obj, str):
        for tail in TAILS:
            obj = tail.sub("", obj)
        obj = _PLACE.sub("NS", _UID.sub("UID", _TIME.sub("TIME", obj)))
        return _MADE_UP.sub(r"\1NEW", obj)
    return obj


# What the real server adds to a message and the embedded one does not: internal error texts, and a diff.
TAILS = (
    re.compile(r": converting \(.*"),
    re.compile(r"StorageError: invalid object, .* AdditionalErrorMsg: "),
    re.compile(r"\n@@ .*", re.DOTALL),
)
EMPTY: tuple[Any, ...] = (None, {}, [])
LEFT_OUT = {
    "managedFields",  # server-side apply, which the embedded server does not have
    "resourceVersion",
    "retryAfterSeconds",
    "remainingItemCount",
}


def _without_words(table: dict[str, Any]) -> dict[str, Any]:
    """The real server describes and types columns; kubectl uses neither."""
    wanted = ("name", "priority")
    columns = [{key: column[key] for key in wanted} for column in table.get("columnDefinitions") or []]
    rows = [
        {"cells": [_ageless(cell) for cell in row["cells"]], "object": row["object"]["metadata"]["name"]}
        for row in table.get("rows") or []
    ]
    return table | {"columnDefinitions": columns, "rows": rows}


def _ageless(cell: Any) -> Any:
    return "AGE" if isinstance(cell, str) and _AGE.match(cell) else cell


def _without_token(pod: dict[str, Any]) -> dict[str, Any]:
    """The real server mounts a service account token: there are none in the embedded cluster."""

    def ours(name: str) -> bool:
        return not name.startswith("kube-api-access-")

    spec = dict(pod.get("spec") or {})
    spec["volumes"] = [one for one in spec.get("volumes") or [] if ours(one["name"])]
    spec["containers"] = [
        one | {"volumeMounts": [mount for mount in one.get("volumeMounts") or [] if ours(mount["name"])]}
        for one in spec.get("containers") or []
    ]
    return pod | {"spec": spec}


def _without_taints(node: dict[str, Any]) -> dict[str, Any]:
    """The real server taints a new node until a controller has processed it: the embedded one has no controllers."""
    spec = {
        key: value for key, value in (node.get("spec") or {}).items() if key not in ("taints", "podCIDR", "podCIDRs")
    }
    return node | {"spec": spec}


KINDS_TRIMMED = {"Table": _without_words, "Pod": _without_token, "Node": _without_taints}


def unauthorised(kubeconfig: Path, path: str) -> Answer:
    """The response to a request with a wrong token."""
    server = urlsplit(json.loads(kubeconfig.read_text())["clusters"][0]["cluster"]["server"])
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection(server.netloc, context=context, timeout=30)
    try:
        connection.request("GET", path, headers={"Authorization": "Bearer wrong"})
        answer = connection.getresponse()
        return Answer(answer.status, normal(json.loads(answer.read())))
    finally:
        connection.close()
