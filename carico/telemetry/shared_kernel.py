"""Detects whether this node is one of several on one kernel (kind, k3d, minikube in a container, LXC).

/proc shows the whole machine, also in a container. Nodes that are containers include each other's pods in their
baseline, and each reports the machine's room as its own. Two indications are cheap and reliable:

    process 2 is not kthreadd   /proc belongs to the PID namespace of a container
    several kubepods cgroups    kubelets with separate cgroup roots share the machine

An agent that is a pod has a PID namespace of its own on every node. There the host's cgroup tree decides: in a node
that is a container, its root is not the kernel's.
"""

from __future__ import annotations

import os
from pathlib import Path

from carico.errors import SourceError
from carico.telemetry.procfs import read_once

KERNEL_THREADS = b"kthreadd"
KERNELS_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO of the kernel
HIERARCHIES = ("memory", "cpu", "")  # the first that exists is enough: a kubelet creates its cgroup in all
DEPTH = 2  # levels of cgroups below the root in which a kubelet's cgroup is searched


def why_shared(proc: Path, cgroup_root: Path) -> str | None:
    """Why other nodes may share this kernel; None without an indication."""
    try:
        second = read_once(proc / "2" / "comm").strip()
    except SourceError:
        second = b""
    if second != KERNEL_THREADS and not (_is_in_a_pod(proc) and _is_kernels_root(cgroup_root)):
        return f"this node is a container: process 2 of {proc} is {second.decode('utf-8', 'replace') or 'missing'}"
    trees = kubepods_trees(cgroup_root)
    return f"several kubelets have pods here: {', '.join(trees)}" if len(trees) > 1 else None


def _is_in_a_pod(proc: Path) -> bool:
    """Whether this process has its own PID namespace, and `proc` shows it."""
    try:
        return os.readlink(proc / "self" / "ns" / "pid") != KERNELS_PID_NAMESPACE
    except OSError:
        return False


def _is_kernels_root(cgroup_root: Path) -> bool:
    """Whether the tree's root is the kernel's: only there is no `cgroup.events` (v2), or a `release_agent` (v1)."""
    top = next((cgroup_root / tree for tree in HIERARCHIES if (cgroup_root / tree).is_dir()), cgroup_root)
    if (top / "cgroup.controllers").exists():
        return not (top / "cgroup.events").exists()
    return (top / "release_agent").exists()


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
