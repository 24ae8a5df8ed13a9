"""From a request's path to kind, namespace, name and subresource.

/api/v1/namespaces/NS/pods/NAME/status   /apis/GROUP/VERSION/PLURAL   …
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import unquote

from carico.embedded.apiserver.kinds import KINDS, ApiKind

_BY_ROOT: dict[str, dict[str, ApiKind]] = {}
for _kind in KINDS:
    _BY_ROOT.setdefault(_kind.root, {})[_kind.plural] = _kind


class Target(NamedTuple):
    kind: ApiKind
    namespace: str = ""  # "": all namespaces, or a cluster-scoped kind
    name: str = ""
    sub: str = ""


def find(path: str) -> Target | None:
    """
    >>> find("/api/v1/namespaces/a/pods/b/status")[1:]
    ('a', 'b', 'status')
    >>> find("/api/v1/namespaces/a")[1:], find("/apis/apps/v1/replicasets")[1:], find("/api/v1/nothing")
    (('', 'a', ''), ('', '', ''), None)
    """
    parts = [unquote(part) for part in path.strip("/").split("/")]
    depth = 2 if parts[0] == "api" else 3
    kinds = _BY_ROOT.get("/" + "/".join(parts[:depth]))
    rest = parts[depth:]
    if kinds is None or not rest:
        return None
    if rest[0] == "namespaces" and len(rest) >= 3 and rest[2] != "status":
        return _target(kinds, rest[2:], rest[1])
    return _target(kinds, rest, "")


def _target(kinds: dict[str, ApiKind], rest: list[str], namespace: str) -> Target | None:
    kind = kinds.get(rest[0])
    if kind is None or len(rest) > 3 or (namespace and not kind.namespaced):
        return None
    name, sub = [*rest[1:], "", ""][:2]
    if name and kind.namespaced and not namespace:
        return None
    if sub and sub not in (("status",) if kind.status else ()) + kind.more:
        return None
    return Target(kind, namespace, name, sub)
