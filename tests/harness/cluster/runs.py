"""One cluster's folder and name, and its complete removal.

A run is registered before it exists: `.cluster/<id>` in the checkout is a symbolic link to the run's folder, created
first and removed last. All its processes inherit MARK in their environment, all its cgroups are named after it,
everything else is in its folder or in namespaces that end with its processes. So `sweep` needs no process ids and no
order: whatever was killed, and whenever, it finds the rest.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .errors import ClusterError

MARK = "CARICO_CLUSTER_RUN"
CHECKOUT = Path(__file__).resolve().parents[3]
# The path of a unix socket has at most 107 bytes; below a run's folder the longest one takes 40.
LONGEST_FOLDER = 60
# Node mode mounts over these in its mount namespace, so a run's folder cannot be there.
COVERED = ("/run", "/var/run", "/var/lib", "/var/log")


@dataclass(frozen=True)
class Run:
    """One cluster: its folder, and its link in the registry of the checkout."""

    folder: Path
    link: Path

    @property
    def id(self) -> str:
        return self.link.name

    @property
    def cgroup(self) -> str:
        """Name of its cgroup at the root of every hierarchy."""
        return f"kube-{self.id}"

    @property
    def held(self) -> Path:
        """Folder with the names of the components that must not run at the moment."""
        return self.folder / "held"

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that mark a process as part of this run."""
        return {MARK: str(self.folder), "TMPDIR": str(self.folder / "tmp"), "HOME": str(self.folder / "tmp")}


def registry() -> Path:
    """The folder of links to this checkout's clusters; the environment may name another one."""
    return Path(os.environ.get("CARICO_CLUSTER_DIR") or CHECKOUT / ".cluster").absolute()


def create() -> Run:
    """Register a new run, then create its folder."""
    run_id = secrets.token_hex(4)
    run = Run(folder=_place() / f"carico-{run_id}", link=registry() / run_id)
    _register(run)
    for name in ("", "tmp", "logs", "held"):
        (run.folder / name).mkdir(mode=0o700)
    return run


def _register(run: Run) -> None:
    """The last cluster that ends removes the registry, perhaps at this moment: then it is created again."""
    while not run.link.is_symlink():
        run.link.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            run.link.symlink_to(run.folder)


def known(folder: Path | None = None) -> list[Run]:
    """Every run in the registry, in whatever state. A run may remove itself in the meantime."""
    folder = folder or registry()
    found = []
    with contextlib.suppress(FileNotFoundError):
        for name in sorted(os.listdir(folder)):
            with contextlib.suppress(OSError):
                found.append(Run(folder=Path(os.readlink(folder / name)), link=folder / name))
    return found


def _place() -> Path:
    """TMPDIR, or /tmp if TMPDIR is too deep for sockets or would be mounted over."""
    chosen = Path(tempfile.gettempdir()).resolve()
    covered = any(chosen.is_relative_to(top) for top in COVERED)
    return Path("/tmp") if covered or len(str(chosen)) + len("/carico-00000000") > LONGEST_FOLDER else chosen


def sweep(run: Run) -> None:
    """End every process of the run but this one, and remove its cgroups, folder and link. Safe at any moment."""
    end_processes(run)
    remove_cgroups(run)
    if run.folder.name == f"carico-{run.id}":  # a manipulated link must not make us remove other files
        shutil.rmtree(run.folder, ignore_errors=True)
    run.link.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # other clusters are registered there
        run.link.parent.rmdir()


def processes(run: Run) -> list[int]:
    """Ids of all living processes that have the run's mark, except this one."""
    mark = f"{MARK}={run.folder}\0".encode()
    return [pid for pid in _pids() if pid != os.getpid() and mark in _environment(pid)]


def process_of(run: Run, part: str) -> int | None:
    """The process of a component; None if it does not run."""
    for pid in processes(run):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].endswith(f"/{part}".encode()):
                return pid
    return None


def end_processes(run: Run, patience: float = 20.0) -> None:
    """Kill until two scans in a row find nothing: a process may start during a scan, and a killed one takes a while.

    The first process of a sealed run hides its environment at once but ends only after all others in its namespace.
    """
    deadline = time.monotonic() + patience
    killed: set[tuple[int, str]] = set()
    quiet = 0
    while quiet < 2:
        found = processes(run)
        for pid in found:
            killed.add((pid, _birth(pid)))
            _kill(pid)
        alive = [pid for pid, birth in killed if birth and _birth(pid) == birth]
        quiet = 0 if found or alive else quiet + 1
        if time.monotonic() > deadline:
            raise ClusterError(f"processes {found or alive} of cluster {run.id} do not end; are they another user's?")
        time.sleep(0.02)


def remove_cgroups(run: Run, patience: float = 10.0) -> None:
    """Remove the run's cgroups in every hierarchy, deepest first; the kernel may need a moment to empty them."""
    deadline = time.monotonic() + patience
    while left := [top / run.cgroup for top in hierarchies() if (top / run.cgroup).is_dir()]:
        for cgroup in left:
            _remove_tree(cgroup)
        if time.monotonic() > deadline:
            raise ClusterError(f"cgroups of cluster {run.id} cannot be removed: {', '.join(map(str, left))}")
        time.sleep(0.02)


def hierarchies() -> list[Path]:
    """Where this machine's cgroup hierarchies are mounted."""
    mounts = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    return sorted({Path(fields[1]) for fields in mounts if fields[2] in ("cgroup", "cgroup2")})


def init_pid(run: Run) -> int | None:
    """The first process of a sealed run, by its number on the host; None if there is none."""
    for pid in processes(run):
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue
        if re.search(r"^NSpid:\t\d+\t1$", status, re.MULTILINE):
            return pid
    return None


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes() + b"\0"
    except OSError:  # ended, or another user's
        return b""


def _birth(pid: int) -> str:
    """Start time of a process: distinguishes it from a later one with the same number. Empty if it has ended."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return ""
    return "" if state in "ZX" else fields[18]


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def _remove_tree(cgroup: Path) -> None:
    for folder, _, _ in os.walk(cgroup, topdown=False):
        try:
            os.rmdir(folder)
        except OSError:  # still busy: the caller retries
            continue
