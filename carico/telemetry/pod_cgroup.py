"""Use of one pod from its cgroup.

                    v2 (one hierarchy)          v1 (a hierarchy per controller)      hybrid
    cpu time        cpu.stat usage_usec         cpuacct.usage                        as v1
    waiting         cpu.pressure some total     not available                        cpu.pressure in unified/
    throttled       cpu.stat throttled_usec     cpu.stat throttled_time              as v1
    memory          memory.current              memory.usage_in_bytes                as v1
      reclaimable   memory.stat inactive_file   memory.stat total_inactive_file      as v1
    swap            memory.swap.current         memory.stat total_swap               as v1
    limits          cpu.max, memory.max         cpu.cfs_*_us, memory.limit_in_bytes  as v1

A cgroup has the same path in every hierarchy. Cpu time, pressure and memory of a cgroup include its descendants.
Throttled time does not, so containers with their own cpu limit are read in addition to the pod.
Files: https://docs.kernel.org/admin-guide/cgroup-v2.html, https://docs.kernel.org/admin-guide/cgroup-v1/memory.html.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from carico.errors import SourceError, SourceMissing
from carico.telemetry.limits import cpu_quota, memory_limit
from carico.telemetry.pressure import parse_total
from carico.telemetry.procfs import KernelFile
from carico.telemetry.source import counter
from carico.types import PodCounters

LOOK_EVERY = 60.0  # s between two reads of limits and containers, if the number of containers does not change
STAT_EVERY = 30.0  # s; memory.stat is expensive, and hardly changes while the memory in use is the same
SAME_MEMORY = 0.005  # change of the memory in use, as a ratio, below which it counts as the same,
SAME_BYTES = 256 * 1024  # or in bytes
NO_LIMIT = 2.0**62  # v1 shows "no limit" as a number near 2^63
MICROSECOND, NANOSECOND = 1e-6, 1e-9


class Trees(NamedTuple):
    """The mount of the hierarchy that has each kind of file; None: this machine has none."""

    version: int  # of the controllers
    cpu: Path
    cpuacct: Path
    memory: Path
    pressure: Path | None


def find_trees(cgroup_root: Path) -> Trees:
    """The hierarchies below `cgroup_root`; raises SourceMissing where there are none with cpu and memory."""
    if (cgroup_root / "cgroup.controllers").exists():
        return Trees(2, cgroup_root, cgroup_root, cgroup_root, cgroup_root)
    cpu, cpuacct, memory = (_mounted(cgroup_root, name) for name in ("cpu", "cpuacct", "memory"))
    if cpu is None or cpuacct is None or memory is None:
        raise SourceMissing(f"there are no cgroup trees with cpu and memory below {cgroup_root}")
    unified = cgroup_root / "unified"
    return Trees(1, cpu, cpuacct, memory, unified if (unified / "cgroup.controllers").exists() else None)


def _mounted(root: Path, controller: str) -> Path | None:
    """v1 mounts cpu and cpuacct together on most distributions, mostly with symlinks for the single names."""
    names = (controller, "cpu,cpuacct", "cpuacct,cpu") if controller.startswith("cpu") else (controller,)
    return next((root / name for name in names if (root / name / "cgroup.procs").exists()), None)


def value_in(text: bytes, name: bytes) -> int | None:
    """The number of a `name number` line; None where there is no such line. `name` with a line feed and a space.

    >>> value_in(b"anon 7\\ninactive_file 42\\nfile 9\\n", b"\\ninactive_file ")
    42
    """
    start = 0 if text.startswith(name[1:]) else text.find(name) + 1
    if start == 0 and not text.startswith(name[1:]):
        return None
    start += len(name) - 1
    end = text.find(b"\n", start)
    return counter(text[start : end if end >= 0 else None].strip(), name.decode().strip())


class PodGroup:
    """The files of one pod's cgroup; open until `close`. `read` raises SourceError if the cgroup was removed."""

    def __init__(self, trees: Trees, path: str) -> None:
        below = path.lstrip("/")
        self._version = trees.version
        self._cpu_folder, self._memory_folder = trees.cpu / below, trees.memory / below
        self._cpu_path = os.fspath(self._cpu_folder)  # converted once: it is looked at with each reading
        self._cpu = KernelFile(self._cpu_folder / "cpu.stat", 512)
        self._usage = None if trees.version == 2 else KernelFile(trees.cpuacct / below / "cpuacct.usage", 64)
        self._pressure = None if trees.pressure is None else KernelFile(trees.pressure / below / "cpu.pressure", 256)
        name = "memory.current" if trees.version == 2 else "memory.usage_in_bytes"
        self._memory = KernelFile(self._memory_folder / name, 64)
        self._memory_stat = KernelFile(self._memory_folder / "memory.stat")
        self._swap = KernelFile(self._memory_folder / "memory.swap.current", 64) if trees.version == 2 else None
        self._limited: list[KernelFile] = []  # cpu.stat of each container that has a cpu limit
        self._limits: tuple[float | None, float | None] = (None, None)
        self._looked = (-LOOK_EVERY, -1)  # s, monotonic, of the last read of limits, and the folder's links then
        self._kept = (-STAT_EVERY, 0, 0, 0)  # s of the last read of memory.stat, memory in use, inactive file, swap

    def read(self, now: float) -> PodCounters:
        self._look(now)
        usage, throttled = self._cpu_times()
        used, swap = self._memory_used(now)
        memory_limit, cpu_limit = self._limits
        return PodCounters(usage, self._waited(), throttled, used, swap, memory_limit, cpu_limit)

    def close(self) -> None:
        files = (self._cpu, self._usage, self._pressure, self._memory, self._memory_stat, self._swap)
        for file in (*files, *self._limited):
            if file is not None:
                file.close()

    def _cpu_times(self) -> tuple[float, float]:
        throttled = sum([self._throttled(file.read()) for file in self._limited])
        if self._usage is not None:
            if self._limits[1] is not None:
                throttled += self._throttled(self._cpu.read())
            return counter(self._usage.read().strip(), "cpuacct.usage") * NANOSECOND, throttled
        text = self._cpu.read()
        throttled += self._throttled(text)
        usage = value_in(text, b"\nusage_usec ")
        if usage is None:
            raise SourceError(f"{self._cpu.path} has no usage_usec")
        return usage * MICROSECOND, throttled

    def _throttled(self, text: bytes) -> float:
        """s; 0 for a cgroup without the cpu controller, which has no such line."""
        if self._version == 2:
            return (value_in(text, b"\nthrottled_usec ") or 0) * MICROSECOND
        return (value_in(text, b"\nthrottled_time ") or 0) * NANOSECOND

    def _waited(self) -> float | None:
        if self._pressure is None:
            return None
        try:
            return parse_total(self._pressure.read()) * MICROSECOND
        except SourceMissing:  # PSI is disabled, or the runtime does not put containers into this hierarchy
            self._pressure = None
            return None

    def _memory_used(self, now: float) -> tuple[int, int]:
        """Working set and swap."""
        current = counter(self._memory.read().strip(), "memory in use")
        at, before, inactive, swap = self._kept
        if now - at >= STAT_EVERY or abs(current - before) > max(SAME_BYTES, SAME_MEMORY * before):
            inactive, swap = self._read_memory_stat()
            self._kept = (now, current, inactive, swap)
        return max(0, current - inactive), swap

    def _read_memory_stat(self) -> tuple[int, int]:
        """Inactive file cache and swap."""
        text = self._memory_stat.read()
        if self._version == 1:
            return value_in(text, b"\ntotal_inactive_file ") or 0, value_in(text, b"\ntotal_swap ") or 0
        return value_in(text, b"\ninactive_file ") or 0, self._read_swap()

    def _read_swap(self) -> int:
        if self._swap is None:
            return 0
        try:
            return counter(self._swap.read().strip(), "memory.swap.current")
        except SourceMissing:  # a kernel without swap accounting
            self._swap = None
            return 0

    def _look(self, now: float) -> None:
        """Reads limits and containers, which rarely change. The folder's link count shows a new container."""
        try:
            links = os.stat(self._cpu_path).st_nlink
        except OSError as error:
            raise SourceMissing(f"{self._cpu_path}: {error.strerror}") from error
        if links == self._looked[1] and now - self._looked[0] < LOOK_EVERY:
            return
        self._looked = (now, links)
        memory = _or_none(memory_limit, self._memory_folder, self._version)
        cpu = _or_none(cpu_quota, self._cpu_folder, self._version)
        self._limits = (None if memory is None or memory >= NO_LIMIT else memory, cpu)
        for file in self._limited:
            file.close()
        self._limited = [KernelFile(folder / "cpu.stat", 512) for folder in self._limited_containers()]

    def _limited_containers(self) -> list[Path]:
        try:
            with os.scandir(self._cpu_folder) as entries:
                folders = [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError:  # removed meanwhile
            return []
        return [folder for folder in folders if _or_none(cpu_quota, folder, self._version) is not None]


def _or_none(limit: Callable[[Path, int], float | None], folder: Path, version: int) -> float | None:
    try:
        return limit(folder, version)
    except SourceError:
        return None  # no such file: there is no limit


class CgroupStats:
    """Accounting of pods by their cgroups. Files of at most `most_open` pods remain open."""

    name = "cgroup"

    def __init__(self, cgroup_root: Path, clock: Callable[[], float], most_open: int) -> None:
        self._root = cgroup_root
        self._clock = clock
        self._most_open = most_open
        self._trees: Trees | None = None
        self._groups: dict[str, tuple[str, PodGroup]] = {}  # pod UID → path, files
        self._open: set[str] = set()  # UIDs of pods whose files remain open

    def read(self, uid: str, cgroup: str | None) -> tuple[float, PodCounters] | None:
        """s, monotonic, and the counters; None if the pod's cgroup is not visible, or no longer."""
        if cgroup is None:
            return None
        try:
            group = self._group(uid, cgroup)
            at = self._clock()
            counters = group.read(at)
        except SourceError:
            self._forget(uid)
            return None
        if uid not in self._open:
            if len(self._open) < self._most_open:
                self._open.add(uid)
            else:
                group.close()
        return at, counters

    def keep(self, uids: Collection[str]) -> None:
        """Forgets all other pods."""
        for uid in self._groups.keys() - set(uids):
            self._forget(uid)

    def _group(self, uid: str, cgroup: str) -> PodGroup:
        known = self._groups.get(uid)
        if known is not None and known[0] == cgroup:
            return known[1]
        self._forget(uid)
        if self._trees is None:
            self._trees = find_trees(self._root)
        group = PodGroup(self._trees, cgroup)
        self._groups[uid] = (cgroup, group)
        return group

    def _forget(self, uid: str) -> None:
        self._open.discard(uid)
        with suppress(KeyError):
            self._groups.pop(uid)[1].close()
