"""How much memory pods may use.

The kubelet evicts pods when less than its threshold is available, and on most clusters also reserves a part of the
machine for itself and the system. The best source of what is left for pods is the API server (allocatable), then the
memory limit of the cgroup of all pods; otherwise the kubelet's default threshold is kept free.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from carico.errors import SourceError
from carico.telemetry.limits import memory_limit
from carico.telemetry.pod_cgroup import find_trees
from carico.types import NodeSize

EVICTION = 100 * 2**20  # bytes available below which a kubelet evicts by default
MARGIN = 0.01  # share of the machine in addition: usage is measured up to a second late
LEAST = 0.5  # minimum share of a small machine that is left for pods


class FullMemory(NamedTuple):
    bytes: float
    source: str  # allocatable, kubepods, machine, own-limits or setting


def full_memory(
    size: NodeSize,
    *,
    allocatable: float | None = None,
    kubepods: float | None = None,
    ratio: float | None = None,
    own_limits: bool = False,
) -> FullMemory:
    """The first one that is known; `ratio`, if set, is an upper bound of each.

    >>> eight = NodeSize(cores=4, memory_bytes=8 * 2.0**30)
    >>> full_memory(eight, allocatable=7e9, kubepods=7.5e9), full_memory(eight, kubepods=7.5e9)
    (FullMemory(bytes=7000000000.0, source='allocatable'), FullMemory(bytes=7500000000.0, source='kubepods'))
    >>> round(full_memory(eight).bytes / eight.memory_bytes, 3), full_memory(eight, ratio=0.5).source
    (0.978, 'setting')
    """
    total = size.memory_bytes
    if own_limits:
        found = FullMemory((1.0 - MARGIN) * total, "own-limits")
    elif allocatable is not None and 0.0 < allocatable <= total:
        found = FullMemory(allocatable, "allocatable")
    elif kubepods is not None and 0.0 < kubepods < total:
        found = FullMemory(kubepods, "kubepods")
    else:
        found = FullMemory(max((1.0 - MARGIN) * total - EVICTION, LEAST * total), "machine")
    return found if ratio is None or found.bytes <= ratio * total else FullMemory(ratio * total, "setting")


def limit_above(cgroup_root: Path, pods: Iterable[str]) -> float | None:
    """Bytes that all pods together may use, from the ancestors of pod cgroups; None without a limit.

    `pods` are cgroups of pods below the mount of a hierarchy, existing or not. Only ancestors of pods of all QoS
    classes are read: the limit of one QoS class (burstable, besteffort) is not the node's.
    """
    folders = {folder for pod in pods for folder in PurePosixPath(pod).parents if _holds_all(folder)}
    limits = [_limit(cgroup_root, folder) for folder in folders]
    return min([limit for limit in limits if limit is not None], default=None)


def _holds_all(folder: PurePosixPath) -> bool:
    return folder.name != "" and not any(name in folder.name for name in ("burstable", "besteffort"))


def _limit(cgroup_root: Path, folder: PurePosixPath) -> float | None:
    try:
        trees = find_trees(cgroup_root)
        return memory_limit(trees.memory / str(folder).lstrip("/"), trees.version)
    except SourceError:
        return None
