"""Discovery: the server's version, its API groups and resources, and as much OpenAPI as kubectl needs."""

from __future__ import annotations

import platform
from typing import Any

from carico import __version__
from carico.embedded.apiserver.history import Plain
from carico.embedded.apiserver.kinds import KINDS, ApiKind

KUBERNETES = "v1.36.3"  # the API server whose behaviour this one copies
VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
_AGGREGATED = "apidiscovery.k8s.io"


def version() -> Plain:
    major, minor, _ = KUBERNETES.removeprefix("v").split(".")
    return {
        "major": major,
        "minor": minor,
        "gitVersion": f"{KUBERNETES}+carico-{__version__}",
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": f"python{platform.python_version()}",
        "compiler": platform.python_implementation(),
        "platform": f"{platform.system()}/{platform.machine()}".lower(),
    }


def page(path: str, accept: str) -> tuple[str, Any] | None:
    """Content type and content of a discovery page; None for any other path."""
    aggregated = _AGGREGATED in accept.partition(",")[0] and "v=v2;" in accept.partition(",")[0] + ";"
    if aggregated and path in ("/api", "/apis"):
        return f"application/json;g={_AGGREGATED};v=v2;as=APIGroupDiscoveryList", _all_at_once(core=path == "/api")
    found = _pages().get(path)
    return None if found is None else ("application/json", found)


def _pages() -> dict[str, Any]:
    groups = sorted({(kind.group, kind.version) for kind in KINDS if kind.group})
    pages: dict[str, Any] = {
        "/version": version(),
        "/api": {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(*pair) for pair in groups]},
        "/openapi/v3": {"paths": {root.strip("/"): {"serverRelativeURL": f"/openapi/v3{root}"} for root in _roots()}},
    }
    for name, number in groups:
        pages[f"/apis/{name}"] = {"kind": "APIGroup", "apiVersion": "v1"} | _group(name, number)
    for root in _roots():
        pages[root] = _resource_list(root)
        pages[f"/openapi/v3{root}"] = _schema(root)
    return pages


def _roots() -> list[str]:
    return sorted({kind.root for kind in KINDS})


def _group(name: str, number: str) -> Plain:
    only = {"groupVersion": f"{name}/{number}", "version": number}
    return {"name": name, "versions": [only], "preferredVersion": only}


def _of(root: str) -> list[ApiKind]:
    return [kind for kind in KINDS if kind.root == root]


def _subs(kind: ApiKind) -> tuple[str, ...]:
    return (("status",) if kind.status else ()) + kind.more


def _sub_kind(kind: ApiKind, sub: str) -> str:
    return {"binding": "Binding", "eviction": "Eviction"}.get(sub, kind.kind)


def _sub_group(sub: str) -> tuple[str, str]:
    """Group and version of the objects that a subresource takes, where they are not those of its resource."""
    return ("policy", "v1") if sub == "eviction" else ("", "")


def _sub_verbs(sub: str) -> list[str]:
    return {"binding": ["create"], "eviction": ["create"], "log": ["get"]}.get(sub, ["get", "patch", "update"])


def _verbs(kind: ApiKind) -> list[str]:
    return ["create"] if kind.hidden else list(VERBS)


def _resource_list(root: str) -> Plain:
    entries: list[Plain] = []
    for kind in _of(root):
        entry: Plain = {"name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced}
        entry |= {"kind": kind.kind, "verbs": _verbs(kind)}
        if kind.short:
            entry["shortNames"] = list(kind.short)
        if kind.categories:
            entry["categories"] = list(kind.categories)
        entries.append(entry)
        for sub in _subs(kind):
            name: Plain = {"name": f"{kind.plural}/{sub}", "singularName": "", "namespaced": kind.namespaced}
            if all(_sub_group(sub)):
                name |= dict(zip(("group", "version"), _sub_group(sub), strict=True))
            entries.append(name | {"kind": _sub_kind(kind, sub), "verbs": _sub_verbs(sub)})
    number = _of(root)[0].api_version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": number, "resources": entries}


def _all_at_once(core: bool) -> Plain:
    """Aggregated discovery: everything in one response."""
    groups: list[Plain] = []
    for root in _roots():
        first = _of(root)[0]
        if (first.group == "") is core:
            versions = [{"version": first.version, "freshness": "Current", "resources": [*map(_entry, _of(root))]}]
            groups.append({"metadata": {"name": first.group} if first.group else {}, "versions": versions})
    return {"kind": "APIGroupDiscoveryList", "apiVersion": f"{_AGGREGATED}/v2", "metadata": {}, "items": groups}


def _entry(kind: ApiKind) -> Plain:
    subs = [
        {
            "subresource": sub,
            "responseKind": dict(zip(("group", "version"), _sub_group(sub), strict=True))
            | {"kind": _sub_kind(kind, sub)},
            "verbs": _sub_verbs(sub),
        }
        for sub in _subs(kind)
    ]
    return {
        "resource": kind.plural,
        "responseKind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": _verbs(kind),
        "shortNames": list(kind.short),
        "categories": list(kind.categories),
        "subresources": subs,
    }


def _schema(root: str) -> Plain:
    """Only what kubectl checks before `apply`: that the server accepts `fieldValidation`. Fields are not described."""
    paths = {}
    for kind in _of(root):
        place = "/namespaces/{namespace}" if kind.namespaced else ""
        known = {"group": kind.group, "version": kind.version, "kind": kind.kind}
        parameter = {"name": "fieldValidation", "in": "query", "schema": {"type": "string", "uniqueItems": True}}
        patch = {"parameters": [parameter], "responses": {}, "x-kubernetes-group-version-kind": known}
        paths[f"{root}{place}/{kind.plural}/{{name}}"] = {"patch": patch}
    about = {"title": "Carico's embedded API server", "version": KUBERNETES}
    return {"openapi": "3.0.0", "info": about, "paths": paths, "components": {"schemas": {}}}
