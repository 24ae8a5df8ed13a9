"""YAML in which aliases cannot make much of little.

Nine lines, each of which repeats the line before nine times, are a billion values once they are written out.
"""

from __future__ import annotations

from typing import Any

import yaml

MOST = 100_000  # values, counted as often as aliases repeat them; a pod has some hundred


def load(text: str) -> Any:
    """As yaml.safe_load; YAMLError also for what would grow too large, or holds itself."""
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
    """Values in `node`; `sizes` has what was counted already, and 0 for what is being counted."""
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
