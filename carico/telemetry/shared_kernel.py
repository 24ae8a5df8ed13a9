"""Detects whether this node is one of several on one kernel (kind, k3d, minikube in a container, LXC).

/proc shows the whole machine, also in a container. Nodes that are containers include each other's pods in their
baseline, and each reports the machine's room as its own. Two indications are cheap and reliable:

    process 2 is not kthreadd   /proc belongs to the PID namespace of a container
    several kubepods cgroups    kubelets with separate cgroup roots share the machine
"""

from __future__ import annotations

import os
from pathlib import Path

from carico.errors import SourceError
from carico.telemetry.procfs import read_once

KERNEL_THREADS = b"kthreadd"
HIERARCHIES = ("memory", "cpu", "")  # the first that exists is enough: a kubelet creates its cgroup in all
DEPTH = 2  # levels of cgroups below the root in which a kubelet's cgroup is searched


def why_shared(proc: Path, cgroup_root: Path) -> str | None:
    """Why other nodes may share this kernel; None without an indication."""
    try:
        second = read_once(proc / "2" / "comm").strip()
    except SourceError:
        second = b""
    if second != KERNEL_THREADS:
        return f"this node is a container: process 2 of {proc} is {second.decode('utf-8', 'replace') or 'missing'}"
    trees = kubepods_trees(cgroup_root)
    return f"several kubelets have pods here: {', '.join(trees)}" if len(trees) > 1 else None


def kubepods_trees(cgroup_root: Path) -> list[str]:
    """Cgroups of kubelets that have pods, as paths below the mount."""
    top = next((str(cgroup_root / tree) for tree in HIERARCHIES if (cgroup_root / tree).is_dir()), str(cgroup_root))
    return sorted(folder.removeprefix(top) for folder in _kubepods(top, DEPTH))


def _kubepods(folder: str, depth: int) -> list[str]:
    found: list[str] = []
    for name in _folders(folder):
        if name.removesuffix(".slice").endswith("kubepods"):
            found += [f"{folder}/{name}"] if _has_pods(f"{folder}/{name}", 2) else []
        elif depth > 0:
            found += _kubepods(f"{folder}/{name}", depth - 1)
    return found


def _has_pods(folder: str, depth: int) -> bool:
    names = _folders(folder)
    if any("pod" in name.removeprefix("kubepods") for name in names):
        return True
    return depth > 0 and any(_has_pods(f"{folder}/{name}", depth - 1) for name in names)


def _folders(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
