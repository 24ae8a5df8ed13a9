"""Where this process stands in the cgroup trees.

    /proc/self/cgroup     4:memory:/docker/abc          v1: one line per tree
                          0::/user.slice/…              v2: the one tree
    /proc/self/mountinfo  35 31 0:32 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory

In a container the mount often shows a part of the tree only (its root is the container's own group): the folder of a
group is its path less that root, below the mount point. Limits of all groups above count as well.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import NamedTuple

from carico.errors import SourceError, SourceMissing
from carico.telemetry.procfs import read_once

USUAL_ROOT = PurePosixPath("/sys/fs/cgroup")


class Mount(NamedTuple):
    root: PurePosixPath  # the group that is shown at the mount point
    point: PurePosixPath
    version: int  # 1 or 2
    controllers: frozenset[str]  # v1 only


class Place(NamedTuple):
    """A process's own group in one tree, then the groups above it as far as they can be seen."""

    version: int
    folders: tuple[Path, ...]


def parse_memberships(text: bytes) -> dict[str, PurePosixPath]:
    """The group per controller; the v2 tree has the empty name.

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
    """The mounts of cgroup trees, others left out."""
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


def find_place(proc: Path, cgroup_root: Path, controller: str) -> Place:
    """This process's place in the tree that has `controller`; v1 first, because on mixed machines v2 has none."""
    memberships = parse_memberships(read_once(proc / "self" / "cgroup"))
    mounts = parse_mounts(read_once(proc / "self" / "mountinfo"))
    for mount in mounts:
        if controller in mount.controllers and controller in memberships:
            return _place(mount, memberships[controller], cgroup_root)
    for mount in mounts:
        if mount.version == 2 and "" in memberships:
            return _place(mount, memberships[""], cgroup_root)
    raise SourceMissing(f"no cgroup tree with {controller} is mounted")


def _place(mount: Mount, group: PurePosixPath, cgroup_root: Path) -> Place:
    top = cgroup_root / mount.point.relative_to(USUAL_ROOT) if mount.point.is_relative_to(USUAL_ROOT) else mount.point
    below = group.relative_to(mount.root) if group.is_relative_to(mount.root) else PurePosixPath()
    if ".." in below.parts:
        below = PurePosixPath()  # the group lies outside what this namespace may see
    own = Path(top) / below
    above = [Path(top) / parent for parent in below.parents]
    return Place(mount.version, tuple(dict.fromkeys([own, *above])))
