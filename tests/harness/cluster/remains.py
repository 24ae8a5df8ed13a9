"""What a run can leave on a machine, found from outside and without the harness' own records."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .runs import MARK

# Folders that the components of a node are known to write to by default.
HAUNTS = (
    *("/etc/cni", "/etc/kubernetes", "/opt/cni", "/opt/containerd", "/run/containerd", "/run/netns"),
    *("/usr/libexec/kubernetes", "/var/lib/cni", "/var/lib/containerd", "/var/lib/etcd", "/var/lib/kubelet"),
    *("/var/log/containers", "/var/log/pods", "~/.kube", "~/.kwok", "~/.config/containerd"),
)
SETTINGS = ("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "net/ipv4/ip_forward")


@dataclass(frozen=True)
class Machine:
    """The parts of a machine that a cluster could change."""

    mounts: tuple[str, ...]
    files: tuple[str, ...]
    settings: tuple[str, ...]
    devices: tuple[str, ...]


def machine() -> Machine:
    """The current state of the machine."""
    return Machine(
        mounts=tuple(sorted(Path("/proc/self/mounts").read_text().splitlines())),
        files=tuple(sorted(path for haunt in HAUNTS for path in _below(Path(haunt).expanduser()))),
        settings=tuple(Path("/proc/sys", name).read_text() for name in SETTINGS),
        devices=tuple(sorted(os.listdir("/sys/class/net"))),
    )


def of(run_id: str, namespaces: frozenset[str]) -> list[str]:
    """Everything on the machine that belongs to a run: processes, mounts, cgroups, namespaces and files."""
    found = [f"process {pid}" for pid in _pids() if run_id in _words_of(pid)]
    found += [f"mount seen by {pid}" for pid in _pids() if run_id in _read(f"/proc/{pid}/mounts")]
    own = namespaces - _of_other_runs(run_id)
    found += [f"namespace of {pid}" for pid in _pids() if own & namespaces_of(pid)]
    found += [f"cgroup {folder}" for folder, _, _ in os.walk("/sys/fs/cgroup") if run_id in os.path.basename(folder)]
    found += [f"file {path}" for path in Path("/tmp").glob(f"*{run_id}*")]
    return found


def namespaces_of(pid: int) -> frozenset[str]:
    """The network, mount and process namespaces of a process that are not this process' own."""
    links = set()
    for kind in ("net", "mnt", "pid"):
        try:
            link = os.readlink(f"/proc/{pid}/ns/{kind}")
        except OSError:
            continue
        if link != os.readlink(f"/proc/self/ns/{kind}"):
            links.add(link)
    return frozenset(links)


def _of_other_runs(run_id: str) -> frozenset[str]:
    """The kernel reuses a namespace's number: another cluster may have it by now."""
    others = (pid for pid in _pids() if MARK in (words := _words_of(pid)) and run_id not in words)
    return frozenset().union(*map(namespaces_of, others))


def _below(folder: Path) -> Iterator[str]:
    if folder.exists():
        yield str(folder)
    for parent, folders, files in os.walk(folder):
        yield from (os.path.join(parent, name) for name in (*folders, *files))


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]


def _words_of(pid: int) -> str:
    return _read(f"/proc/{pid}/cmdline") + _read(f"/proc/{pid}/environ")


def _read(path: str) -> str:
    try:
        return Path(path).read_bytes().decode(errors="replace")
    except OSError:
        return ""
