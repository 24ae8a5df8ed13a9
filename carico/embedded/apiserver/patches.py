"""JSON patch (RFC 6902) and JSON merge patch (RFC 7386). The inputs are not modified."""

from __future__ import annotations

import copy
from typing import Any

from carico.embedded.apiserver.status_error import StatusError, bad_request

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"


def merged(target: Any, patch: Any) -> Any:
    """
    >>> merged({"a": 1, "b": {"c": 2, "d": 3}}, {"a": None, "b": {"c": 4}})
    {'b': {'c': 4, 'd': 3}}
    """
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def stepwise(target: Any, steps: Any) -> Any:
    """
    >>> stepwise({"a": [1, 2]}, [{"op": "add", "path": "/a/-", "value": 3}, {"op": "remove", "path": "/a/0"}])
    {'a': [2, 3]}
    """
    if not isinstance(steps, list):
        raise bad_request("a JSON patch is a list of operations")
    result = copy.deepcopy(target)
    for step in steps:
        try:
            result = _step(result, step)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            message = "the server rejected our request due to an error in our request"
            raise StatusError(422, "Invalid", message) from error
    return result


def _step(target: Any, step: dict[str, Any]) -> Any:
    operation, path = step["op"], _pointer(step["path"])
    if operation == "test":
        if _at(target, path) != step.get("value"):
            raise ValueError("the value is another")
        return target
    if operation in ("move", "copy"):
        source = _pointer(step["from"])
        value = copy.deepcopy(_at(target, source))
        target = _removed(target, source) if operation == "move" else target
        return _added(target, path, value)
    if operation == "remove":
        return _removed(target, path)
    if operation == "replace":
        _at(target, path)
        return _added(_removed(target, path) if path else target, path, step["value"])
    if operation == "add":
        return _added(target, path, step["value"])
    raise ValueError(f"{operation!r} is not an operation")


def _pointer(text: str) -> list[str]:
    if text and not text.startswith("/"):
        raise ValueError(f"{text!r} does not start with /")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _at(target: Any, path: list[str]) -> Any:
    for part in path:
        target = target[int(part)] if isinstance(target, list) else target[part]
    return target


def _added(target: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    place = _at(target, path[:-1])
    if isinstance(place, list):
        at = len(place) if path[-1] == "-" else int(path[-1])
        if at > len(place):
            raise IndexError("behind the end of the list")
        place.insert(at, value)
    else:
        place[path[-1]] = value
    return target


def _removed(target: Any, path: list[str]) -> Any:
    place = _at(target, path[:-1])
    del place[int(path[-1]) if isinstance(place, list) else path[-1]]
    return target
