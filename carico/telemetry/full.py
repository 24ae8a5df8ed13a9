"""How much memory pods may fill.

The kubelet evicts pods when less than its threshold is available, and on most clusters keeps a part of the machine for
itself and the system besides. What it leaves to pods is best known to the API server; else the memory limit of the
group that holds all pods tells; else the threshold that a kubelet has by default is kept free.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from carico.errors import SourceError
from carico.telemetry.limits import memory_limit
from carico.telemetry.pod_cgroup import find_trees
from carico.types import NodeSize

EVICTION = 100 * 2**20  # bytes available below which a kubelet evicts, unless told otherwise
MARGIN = 0.01  # share of the machine above that: usage is seen a second late
LEAST = 0.5  # share of a tiny machine that is left to pods


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
    """The first that is known; a `ratio` that somebody set is an upper bound of each.

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
    """Bytes that all pods together may use, by the groups above one of them; None without a limit.

    `pods` are cgroups of pods below the mount of a tree, or where one would lie. Only groups that hold pods of all
    classes count: the limit of a class (burstable, besteffort) is not the node's.
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
