"""The messages between kube-scheduler and an extender: the JSON of its extender API v1."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, TypeVar

import msgspec

from carico.http.message import JSON, Page, Request, text
from carico.kube.decode import decode
from carico.kube.objects import Node, Pod


class NodeList(msgspec.Struct):
    items: list[Node] = []


class Arguments(msgspec.Struct, rename="pascal"):
    pod: Pod
    nodes: NodeList | None = None
    node_names: list[str] | None = None

    @property
    def names(self) -> list[str]:
        if self.node_names is not None:
            return self.node_names
        return [node.name for node in self.nodes.items] if self.nodes is not None else []


class BindingArguments(msgspec.Struct, rename="pascal"):
    pod_name: str
    pod_namespace: str
    node: str
    uid: str = msgspec.field(name="PodUID")


class FilterAnswer(msgspec.Struct):
    """Feasible nodes, and the others with reasons: evicting pods might help on `failed`, not on `unresolvable` ones."""

    good: list[str]
    failed: dict[str, str]
    unresolvable: dict[str, str]


Asked = TypeVar("Asked", Arguments, BindingArguments)


def decoded(request: Request, kind: type[Asked]) -> Asked | None:
    try:
        return decode(kind, request.body)
    except msgspec.DecodeError:
        return None


def undecodable(kind: str) -> Page:
    return text(HTTPStatus.BAD_REQUEST, f"this is no {kind}; see kube-scheduler's extender API v1")


def json_page(value: Any) -> Page:
    return Page(HTTPStatus.OK, JSON, msgspec.json.encode(value))


def filtered_page(request: Request, answer: FilterAnswer, *, names_only: bool) -> Page:
    fields: dict[str, Any] = {
        "FailedNodes": answer.failed,
        "FailedAndUnresolvableNodes": answer.unresolvable,
        "Error": "",
    }
    if names_only:
        return json_page({"NodeNames": answer.good, **fields})
    # Without nodeCacheCapable the request has whole Node objects, and the answer must return them unchanged.
    items = (msgspec.json.decode(request.body).get("Nodes") or {}).get("items") or []
    good = set(answer.good)
    kept = [item for item in items if item["metadata"]["name"] in good]
    return json_page({"Nodes": {"apiVersion": "v1", "kind": "NodeList", "items": kept}, **fields})
