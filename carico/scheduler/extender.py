"""The same ledger, filter and score as an HTTP extender, for clusters that keep the stock kube-scheduler.

    extenders:
    - urlPrefix: http://carico-scheduler.kube-system:9467/extender
      filterVerb: filter
      prioritizeVerb: prioritize
      weight: 5
      nodeCacheCapable: true

An extender is not told when a pod is reserved or given up: between this filter and the binding that the watch brings,
the pod is in flight. So the node that this extender itself scored best is charged for the pod at once, and the charge
runs out after `HOLD` seconds unless the watch confirms the pod before. kube-scheduler may weigh otherwise and choose
another node; then for that long one node carries a charge too many and the chosen one a charge too few. That error is
bounded by the pods in flight, one for a kube-scheduler whose bindings take less time than the next filter call.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import msgspec
import numpy as np

from carico.health import Page, Request, text
from carico.kube.objects import Node, Pod
from carico.scheduler.assembly import Parts
from carico.scheduler.framework import Cycle
from carico.scheduler.plugins.capacity import Capacity
from carico.scheduler.rows import RowArray
from carico.scheduler.template import PodInfo
from carico.scheduler.units import counts, units_of

HOLD = 5.0  # s that a charge stands without being confirmed
JSON = "application/json"


class _NodeList(msgspec.Struct):
    items: list[Node] = []


class _Arguments(msgspec.Struct, rename="pascal"):
    pod: Pod = msgspec.field(name="Pod")
    nodes: _NodeList | None = msgspec.field(name="Nodes", default=None)
    node_names: list[str] | None = msgspec.field(name="NodeNames", default=None)


class Extender:
    def __init__(self, parts: Parts, now: Any) -> None:
        self._parts, self._now = parts, now
        self._held: dict[str, float] = {}  # UID to the time at which the charge runs out
        first = next(p.capacity for p in parts.profiles.values())
        self._capacity = first or Capacity(parts.ledger, now)

    def filter(self, request: Request) -> Page:
        asked = _decoded(request)
        if asked is None:
            return text(HTTPStatus.BAD_REQUEST, "this is no ExtenderArgs; see kube-scheduler's extender API v1")
        self._let_go()
        names = self._names(asked)
        cycle, rows, known = self._cycle(asked.pod, names)
        verdict = self._capacity.filter(cycle, rows)
        failed = {name: "had no capacity report" for name in names if name not in known}
        good = []
        for i, name in enumerate(known):
            if verdict.bits[i]:
                failed[name] = ", ".join(reason.text for reason in verdict.at(i))
            else:
                good.append(name)
        answer: dict[str, Any] = {"NodeNames": good, "FailedAndUnresolvableNodes": failed, "Error": ""}
        if asked.node_names is None:
            return _with_nodes(request, good, failed)
        return Page(HTTPStatus.OK, JSON, msgspec.json.encode(answer))

    def prioritize(self, request: Request) -> Page:
        asked = _decoded(request)
        if asked is None:
            return text(HTTPStatus.BAD_REQUEST, "this is no ExtenderArgs; see kube-scheduler's extender API v1")
        names = self._names(asked)
        cycle, rows, known = self._cycle(asked.pod, names)
        scores = dict.fromkeys(names, 0)
        if len(rows):
            # An extender scores from 0 to 10.
            found = np.rint(self._capacity.score(cycle, rows) / 10).astype(int)
            scores.update(zip(known, found.tolist(), strict=True))
            self._charge(asked.pod, known[int(np.argmax(self._capacity.free(cycle, rows)))])
        answer = [{"Host": name, "Score": score} for name, score in scores.items()]
        return Page(HTTPStatus.OK, JSON, msgspec.json.encode(answer))

    def _names(self, asked: _Arguments) -> list[str]:
        if asked.node_names is not None:
            return asked.node_names
        return [node.name for node in asked.nodes.items] if asked.nodes is not None else []

    def _cycle(self, pod: Pod, names: list[str]) -> tuple[Cycle, RowArray, list[str]]:
        number = self._parts.snapshot.rows.number
        known = [name for name in names if name in number]
        return Cycle(PodInfo(pod), self._parts.snapshot), np.array([number[n] for n in known], dtype=np.intp), known

    def _charge(self, pod: Pod, node: str) -> None:
        if counts(pod):
            self._parts.ledger.reserve(pod.uid, node, units_of(pod), self._now())
            self._held[pod.uid] = self._now() + HOLD

    def _let_go(self) -> None:
        """Charges that ran out; one that was confirmed stays in the ledger as what it is."""
        now = self._now()
        for uid in [uid for uid, until in self._held.items() if until <= now]:
            del self._held[uid]
            self._parts.ledger.release(uid, now)


def _decoded(request: Request) -> _Arguments | None:
    try:
        return msgspec.json.decode(request.body, type=_Arguments)
    except msgspec.DecodeError:
        return None


def _with_nodes(request: Request, good: list[str], failed: dict[str, str]) -> Page:
    """Without nodeCacheCapable the nodes travel whole, and must come back as they came."""
    items = msgspec.json.decode(request.body)["Nodes"].get("items") or []
    kept = [item for item in items if item["metadata"]["name"] in set(good)]
    answer = {"Nodes": {"apiVersion": "v1", "kind": "NodeList", "items": kept}, "FailedAndUnresolvableNodes": failed}
    return Page(HTTPStatus.OK, JSON, msgspec.json.encode(answer | {"Error": ""}))
