"""Control groups for jobs: limits, the list of every process of a job, and whether the OOM killer was invoked.

    v1   …/memory/<own group>/carico-MARK/JOB and the same below cpu
    v2   …/<own group>/carico-MARK/JOB

They are created below the group of this process, so that its limits apply to all jobs together. If that is not
permitted, jobs run without groups: `Tree.problem` has the reason.

In addition, if possible, a group without limits (`TrackingCgroup`) holds the job supervisor and thereby its whole
process tree. It is in a hierarchy in which a further group has no effect on its members.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from carico.embedded.supervisor import family, marks
from carico.errors import CaricoError
from carico.telemetry.cgroup import find_place

CGROUP_ROOT = Path("/sys/fs/cgroup")
PERIOD = 100_000  # µs over which a cpu quota is counted
LEAST_QUOTA = 1000  # µs; the kernel's minimum
PREFIX = "carico-"
FOLD = "carico-fold-"
CONTROLLERS = ("memory", "cpu")
HARMLESS = ("", "freezer", "pids")  # hierarchies for the fold; the empty name is v2's


class Tree:
    """The groups of one guard; `folders` has the base per controller, or is empty if none can be created."""

    def __init__(self, mark: str) -> None:
        self.folders: dict[str, Path] = {}
        self.version = 0
        self.problem = ""
        try:
            for controller in CONTROLLERS:
                place = find_place(Path("/proc"), CGROUP_ROOT, controller)
                self.version = place.version
                if place.version == 2:
                    self._open_v2(_own(controller), mark)
                    break
                self.folders[controller] = _made(place.folders[0] / f"{PREFIX}{mark}")
        except (OSError, CaricoError) as error:
            self.problem = str(error)
            self.close()
            self.folders = {}

    def _open_v2(self, own: Path, mark: str) -> None:
        """Even without controllers, a group lists every process of a job."""
        base = _made(own / f"{PREFIX}{mark}")
        self.folders = {"all": base}
        for folder in (own, base):
            try:
                (folder / "cgroup.subtree_control").write_text("+memory +cpu")
            except OSError as error:
                # A group that contains processes (any but the root) cannot enable controllers for its children.
                self.problem = f"{folder} does not hand its controllers down: {error.strerror}"
                return
        self.folders = {"all": base, "memory": base, "cpu": base}

    def group(self, job: int) -> ProcessGroup | None:
        if not self.folders:
            return None
        try:
            return ProcessGroup(self.version, {name: _made(base / str(job)) for name, base in self.folders.items()})
        except (OSError, CaricoError) as error:
            self.problem = str(error)
            return None

    def processes(self) -> set[int]:
        """All processes in any group of this tree."""
        return {pid for base in set(self.folders.values()) for pid in processes(base)}

    def close(self) -> None:
        for base in set(self.folders.values()):
            remove(base)


class ProcessGroup:
    """One job's group: a folder per controller."""

    def __init__(self, version: int, folders: dict[str, Path]) -> None:
        self._version = version
        self._folders = folders

    def limit(self, cpu: float | None, memory: int | None) -> list[str]:
        """Set limits in cores and bytes; returns those that could not be set (`cpu`, `memory`)."""
        failed = []
        for name, value in (("cpu", cpu), ("memory", memory)):
            if value is not None and not self._set(name, value):
                failed.append(name)
        return failed

    def _set(self, controller: str, value: float) -> bool:
        if controller not in self._folders:
            return False
        if controller == "cpu":
            quota = max(LEAST_QUOTA, round(value * PERIOD))
            files = {"cpu.max": f"{quota} {PERIOD}"} if self._version == 2 else _quota_v1(quota)
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
        return {pid for folder in set(self._folders.values()) for pid in processes(folder)}

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
            remove(folder)


class TrackingCgroup:
    """The group of the job supervisor itself: none of its descendants can leave it without being root."""

    def __init__(self, mark: str) -> None:
        self._folder: Path | None = None
        for controller in HARMLESS:
            with contextlib.suppress(OSError, CaricoError):
                folder = _made(_place(controller) / f"{FOLD}{mark}")  # inside the fold of an outer guard, if any
                (folder / "cgroup.procs").write_text("0")
                self._folder = folder
                return

    def processes(self) -> set[int]:
        return processes(self._folder) if self._folder else set()

    def close(self) -> None:
        if self._folder is not None:
            with contextlib.suppress(OSError):
                (self._folder.parent / "cgroup.procs").write_text("0")
            remove(self._folder)


def bases(mark: str) -> list[Path]:
    """The existing folders of a guard."""
    return [folder for folder in _all_bases() if folder.name in (f"{PREFIX}{mark}", f"{FOLD}{mark}")]


def sweep() -> None:
    """Kill all processes in groups of dead owners, except this process, and remove the groups."""
    for folder in _all_bases():
        mark = folder.name.removeprefix(FOLD).removeprefix(PREFIX)
        if not marks.supervisor_lives(mark):
            family.kill_all(lambda folder=folder: (processes(folder) & family.living()) - {os.getpid()})  # type: ignore[misc]
            remove(folder)


def _all_bases() -> list[Path]:
    found: list[Path] = []
    for controller in (*CONTROLLERS, *HARMLESS):
        with contextlib.suppress(OSError, CaricoError):
            for own in {_place(controller), _own(controller)}:
                found += own.glob(f"{PREFIX}*")
    return list(dict.fromkeys(found))


def _place(controller: str) -> Path:
    """This process's group in the hierarchy of a controller; no controller means v2's hierarchy."""
    return find_place(Path("/proc"), CGROUP_ROOT, controller or "no controller of v1").folders[0]


def _own(controller: str) -> Path:
    """The same without the folds: a group that contains processes cannot distribute resources to child groups."""
    own = _place(controller)
    while own.name.startswith(FOLD):
        own = own.parent
    return own


def _quota_v1(quota: int) -> dict[str, str]:
    return {"cpu.cfs_quota_us": str(quota), "cpu.cfs_period_us": str(PERIOD)}


def _made(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    if not os.access(folder / "cgroup.procs", os.W_OK):
        raise CaricoError(f"{folder} is no control group")
    return folder


def processes(base: Path) -> set[int]:
    found: set[int] = set()
    for folder, _, _ in os.walk(base):
        with contextlib.suppress(OSError):
            found |= {int(word) for word in Path(folder, "cgroup.procs").read_text().split()}
    return found


def remove(base: Path) -> None:
    """Remove groups from the leaves up, as folders; a group that still has a process remains."""
    for folder, _, _ in os.walk(base, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(folder)
