"""Objects that a kube-apiserver 1.36 sent, one of each kind that the scheduler watches, and functions to corrupt them.

The Node's second image was written with an empty list of names; the API server sends null for it.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path as File
from typing import Any

from carico.kube.meta import KubeObject
from carico.kube.objects import Node, Pod
from carico.scheduler.cache.object_store import KINDS

Path = tuple[str | int, ...]
_FOLDER = File(__file__).parents[2] / "kube" / "recorded"

_KINDS: list[type[KubeObject]] = [Pod, Node, *KINDS.values()]
RECORDED: dict[type[KubeObject], dict[str, Any]] = {
    kind: json.loads((_FOLDER / f"{kind.__name__}.json").read_text()) for kind in _KINDS
}


def paths(tree: Any, to: Path = ()) -> list[Path]:
    """The path of every value inside `tree`, except metadata, name and uid: without them it is not an object."""
    return [path for path in _paths(tree, to) if path not in (("metadata",), ("metadata", "name"), ("metadata", "uid"))]


def _paths(tree: Any, to: Path) -> Iterator[Path]:
    members = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for name, value in members:
        yield (*to, name)
        yield from _paths(value, (*to, name))


def at(tree: Any, path: Path) -> Any:
    for name in path:
        tree = tree[name]
    return tree


def without(tree: Any, path: Path) -> Any:
    """A copy without the value at the path."""
    changed = copy.deepcopy(tree)
    del at(changed, path[:-1])[path[-1]]
    return changed
