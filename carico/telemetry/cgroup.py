"""The cgroups of this process.

    /proc/self/cgroup     4:memory:/docker/abc          v1: one line per hierarchy
                          0::/user.slice/…              v2: the single hierarchy
    /proc/self/mountinfo  35 31 0:32 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory

In a container often only a part of the hierarchy is mounted (the mount's root is the container's cgroup): the folder of
a cgroup is its path without that root, below the mount point. Limits of all ancestors apply as well.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import NamedTuple

from carico.errors import SourceError, SourceMissing
from carico.telemetry.procfs import read_once

USUAL_ROOT = PurePosixPath("/sys/fs/cgroup")


class Mount(NamedTuple):
    root: PurePosixPath  # the cgroup at the mount point
    point: PurePosixPath
    version: int  # 1 or 2
    controllers: frozenset[str]  # v1 only


class CgroupPath(NamedTuple):
    """The cgroup of a process in one hierarchy, then its visible ancestors."""

    version: int
    folders: tuple[Path, ...]


def parse_memberships(text: bytes) -> dict[str, PurePosixPath]:
    """The cgroup per controller; the v2 hierarchy has the empty name.

    >>> parse_memberships(b"2:cpu,cpuacct:/a\\n0::/b\\n")["cpuacct"]
    PurePosixPath('/a')
    """
    found: dict[str, PurePosixPath] = {}
    for line in text.decode("utf-8", "replace").splitlines():
        parts = line.split(":", 2)
        if len(parts) != 3 or not parts[2].startswith("/"):
            raise SourceError(f"/proc/self/cgroup: {line[:80]!r} is not of the form id:controllers:/path")
        found |= {name: PurePosixPath(parts[2]) for name in parts[1].split(",")}
    return found


def parse_mounts(text: bytes) -> list[Mount]:
    """The mounts of cgroup hierarchies only."""
    mounts: list[Mount] = []
    for line in text.decode("utf-8", "replace").splitlines():
        left, _, right = line.partition(" - ")
        words, kind = left.split(" "), right.split(" ")
        if len(words) < 5 or len(kind) < 3 or kind[0] not in ("cgroup", "cgroup2"):
            continue
        root, point = (PurePosixPath(word.replace("\\040", " ")) for word in words[3:5])
        controllers = frozenset(kind[2].split(",")) if kind[0] == "cgroup" else frozenset[str]()
        mounts.append(Mount(root, point, 1 if kind[0] == "cgroup" else 2, controllers))
    return mounts


def find_place(proc: Path, cgroup_root: Path, controller: str) -> CgroupPath:
    """The cgroup of this process in the hierarchy of `controller`; v1 first: in hybrid mode v2 has no controllers."""
    memberships = parse_memberships(read_once(proc / "self" / "cgroup"))
    mounts = parse_mounts(read_once(proc / "self" / "mountinfo"))
    for mount in mounts:
        if controller in mount.controllers and controller in memberships:
            return _place(mount, memberships[controller], cgroup_root)
    for mount in mounts:
        if mount.version == 2 and "" in memberships:
            return _place(mount, memberships[""], cgroup_root)
    raise SourceMissing(f"no cgroup tree with {controller} is mounted")


def _place(mount: Mount, group: PurePosixPath, cgroup_root: Path) -> CgroupPath:
    top = cgroup_root / mount.point.relative_to(USUAL_ROOT) if mount.point.is_relative_to(USUAL_ROOT) else mount.point
    below = group.relative_to(mount.root) if group.is_relative_to(mount.root) else PurePosixPath()
    if ".." in below.parts:
        below = PurePosixPath()  # the cgroup is outside this cgroup namespace
    own = Path(top) / below
    above = [Path(top) / parent for parent in below.parents]
    return CgroupPath(mount.version, tuple(dict.fromkeys([own, *above])))
