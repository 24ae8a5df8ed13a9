"""Where a pod's cgroup lies, below the mount of each hierarchy.

The kubelet tells the runtime the pod's cgroup: a path, or with the systemd driver the name of a slice. That path is
right as seen from the kubelet. A node in a container (kind, k3d) may be seen from outside, and an agent may see a
branch of the tree only: then the cgroup of the sandbox's process says it, or an end of the path does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

SLICE = ".slice"
# Version 1 mounts a tree per controller below the root. One is enough: a pod has the same path in all.
HIERARCHIES = ("", "memory", "cpu", "cpu,cpuacct", "cpuacct", "unified", "systemd")
CONTROLLERS = (b"", b"memory", b"cpu", b"cpu,cpuacct", b"name=systemd")  # in /proc/PID/cgroup; empty: version 2


class PodCgroups:
    """Finds a pod's cgroup once, when its sandbox is described or has started."""

    def __init__(self, cgroup_root: Path = Path("/sys/fs/cgroup"), proc_root: Path = Path("/proc")) -> None:
        self._root = str(cgroup_root)
        self._proc = str(proc_root)

    def find(self, uid: str, parent: str, pid: int = 0) -> str | None:
        """The path below the hierarchies' mounts; None where it cannot be seen, or where no cgroup is the pod's alone.

        `parent` is the sandbox's cgroup parent and `pid` its process; empty and 0 where they are not known.
        """
        for path in (slice_path(parent), *(self._of_process(pid) if pid else ())):
            if is_of_pod(path, uid) and (seen := self._seen(path)):
                return seen
        return None

    def _of_process(self, pid: int) -> Iterator[str]:
        """The folders above those in which a process is."""
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
        """The longest end of a path that is there."""
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
    """Whether the last folder of a path is named after the pod. Others are shared, and their use is not the pod's.

    >>> is_of_pod("/kubepods/pod1-2", "1-2"), is_of_pod("/a.slice/a-pod1_2.slice", "1-2"), is_of_pod("/k8s.io", "1-2")
    (True, True, False)
    """
    last = path.rstrip("/").rpartition("/")[2]
    return bool(uid) and ".." not in path.split("/") and f"pod{uid}".replace("-", "_") in last.replace("-", "_")
