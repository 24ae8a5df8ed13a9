"""Control groups of a supervisor: they hold its processes together, and limit them.

    v1   …/pids/<own group>/carico-RANDOM/JOB, and the same below memory and cpu for jobs with limits
    v2   …/<own group>/carico-RANDOM/JOB

The supervisor itself is in …/carico-RANDOM/supervisor, so every process that it starts is below carico-RANDOM; only
root can leave. The supervisor holds a lock (flock) on carico-RANDOM. The kernel releases it however the supervisor
ends, so `end_abandoned` knows the groups whose supervisor is gone.

Where groups cannot be written, jobs run without them: `SupervisorGroups.problem` has the reason.
https://docs.kernel.org/admin-guide/cgroup-v2.html
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from carico.embedded.supervisor import process_tree
from carico.errors import CaricoError
from carico.telemetry.cgroup import CgroupPath, find_place

CGROUP_ROOT = Path("/sys/fs/cgroup")
PERIOD = 100_000  # µs over which a cpu quota is counted
LEAST_QUOTA = 1000  # µs; the kernel's minimum
PREFIX = "carico-"
OURS = PREFIX + 16 * "[0-9a-f]"  # as a pattern: another program may name its groups carico-something
LIMITED = ("memory", "cpu")
TRACKING = "pids"  # of v1: a further group there has no effect on its members


class SupervisorGroups:
    def __init__(self) -> None:
        self.problem = ""
        self._version = 0
        self._bases: dict[str, Path] = {}  # by controller; the same for all in v2
        self._locks: list[int] = []
        name = PREFIX + os.urandom(8).hex()
        try:
            for controller in (TRACKING, *LIMITED):
                self._version, own = _own_group(controller)
                known = own / name in self._bases.values()
                self._bases[controller] = own / name
                if not known:
                    self._locks.append(_locked(own / name))
            (_made(self._bases[TRACKING] / "supervisor") / "cgroup.procs").write_text("0")
        except (OSError, CaricoError) as error:
            self.problem = str(error)
            self.close()
        if self._version == 2 and self._bases:
            self._enable_controllers()

    def _enable_controllers(self) -> None:
        """A group that contains processes (any but the root) cannot enable controllers for its children."""
        base = self._bases[TRACKING]
        for folder in (base.parent, base):
            try:
                (folder / "cgroup.subtree_control").write_text("+memory +cpu")
            except OSError as error:
                self.problem = f"{folder} cannot enable controllers for its children: {error.strerror}"
                self._bases = {TRACKING: base}
                return

    def for_job(self, number: int, limited: bool) -> JobGroup | None:
        """A group for one job; with `limited` also in the hierarchies that have limits."""
        wanted = [name for name in self._bases if name == TRACKING or limited]
        if not wanted:
            return None
        try:
            return JobGroup(self._version, {name: _made(self._bases[name] / str(number)) for name in wanted})
        except (OSError, CaricoError) as error:
            self.problem = str(error)
            return None

    def processes(self) -> set[int]:
        return {pid for base in set(self._bases.values()) for pid in processes(base)}

    def close(self) -> None:
        """Remove the groups; the supervisor returns to the group that it was started in."""
        for base in set(self._bases.values()):
            with contextlib.suppress(OSError):
                (base.parent / "cgroup.procs").write_text("0")
            _remove(base)
        for lock in self._locks:
            os.close(lock)
        self._bases, self._locks = {}, []


class JobGroup:
    """One job's group: a folder per controller."""

    def __init__(self, version: int, folders: dict[str, Path]) -> None:
        self._version = version
        self._folders = folders

    def limit(self, cpu: float | None, memory: int | None) -> list[str]:
        """Set limits in cores and bytes; returns those that could not be set (`cpu`, `memory`)."""
        return [
            name
            for name, value in (("cpu", cpu), ("memory", memory))
            if value is not None and not self._set(name, value)
        ]

    def _set(self, controller: str, value: float) -> bool:
        if controller not in self._folders:
            return False
        if controller == "cpu":
            quota = max(LEAST_QUOTA, round(value * PERIOD))
            v1 = {"cpu.cfs_quota_us": str(quota), "cpu.cfs_period_us": str(PERIOD)}
            files = {"cpu.max": f"{quota} {PERIOD}"} if self._version == 2 else v1
        elif self._version == 2:
            # The whole job is killed, as a container is, and swap does not hide that it is too large.
            files = {"memory.max": str(int(value)), "memory.swap.max": "0", "memory.oom.group": "1"}
        else:
            files = {"memory.limit_in_bytes": str(int(value)), "memory.memsw.limit_in_bytes": str(int(value))}
        folder = self._folders[controller]
        first = next(iter(files))
        try:
            for name, text in files.items():
                if name == first or (folder / name).exists():  # kernels without swap accounting do not have the others
                    (folder / name).write_text(text)
        except OSError:
            return False
        return True

    def join_files(self) -> list[str]:
        """The files into which a process writes 0 to join."""
        return [str(folder / "cgroup.procs") for folder in dict.fromkeys(self._folders.values())]

    def processes(self) -> set[int]:
        return processes(self._folders[TRACKING])

    def killed_for_memory(self) -> bool:
        if "memory" not in self._folders:
            return False
        name = "memory.events" if self._version == 2 else "memory.oom_control"
        with contextlib.suppress(OSError):
            lines = (self._folders["memory"] / name).read_text().splitlines()
            return any(line.startswith("oom_kill ") and line.split()[1] != "0" for line in lines)
        return False

    def remove(self) -> None:
        for folder in set(self._folders.values()):
            _remove(folder)


def end_abandoned() -> None:
    """Kill all processes in groups whose supervisor is gone, except this process, and remove the groups."""
    for controller in (TRACKING, *LIMITED):
        with contextlib.suppress(OSError, CaricoError):
            for folder in _own_group(controller)[1].glob(OURS):
                _end_if_abandoned(folder)


def _end_if_abandoned(folder: Path) -> None:
    with contextlib.suppress(OSError):  # locked, or removed meanwhile
        lock = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            process_tree.kill_all(lambda: (processes(folder) & process_tree.living().keys()) - {os.getpid()})
            _remove(folder)
        finally:
            os.close(lock)


def _own_group(controller: str) -> tuple[int, Path]:
    """Version and folder of this process's group; outside an outer supervisor's, which cannot enable controllers."""
    place: CgroupPath = find_place(Path("/proc"), CGROUP_ROOT, controller)
    for outer in (folder for folder in place.folders if folder.name.startswith(PREFIX)):
        return place.version, outer.parent
    return place.version, place.folders[0]


def _locked(folder: Path) -> int:
    """Create the group; returns a descriptor that holds the lock on it."""
    while True:
        lock = os.open(_made(folder), os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(lock), folder.stat()):
                return lock
        os.close(lock)  # `end_abandoned` of another process removed it before it was locked


def _made(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    if not os.access(folder / "cgroup.procs", os.W_OK):
        raise CaricoError(f"{folder} is not a control group")
    return folder


def processes(base: Path) -> set[int]:
    """Without those of other PID namespaces, which have the number 0 here."""
    found: set[int] = set()
    for folder, _, _ in os.walk(base):
        with contextlib.suppress(OSError):
            found |= {int(word) for word in Path(folder, "cgroup.procs").read_text().split()}
    return found - {0}


def _remove(base: Path) -> None:
    """Remove groups from the leaves up, as folders; a group that still has a process remains."""
    for folder, _, _ in os.walk(base, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(folder)
