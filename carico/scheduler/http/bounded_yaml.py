"""A YAML loader that limits the expansion of aliases.

Nine lines, each of which repeats the line before nine times, expand to a billion values.
"""

from __future__ import annotations

from typing import Any

import yaml

MOST = 100_000  # values after expansion of aliases; a pod has some hundred


def load(text: str) -> Any:
    """As yaml.safe_load; YAMLError also where aliases expand to more than MOST values, or recursively."""
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _size(node, {})
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _size(node: yaml.Node, sizes: dict[int, int]) -> int:
    """Values in `node`; `sizes` has the nodes already counted, and 0 for those in progress."""
    if id(node) in sizes:
        if not sizes[id(node)]:
            raise yaml.YAMLError("an alias repeats what it stands in")
        return sizes[id(node)]
    sizes[id(node)] = 0
    total = 1
    for part in _parts(node):
        total += _size(part, sizes)
        if total > MOST:
            raise yaml.YAMLError(f"its aliases make more than {MOST:,} values of it")
    sizes[id(node)] = total
    return total


def _parts(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []
