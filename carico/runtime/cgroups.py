"""Pods from the cgroups that the kubelet creates for them: needs no socket and no root, but has no classes.

    kubepods/burstable/pod<uid>/<container>                                                      (driver cgroupfs)
    kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid>.slice/<container>.scope  (driver systemd)

A pod whose cgroup contains a container's is counted, as workload: DaemonSet and static pods cannot be identified here.
The scheduler identifies them when it sends the pods' classes (`PodTable.set_classes`).
The trees of cgroup v1 and v2 have the same layout; in v1 one hierarchy is read. Between two full scans only the number
of sub-folders is compared, from the directory's link count: one `stat` per pod instead of reading its thirty files.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path

from carico.clock import Clock
from carico.errors import SourceError, SourceMissing
from carico.runtime.pods import Member, PodListing, PodTable, Sandbox

log = logging.getLogger(__name__)

LOOK_EVERY = 1.0  # s
FULL_LOOK_EVERY = 15.0  # s; detects a pod that replaced another one between two scans
TOPS = ("kubepods", "kubepods.slice", "kubelet/kubepods", "kubelet.slice/kubelet-kubepods.slice")
# cgroup v1 mounts one hierarchy per controller; the kubelet creates its cgroups in all of these.
HIERARCHIES = ("", "memory", "cpu", "pids", "unified", "systemd")
UNKNOWN = -1  # links of a folder that changed during the scan, or on a file system that does not count them
POD = re.compile(r"(?:^|-)pod([0-9a-f][0-9a-f_-]*)(?:\.slice)?$")
QOS = re.compile(r"(?:^|-)(?:burstable|besteffort)(?:\.slice)?$")


def kubepods(cgroup_root: Path) -> Path:
    """The kubelet's top cgroup; raises SourceMissing where there is none."""
    return _kubepods(cgroup_root)[1]


def has_pods(cgroup_root: Path) -> bool:
    """Whether processes run in the kubelet's cgroups."""
    try:
        return any(
            _has_process(entry.path) for pod, _ in _pods(str(kubepods(cgroup_root)), {}) for entry in _folders(pod, {})
        )
    except (SourceError, OSError):
        return False


def _has_process(folder: str) -> bool:
    try:
        with open(f"{folder}/cgroup.procs", "rb") as file:
            return bool(file.read(1))
    except OSError:
        return False


def _kubepods(cgroup_root: Path) -> tuple[str, Path]:
    """The mount of a hierarchy, and the kubelet's top cgroup in it."""
    for hierarchy in HIERARCHIES:
        for top in TOPS:
            if (folder := cgroup_root / hierarchy / top).is_dir():
                return str(cgroup_root / hierarchy), folder
    raise SourceMissing(f"there is no kubepods cgroup below {cgroup_root}")


def pod_uid(name: str) -> str | None:
    """
    >>> pod_uid("pod1d2c-77"), pod_uid("kubepods-burstable-pod1d2c_77.slice"), pod_uid("burstable")
    ('1d2c-77', '1d2c-77', None)
    """
    match = POD.search(name)
    return match.group(1).replace("_", "-") if match else None


class CgroupSource:
    """Polls the tree while `run` runs."""

    name = "cgroup"
    socket: Path | None = None

    def __init__(self, cgroup_root: Path, table: PodTable, clock: Clock) -> None:
        self.table = table
        self.problem: str | None = "not looked yet"
        self._root = cgroup_root
        self._clock = clock
        self._links: dict[str, int] = {}  # folder → link count at the last full scan
        self._full_look_due = 0.0
        self._since: dict[str, float] = {}  # container's cgroup → s, monotonic, when it was first seen

    async def run(self) -> None:
        while True:
            try:
                self.look()
            except SourceError as error:
                self._log_problem(str(error))
            except OSError as error:
                self._log_problem(f"cannot read {error.filename}: {error.strerror}")
            await self._clock.sleep(LOOK_EVERY)

    def look(self) -> None:
        """One scan of the tree; a full one if link counts changed or it is due."""
        now = self._clock.monotonic()
        if now < self._full_look_due and self._links and not self._changed():
            return
        self._full_look_due = now + FULL_LOOK_EVERY
        self._read(*_kubepods(self._root), now)
        if self.problem is not None:
            log.info("pods are counted by the cgroups below %s", self._root)
        self.problem = None

    def _changed(self) -> bool:
        try:
            return any(os.stat(folder).st_nlink != links for folder, links in self._links.items())
        except FileNotFoundError:
            return True

    def _read(self, mount: str, top: Path, now: float) -> None:
        links: dict[str, int] = {}
        pods: dict[str, Sandbox] = {}
        containers: dict[str, Member] = {}
        for folder, uid in _pods(str(top), links):
            members = [entry.path for entry in _folders(folder, links)]
            pods[folder] = Sandbox(uid, workload=True, cgroup=f"/{folder.removeprefix(mount).lstrip('/')}")
            containers |= dict.fromkeys(members, Member(folder))
        self._since = {container: self._since.get(container, now) for container in containers}
        first: dict[str, float] = {}
        for container, (folder, _) in containers.items():
            first[folder] = min(first.get(folder, now), self._since[container])
        self.table.replace_all(PodListing(pods, containers, first | self._since), now)
        self._links = links

    def _log_problem(self, problem: str) -> None:
        self._links = {}
        if problem != self.problem:
            log.warning("pods cannot be counted by cgroups: %s; trying again", problem)
        self.problem = problem


def _pods(top: str, links: dict[str, int]) -> Iterator[tuple[str, str]]:
    """Folder and UID of each pod. Guaranteed pods are at the top, the others in the folder of their QoS class."""
    for entry in _folders(top, links):
        if (uid := pod_uid(entry.name)) is not None:
            yield entry.path, uid
        elif QOS.search(entry.name):
            yield from _pods(entry.path, links)


def _folders(folder: str, links: dict[str, int]) -> list[os.DirEntry[str]]:
    """The sub-folders. The link count is read before them, so that a later change is detected."""
    try:
        count = os.stat(folder).st_nlink
        with os.scandir(folder) as entries:
            found = [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:  # it was removed during the scan
        return []
    links[folder] = count if count == 2 + len(found) else UNKNOWN
    return found
