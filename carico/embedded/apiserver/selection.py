"""Label and field selectors of a request, compiled into one predicate on objects."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from carico.embedded.apiserver.history import Plain
from carico.embedded.apiserver.kinds import ApiKind
from carico.embedded.apiserver.status_error import bad_request
from carico.kube.selectors import Requirement, Selector

Test = Callable[[Plain], bool]

_REFERENCE = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
# Fields by which a kind can be selected, besides its name and namespace: those of kube-apiserver.
FIELDS: dict[str, frozenset[str]] = {
    "pods": frozenset(
        {f"spec.{part}" for part in ("nodeName", "restartPolicy", "schedulerName", "serviceAccountName", "hostNetwork")}
        | {f"status.{part}" for part in ("phase", "podIP", "nominatedNodeName")}
    ),
    "nodes": frozenset({"spec.unschedulable"}),
    "namespaces": frozenset({"status.phase"}),
    "events": frozenset({f"involvedObject.{part}" for part in _REFERENCE} | {"reason", "type", "reportingComponent"}),
    "events.events.k8s.io": frozenset(
        {f"regarding.{part}" for part in _REFERENCE} | {"reason", "type", "reportingController"}
    ),
    "jobs.batch": frozenset({"status.successful"}),
    "secrets": frozenset({"type"}),
}
_FALSE = frozenset({"spec.unschedulable", "spec.hostNetwork"})  # false if not set
_FIELD = re.compile(r"\s*([^=!,\s]+)\s*(==|!=|=)\s*((?:\\.|[^,\\])*)\s*(?:,|$)")
_SET = re.compile(r"\s*([^\s,!=()]+)\s+(in|notin)\s*\(([^)]*)\)\s*(?:,|$)")
_LABEL = re.compile(r"\s*(!?)\s*([^\s,!=()<>]+)\s*(?:(==|!=|=)\s*([^\s,()]*))?\s*(?:,|$)")


def matching(kind: ApiKind, query: dict[str, str]) -> Test | None:
    """The predicate for a request's selectors; None if it has none."""
    tests = []
    if text := query.get("labelSelector"):
        tests.append(_labelled(labels(text)))
    if text := query.get("fieldSelector"):
        tests.append(fields(kind, text))
    if not tests:
        return None
    return tests[0] if len(tests) == 1 else lambda plain: all(test(plain) for test in tests)


def _labelled(selector: Selector) -> Test:
    return lambda plain: selector.matches(plain["metadata"].get("labels") or {})


def labels(text: str) -> Selector:
    """
    >>> labels("app=web,tier in (a, b),!old").matches({"app": "web", "tier": "b"})
    True
    >>> labels("app!=web").matches({}), labels("app").matches({})
    (True, False)
    """
    found, at = [], 0
    while at < len(text):
        if match := _SET.match(text, at):
            values = frozenset(value.strip() for value in match[3].split(","))
            found.append(Requirement(match[1], "In" if match[2] == "in" else "NotIn", values))
        elif match := _LABEL.match(text, at):
            found.append(_plain_label(match))
        else:
            raise bad_request(f'unable to parse requirement: found "{text[at:]}"')
        at = match.end()
    return Selector(frozenset(found))


def _plain_label(match: re.Match[str]) -> Requirement:
    absent, key, operator, value = match.groups()
    if operator is None:
        return Requirement(key, "DoesNotExist" if absent else "Exists")
    return Requirement(key, "NotIn" if operator == "!=" else "In", frozenset({value}))


def fields(kind: ApiKind, text: str) -> Test:
    r"""
    >>> from carico.embedded.apiserver.kinds import PODS
    >>> live = fields(PODS, "status.phase!=Failed,spec.nodeName=n")
    >>> live({"spec": {"nodeName": "n"}, "status": {"phase": "Running"}})
    True
    """
    wanted, at = [], 0
    while at < len(text):
        match = _FIELD.match(text, at)
        if match is None:
            raise bad_request(f'invalid selector: "{text}"; can\'t understand "{text[at:]}"')
        wanted.append(_field(kind, match))
        at = match.end()
    return lambda plain: all((value(plain, path) == text) is equal for path, equal, text in wanted)


def _field(kind: ApiKind, match: re.Match[str]) -> tuple[str, bool, str]:
    path, operator, text = match.groups()
    namespaced = ("metadata.name", "metadata.namespace") if kind.namespaced else ("metadata.name",)
    if path not in namespaced and path not in FIELDS.get(kind.resource, ()):
        raise bad_request(f"field label not supported: {path}")
    if kind.view is not None:  # objects are tested in the form in which they are stored
        path = path.replace("regarding.", "involvedObject.").replace("reportingController", "reportingComponent")
    return path, operator != "!=", re.sub(r"\\(.)", r"\1", text)


def value(plain: Plain, path: str) -> str:
    """
    >>> value({"spec": {}}, "spec.unschedulable"), value({"status": {"phase": "Running"}}, "status.phase")
    ('false', 'Running')
    """
    found: Any = plain
    for part in path.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    if isinstance(found, bool):
        return "true" if found else "false"
    if found is None:
        return "false" if path in _FALSE else ""
    return str(found)
