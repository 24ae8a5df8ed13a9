"""The jobs of a job supervisor: started on request, watched, ended with all their descendants."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from typing import Any, NamedTuple

from carico.embedded.supervisor import launch, process_tree
from carico.embedded.supervisor.cgroups import JobGroup, SupervisorGroups

SendEvent = Callable[[dict[str, Any]], None]


class SupervisedJob(NamedTuple):
    number: int
    pid: int
    group: JobGroup | None


class Jobs:
    """`send` sends an event to the owner: {"id", "pid"}, {"id", "failed"} or {"id", "status", …}."""

    def __init__(self, send: SendEvent) -> None:
        self._send = send
        self._groups = SupervisorGroups()
        self._jobs: dict[int, SupervisedJob] = {}

    def start(self, number: int, command: launch.LaunchCommand) -> None:
        wanted = [name for name in ("cpu", "memory") if getattr(command, name) is not None]
        group = self._groups.for_job(number, command.group or bool(wanted))
        unlimited = group.limit(command.cpu, command.memory) if group else wanted
        address_space = command.memory if "memory" in unlimited else None
        try:
            pid = launch.start(command, group.join_files() if group else [], address_space)
        except OSError as error:
            if group:
                group.remove()
            self._send({"id": number, "failed": error.strerror})
            return
        self._jobs[number] = SupervisedJob(number, pid, group)
        self._send({"id": number, "pid": pid, "notes": self._notes(unlimited, command)})

    def _notes(self, unlimited: list[str], command: launch.LaunchCommand) -> list[str]:
        why = f"no control group for it ({self._groups.problem})"
        texts = {
            "cpu": f"the cpu limit of {command.cpu} cores is not enforced: {why}",
            "memory": f"the memory limit is enforced on the address space of each process: {why}",
        }
        return [texts[name] for name in unlimited]

    def signal(self, number: int, what: int, whole: bool) -> None:
        """Signal the main process, or with `whole` every process of the job."""
        if (job := self._jobs.get(number)) is not None:
            process_tree.send(self._members(job) if whole else {job.pid}, what)

    def kill(self, number: int) -> None:
        """Kill every process of the job; its end is reported when it is reaped."""
        for what in (signal.SIGSTOP, signal.SIGKILL):
            self.signal(number, what, whole=True)

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
        if self._orphans() or (job.group and job.group.processes()):
            process_tree.kill_all(lambda: self._members(job), self._reap_orphans)
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

    def _orphans(self) -> set[int]:
        """Children that were not started here, which this process adopted as a subreaper."""
        return process_tree.children(os.getpid()) - {job.pid for job in self._jobs.values()}

    def _reap_orphans(self) -> None:
        """The end of main processes is reported to the owner instead."""
        for pid in self._orphans():
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)

    def _members(self, job: SupervisedJob) -> set[int]:
        """Every living process of a job: by descent, by session and by control group."""
        processes = process_tree.living()
        session = {pid for pid, seen in processes.items() if seen.session == job.pid}
        found = {job.pid} | process_tree.descendants(job.pid, processes) | session
        if job.group:
            found |= job.group.processes()
        return found & processes.keys()

    def end_all(self) -> None:
        """Kill everything; nothing is left when this returns."""
        me = os.getpid()

        def find() -> set[int]:
            processes = process_tree.living()
            return ((process_tree.descendants(me, processes) | self._groups.processes()) & processes.keys()) - {me}

        self._jobs.clear()
        process_tree.kill_all(find, self._reap_orphans)
        self._groups.close()
