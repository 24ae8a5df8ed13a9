"""Strategic merge patch: a merge patch that merges certain lists by a key of their members.

    {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}     changes one condition, leaves the others

Directives in a patch: `$patch: delete | replace | merge`, `$retainKeys`, `$deleteFromPrimitiveList/FIELD`,
`$setElementOrder/FIELD`. Lists that are not in the tables below are replaced, as in Kubernetes.
"""

from __future__ import annotations

from typing import Any

from carico.embedded.apiserver.status_error import bad_request

# Field to its merge key, for the kinds in kinds.py. Several keys are tried in order: container ports are identified by
# containerPort, those of a Service by port.
KEYS: dict[str, tuple[str, ...]] = {
    "addresses": ("type",),
    "conditions": ("type",),
    "containers": ("name",),
    "env": ("name",),
    "ephemeralContainers": ("name",),
    "hostAliases": ("ip",),
    "imagePullSecrets": ("name",),
    "initContainers": ("name",),
    "ownerReferences": ("uid",),
    "podIPs": ("ip",),
    "ports": ("containerPort", "port"),
    "resourceClaims": ("name",),
    "schedulingGates": ("name",),
    "secrets": ("name",),
    "topologySpreadConstraints": ("topologyKey",),
    "volumeDevices": ("devicePath",),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
}
SETS = frozenset({"finalizers"})  # lists of plain values to which a patch adds

_DELETE, _ORDER, _RETAIN, _PATCH = "$deleteFromPrimitiveList/", "$setElementOrder/", "$retainKeys", "$patch"


def merged(target: Any, patch: Any) -> Any:
    """
    >>> merged({"conditions": [{"type": "A", "status": "True"}]}, {"conditions": [{"type": "B"}]})
    {'conditions': [{'type': 'B'}, {'type': 'A', 'status': 'True'}]}
    >>> merged({"env": [{"name": "a"}, {"name": "b"}]}, {"env": [{"name": "a", "$patch": "delete"}]})
    {'env': [{'name': 'b'}]}
    """
    if not isinstance(patch, dict):
        return patch
    directive = patch.get(_PATCH)
    if directive == "delete":
        return {}
    result: dict[str, Any] = {} if directive == "replace" or not isinstance(target, dict) else dict(target)
    if isinstance(keep := patch.get(_RETAIN), list):
        result = {key: value for key, value in result.items() if key in keep}
    for key, value in patch.items():
        if not key.startswith("$"):
            _set(result, key, value)
    for key, value in patch.items():
        if key.startswith(_DELETE) and isinstance(value, list):
            name = key.removeprefix(_DELETE)
            result[name] = [member for member in _list(result.get(name)) if member not in value]
        elif key.startswith(_ORDER) and isinstance(value, list):
            _order(result, key.removeprefix(_ORDER), value)
    return result


def _set(result: dict[str, Any], key: str, value: Any) -> None:
    if value is None:
        result.pop(key, None)
    elif isinstance(value, list):
        result[key] = _merged_list(key, _list(result.get(key)), value)
    else:
        result[key] = merged(result.get(key), value)


def _merged_list(field: str, target: list[Any], patch: list[Any]) -> list[Any]:
    if field in SETS:
        return target + [member for member in patch if member not in target]
    name = _name(field, [*patch, *target])
    if name is None:
        return [merged({}, member) for member in patch]
    if any(member.get(_PATCH) == "replace" and len(member) == 1 for member in patch):
        target, patch = [], [member for member in patch if member.get(_PATCH) != "replace"]
    result = list(target)
    for member in patch:
        if name not in member:
            raise bad_request(f"map: {member} does not contain declared merge key: {name}")
        at = next((i for i, old in enumerate(result) if old.get(name) == member[name]), None)
        if member.get(_PATCH) == "delete":
            result = [old for old in result if old.get(name) != member[name]]
        elif at is None:
            result.append(merged({}, member))
        else:
            result[at] = merged(result[at], member)
    return _in_order(result, [_identity(member, name) for member in patch], name, target)


def _name(field: str, members: list[Any]) -> str | None:
    """The merge key of this list's members; None for a list that is replaced as a whole."""
    names = KEYS.get(field, ())
    if not all(isinstance(member, dict) for member in members):
        return None
    return next((name for name in names if any(name in member for member in members)), names[0] if names else None)


def _order(result: dict[str, Any], field: str, order: list[Any]) -> None:
    """Sort the members that the patch names into its order; the others keep their positions around them."""
    members = result.get(field)
    if not isinstance(members, list) or not members:
        return
    name = _name(field, [*members, *order])
    if name is not None or not isinstance(members[0], dict):
        result[field] = _in_order(members, [_identity(entry, name) for entry in order], name, members)


def _identity(member: Any, name: str | None) -> str:
    """The value that identifies a member."""
    return repr(member.get(name) if isinstance(member, dict) and name is not None else member)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _in_order(members: list[Any], wanted: list[Any], name: str | None, before: list[Any]) -> list[Any]:
    """Merge two lists: the named members in the order `wanted`, the others in their previous order.

    Where the two meet, the member with the earlier previous position goes first; a new member goes before the others.
    """
    stood = {_identity(member, name): i for i, member in enumerate(before)}
    named = [m for one in dict.fromkeys(wanted) for m in members if _identity(m, name) == one]
    others = [m for m in members if _identity(m, name) not in wanted]
    result: list[Any] = []
    while named and others:
        first = stood.get(_identity(named[0], name), -1) < stood.get(_identity(others[0], name), -1)
        result.append((named if first else others).pop(0))
    return result + named + others
