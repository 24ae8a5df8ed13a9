"""The processes of this machine, and the pods that they belong to: the list in `carico top`.

A process is assigned to a pod by its cgroup, whose path contains the pod's UID on every Kubernetes node, or, on the
embedded cluster's node, by its home folder. A pod's name is the host name in the environment of its processes.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from carico.runtime.cgroups import pod_uid

if TYPE_CHECKING:
    import psutil

DETAILED = 200  # processes whose owner and command are looked up: more do not fit on a screen


class ListedProcess(NamedTuple):
    pid: int
    user: str
    cpu: float  # cores
    memory: float  # bytes, resident
    command: str


class ListedPod(NamedTuple):
    name: str
    processes: int
    cpu: float  # cores
    memory: float  # bytes


class ProcessListing(NamedTuple):
    processes: tuple[ListedProcess, ...] = ()  # those with the highest use, in the requested order
    pods: tuple[ListedPod, ...] = ()
    total: int = 0  # processes of the machine
    problem: str = ""


class ListedMember(NamedTuple):
    uid: str  # of the pod
    name: str


class Processes:
    """Call `look` every few seconds, never twice concurrently."""

    def __init__(self) -> None:
        self._members: dict[
            tuple[int, float], ListedMember | None
        ] = {}  # (pid, start time) → its pod, which is constant
        self._pods: Collection[str] = ()

    def look(self, by_memory: bool, pods: Collection[str]) -> ProcessListing:
        """`pods` are the UIDs that the runtime counts."""
        try:
            import psutil
        except ImportError:
            return ProcessListing(problem="the list of processes needs psutil: pip install 'carico[demo]'")
        found = []
        for process in psutil.process_iter(["cpu_percent", "memory_info", "create_time"]):
            memory = process.info["memory_info"]
            if memory is not None and memory.rss:  # kernel threads have none
                found.append((process, (process.info["cpu_percent"] or 0.0) / 100, float(memory.rss)))
        found.sort(key=lambda one: (one[2], one[1]) if by_memory else (one[1], one[2]), reverse=True)
        processes = (_detailed(*one) for one in found[:DETAILED])
        members = self._with_pods(found, pods)
        return in_order(ProcessListing(tuple(processes), _pods(members), len(found)), by_memory)

    def _with_pods(
        self, found: list[tuple[psutil.Process, float, float]], pods: Collection[str]
    ) -> Iterable[tuple[ListedMember, float, float]]:
        known, self._members = self._members, {}
        if pods != self._pods:  # processes without a pod may belong to one of the new ones
            known, self._pods = {key: member for key, member in known.items() if member is not None}, pods
        for process, cpu, memory in found:
            key = (process.pid, process.info["create_time"])
            member = known[key] if key in known else _member(process, pods)
            self._members[key] = member
            if member is not None:
                yield member, cpu, memory


def _member(process: psutil.Process, pods: Collection[str]) -> ListedMember | None:
    try:
        with open(f"/proc/{process.pid}/cgroup") as file:
            uids = [uid for part in file.read().split("/") if (uid := pod_uid(part.strip()))]
    except OSError:
        return None
    environment = _or_default(process.environ, {}) if uids or pods else {}
    home = os.path.basename(environment.get("HOME", ""))
    uid = uids[0] if uids else home if home in pods else ""
    return ListedMember(uid, environment.get("HOSTNAME") or uid) if uid else None


def in_order(listing: ProcessListing, by_memory: bool) -> ProcessListing:
    def order(one: ListedProcess | ListedPod) -> tuple[float, float]:
        return (one.memory, one.cpu) if by_memory else (one.cpu, one.memory)

    processes = sorted(listing.processes, key=order, reverse=True)
    pods = sorted(listing.pods, key=order, reverse=True)
    return listing._replace(processes=tuple(processes), pods=tuple(pods))


def _pods(members: Iterable[tuple[ListedMember, float, float]]) -> tuple[ListedPod, ...]:
    pods: dict[str, ListedPod] = {}
    for member, cpu, memory in members:
        pod = pods.get(member.uid, ListedPod(printable(member.name), 0, 0.0, 0.0))
        pods[member.uid] = ListedPod(pod.name, pod.processes + 1, pod.cpu + cpu, pod.memory + memory)
    return tuple(pods.values())


def _detailed(process: psutil.Process, cpu: float, memory: float) -> ListedProcess:
    words = _or_default(process.cmdline, []) or [f"[{_or_default(process.name, '?')}]"]
    return ListedProcess(process.pid, _or_default(process.username, "?"), cpu, memory, printable(" ".join(words)))


def _or_default(read: Callable[[], Any], otherwise: Any) -> Any:
    import psutil

    try:
        return read()
    except (psutil.Error, OSError):  # it has ended, or belongs to another user
        return otherwise


def printable(text: str) -> str:
    r"""Replaces unsafe characters: a command may contain terminal codes; wide characters would break the columns.

    >>> printable("a\x1b[2Jb\n中ü")
    'a?[2Jb??ü'
    """

    def kept(letter: str) -> bool:
        narrow = unicodedata.east_asian_width(letter) not in "WF" and not unicodedata.combining(letter)
        return letter.isprintable() and narrow

    return "".join(letter if kept(letter) else "?" for letter in text)
