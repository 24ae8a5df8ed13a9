"""The jobs of a job supervisor: started on request, watched, ended with all their descendants."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any, NamedTuple

from carico.embedded.supervisor import family, groups, launch, marks
from carico.embedded.supervisor.groups import ProcessGroup, TrackingCgroup, Tree

SendEvent = Callable[[dict[str, Any]], None]


class SupervisedJob(NamedTuple):
    number: int
    pid: int
    group: ProcessGroup | None


class Jobs:
    """`send` sends an event to the owner: {"id", "pid"}, {"id", "failed"} or {"id", "status", …}."""

    def __init__(self, mark: str, send: SendEvent) -> None:
        self._mark = mark
        self._send = send
        self._tree: Tree | None = None  # created when a job first needs a group
        self._fold = TrackingCgroup(mark)
        self._jobs: dict[int, SupervisedJob] = {}

    def start(self, number: int, command: launch.LaunchCommand) -> None:
        notes: list[str] = []
        group = self._group(number, command, notes)
        unlimited = group.limit(command.cpu, command.memory) if group else _wanted(command)
        address_space = command.memory if "memory" in unlimited else None
        notes += self._without(unlimited, command)
        marked = command._replace(environment=marks.marked(command.environment, self._mark, number))
        try:
            pid = launch.start(marked, group.join_files() if group else [], address_space)
        except OSError as error:
            if group:
                group.remove()
            self._send({"id": number, "failed": error.strerror})
            return
        self._jobs[number] = SupervisedJob(number, pid, group)
        self._send({"id": number, "pid": pid, "notes": notes})

    def _group(self, number: int, command: launch.LaunchCommand, notes: list[str]) -> ProcessGroup | None:
        if not (command.group or _wanted(command)):
            return None
        if self._tree is None:
            self._tree = Tree(self._mark)
        group = self._tree.group(number)
        if group is None:
            notes.append(f"no control group can be made ({self._tree.problem})")
        return group

    def _without(self, unlimited: list[str], command: launch.LaunchCommand) -> list[str]:
        why = self._tree.problem if self._tree else ""
        texts = {
            "cpu": f"the cpu limit of {command.cpu} cores is not enforced: no control group for it ({why})",
            "memory": f"the memory limit is enforced on the address space of each process: no control group ({why})",
        }
        return [texts[name] for name in unlimited]

    def signal(self, number: int, what: int, whole: bool) -> None:
        """Signal the main process, or with `whole` every process of the job."""
        job = self._jobs.get(number)
        if job is not None and whole:
            family.signal_found(lambda: self._members(job), what)
        elif job is not None:
            family.send(job.pid, what)

    def kill(self, number: int) -> None:
        """Kill every process of the job; its end is reported when it is reaped."""
        job = self._jobs.get(number)
        if job is not None:
            for what in (signal.SIGSTOP, signal.SIGKILL):
                family.signal_found(lambda: self._members(job), what)

    def reap(self) -> None:
        """Reap every child that has ended, including adopted orphans."""
        by_pid = {job.pid: job for job in self._jobs.values()}
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if (job := by_pid.get(pid)) is not None:
                self._on_end(job, status, usage)

    def _on_end(self, job: SupervisedJob, status: int, usage: Any) -> None:
        """As with a container, everything that the main process left behind is killed."""
        del self._jobs[job.number]
        if self._strays() or (job.group and job.group.processes()):
            family.kill_all(lambda: self._members(job), _reap_quietly(self._jobs))
        for_memory = False
        if job.group:
            for_memory = job.group.killed_for_memory()
            job.group.remove()
        self._send(
            {
                "id": job.number,
                "status": status,
                "cpu": usage.ru_utime + usage.ru_stime,
                "peak": usage.ru_maxrss * 1024,
                "oom": for_memory,
            }
        )

    def _strays(self) -> set[int]:
        """Children that were not started here: orphans of jobs."""
        return family.children(os.getpid()) - {job.pid for job in self._jobs.values()}

    def _members(self, job: SupervisedJob) -> set[int]:
        """Every living process of a job: by descent, by session, by mark and by control group."""
        processes = family.everyone()
        session = {pid for pid, seen in processes.items() if seen.session == job.pid}
        found = {job.pid} | family.descendants(job.pid) | session | marks.bearers(self._mark, job.number)
        if job.group:
            found |= job.group.processes()
        return {pid for pid in found if pid in processes and not processes[pid].ended} - {os.getpid()}

    def end_all(self) -> None:
        """Kill everything; nothing is left when this returns."""
        me = os.getpid()

        def find() -> set[int]:
            inside = self._fold.processes() | (self._tree.processes() if self._tree else set())
            return (family.descendants(me) | marks.bearers(self._mark) | (inside & family.living())) - {me}

        family.kill_all(find, _reap_quietly({}))
        self._jobs.clear()
        if self._tree is not None:
            self._tree.close()
        self._fold.close()
        groups.sweep()  # a job that was itself an owner had no time to remove its groups


def _wanted(command: launch.LaunchCommand) -> list[str]:
    limits = {"cpu": command.cpu, "memory": command.memory}
    return [name for name, value in limits.items() if value is not None]


def _reap_quietly(jobs: dict[int, SupervisedJob]) -> Callable[[], None]:
    """Reaps children that are not the main process of a job; the end of those is reported to the owner."""
    return lambda: family.reap(family.children(os.getpid()) - {job.pid for job in jobs.values()})
