"""Finds the cgroup of a pod, as a path below the mount of each hierarchy.

The kubelet passes the pod's cgroup to the runtime: a path, or with the systemd driver the name of a slice. That path is
valid in the kubelet's namespace. A node in a container (kind, k3d) may be observed from outside, and only a part of the
tree may be visible to an agent: then the cgroup of the sandbox's process is used, or a suffix of the path.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

SLICE = ".slice"
# cgroup v1 mounts a hierarchy per controller below the root. One is enough: a pod has the same path in all.
HIERARCHIES = ("", "memory", "cpu", "cpu,cpuacct", "cpuacct", "unified", "systemd")
CONTROLLERS = (b"", b"memory", b"cpu", b"cpu,cpuacct", b"name=systemd")  # in /proc/PID/cgroup; empty: cgroup v2


class PodCgroups:
    """Finds a pod's cgroup once, when its sandbox is described or has started."""

    def __init__(self, cgroup_root: Path = Path("/sys/fs/cgroup"), proc_root: Path = Path("/proc")) -> None:
        self._root = str(cgroup_root)
        self._proc = str(proc_root)

    def find(self, uid: str, parent: str, pid: int = 0) -> str | None:
        """The path below the hierarchies' mounts; None if it is not visible, or the pod has no cgroup for itself.

        `parent` is the sandbox's cgroup parent and `pid` its process; empty and 0 where they are not known.
        """
        for path in (slice_path(parent), *(self._of_process(pid) if pid else ())):
            if is_of_pod(path, uid) and (seen := self._seen(path)):
                return seen
        return None

    def _of_process(self, pid: int) -> Iterator[str]:
        """The parents of the cgroups of a process."""
        try:
            with open(f"{self._proc}/{pid}/cgroup", "rb") as file:
                text = file.read()
        except OSError:
            return
        found = dict(line.split(b":", 2)[1:] for line in text.splitlines() if line.count(b":") >= 2)
        for controller in CONTROLLERS:
            if controller in found:
                yield os.path.dirname(os.fsdecode(found[controller]))

    def _seen(self, path: str) -> str | None:
        """The longest suffix of a path that exists."""
        parts = path.strip("/").split("/")
        for start in range(len(parts)):
            below = "/" + "/".join(parts[start:])
            if any(os.path.isdir(f"{self._root}/{hierarchy}{below}") for hierarchy in HIERARCHIES):
                return below
        return None


def slice_path(parent: str) -> str:
    """A cgroup parent as a path.

    >>> slice_path("/kubepods/burstable/pod1"), slice_path("kubepods-burstable-pod1_2.slice")
    ('/kubepods/burstable/pod1', '/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice')
    """
    if "/" in parent or not parent.endswith(SLICE):
        return parent
    names = parent.removesuffix(SLICE).split("-")
    return "".join(f"/{'-'.join(names[: i + 1])}{SLICE}" for i in range(len(names)))


def is_of_pod(path: str, uid: str) -> bool:
    """Whether the last folder of a path is named after the pod. Other folders are shared with other pods.

    >>> is_of_pod("/kubepods/pod1-2", "1-2"), is_of_pod("/a.slice/a-pod1_2.slice", "1-2"), is_of_pod("/k8s.io", "1-2")
    (True, True, False)
    """
    last = path.rstrip("/").rpartition("/")[2]
    return bool(uid) and ".." not in path.split("/") and f"pod{uid}".replace("-", "_") in last.replace("-", "_")
