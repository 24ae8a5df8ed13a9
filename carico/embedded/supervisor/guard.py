"""Processes that cannot outlive the one that started them.

    async with Guard() as guard:
        process = await guard.start(Command(["sleep", "60"], dict(os.environ)))
        ended = await process.wait()

Leaving the block kills every process that was started in it, and so does `kill -9` of this process, the owner: a job
supervisor (__main__.py) is a separate process that starts them and exits only when all of them have ended. If the job
supervisor is killed, the kernel kills its processes, their `wait` reports `lost`, and the next `start` starts a new
job supervisor.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import carico
from carico.embedded.supervisor.cgroups import end_abandoned
from carico.embedded.supervisor.launch import LaunchCommand
from carico.errors import StartFailed

__all__ = ["ChildProcess", "Guard", "LaunchCommand", "ProcessEnded", "StartFailed", "end_abandoned"]

log = logging.getLogger(__name__)

ATTEMPTS = 5  # attempts to start a process while job supervisors are being killed
CLOSE_PATIENCE = 15.0  # s for the job supervisor to end everything; it needs milliseconds


class _SupervisorKilled(StartFailed):
    """The job supervisor was killed before it replied."""


class ProcessEnded(NamedTuple):
    """How a process ended."""

    code: int  # exit code; 0 if a signal ended it
    signal: int  # that ended it, or 0
    cpu: float = 0.0  # s, of it and of all descendants that it waited for
    peak: int = 0  # bytes, resident, of the largest of them
    oom: bool = False  # the OOM killer was invoked in its control group, as the memory limit was reached
    lost: bool = False  # it was killed because the job supervisor was killed

    @property
    def exit_code(self) -> int:
        """As in shells and Kubernetes.

        >>> ProcessEnded(3, 0).exit_code, ProcessEnded(0, 9).exit_code
        (3, 137)
        """
        return 128 + self.signal if self.signal else self.code


class ChildProcess:
    """A started process. `wait` may be called any number of times."""

    def __init__(self, guard: Guard, number: int) -> None:
        self._guard = guard
        self._number = number
        self.pid = 0
        self.notes: list[str] = []  # what could not be applied, e.g. limits
        self._started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ended: asyncio.Future[ProcessEnded] = asyncio.get_running_loop().create_future()

    async def wait(self) -> ProcessEnded:
        return await asyncio.shield(self._ended)

    @property
    def ended(self) -> ProcessEnded | None:
        return self._ended.result() if self._ended.done() else None

    def signal(self, number: int, *, whole: bool = False) -> None:
        """Send a signal to the process, or with `whole` to its process tree. No effect on one that has ended."""
        self._guard._send({"do": "signal", "id": self._number, "signal": number, "whole": whole})

    def kill(self) -> None:
        """Kill it and all its descendants at once."""
        self._guard._send({"do": "kill", "id": self._number})

    async def stop(self, grace: float) -> ProcessEnded:
        """Send SIGTERM, and after `grace` seconds SIGKILL."""
        self.signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(grace):
                return await self.wait()
        except TimeoutError:
            self.kill()
            return await self.wait()

    def _on_event(self, event: dict[str, Any]) -> None:
        if "pid" in event:
            self.pid, self.notes = event["pid"], event["notes"]
            if not self._started.done():
                self._started.set_result(None)
        elif "failed" in event:
            if not self._started.done():
                self._started.set_exception(StartFailed(event["failed"]))
        else:
            status = event["status"]
            signalled = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
            code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 0
            self._end(ProcessEnded(code, signalled, event["cpu"], event["peak"], event["oom"]))

    def _end(self, how: ProcessEnded) -> None:
        if not self._started.done():
            self._started.set_exception(_SupervisorKilled("the job supervisor was killed"))
        if not self._ended.done():
            self._ended.set_result(how)


class Guard:
    """Enter it in the process that owns the others, once, from its main thread."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._processes: dict[int, ChildProcess] = {}
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._listening: asyncio.Task[None] | None = None
        self._open = False
        self._starting = asyncio.Lock()
        self._notes: set[str] = set()

    async def __aenter__(self) -> Guard:
        self._open = True
        await self._start_supervisor()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._open = False
        if self._listening is not None and self._writer is not None and self._supervisor is not None:
            self._writer.close()
            killed = await asyncio.to_thread(_killed, self._supervisor)
            await self._listening
            if killed:
                await asyncio.to_thread(end_abandoned)

    @property
    def supervisor_pid(self) -> int:
        return self._supervisor.pid if self._supervisor else 0

    async def start(self, command: LaunchCommand) -> ChildProcess:
        """Start a process; raises StartFailed with the reason if that is not possible."""
        for _ in range(ATTEMPTS):
            if not self._open:
                raise StartFailed("its guard has been left")
            async with self._starting:
                if self._listening is None or self._listening.done():
                    await self._start_supervisor()
            try:
                return await self._request(command)
            except _SupervisorKilled:
                if self._listening is not None:
                    await asyncio.wait([self._listening])  # until what the old one left has ended
        raise StartFailed(f"the job supervisor was killed {ATTEMPTS} times in a row")

    async def _request(self, command: LaunchCommand) -> ChildProcess:
        process = ChildProcess(self, next(self._numbers))
        self._processes[process._number] = process
        self._send({"do": "start", "id": process._number, "command": list(command)})
        try:
            await process._started
        except StartFailed:
            self._processes.pop(process._number, None)
            raise
        for note in set(process.notes) - self._notes:
            self._notes.add(note)
            log.warning("%s: %s", command.argv[0], note)
        return process

    async def _start_supervisor(self) -> None:
        ours, theirs = socket.socketpair()
        home = str(Path(carico.__file__).parents[1])
        # -S: without site-packages, which the job supervisor does not need, it starts in a third of the time.
        command = [sys.executable, "-S", "-m", "carico.embedded.supervisor", str(theirs.fileno())]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        self._supervisor = subprocess.Popen(  # noqa: ASYNC220  it takes a millisecond, and asyncio's own would need a watcher
            command,
            env=environment | {"PYTHONPATH": home},
            cwd="/",
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()
        reader, self._writer = await asyncio.open_unix_connection(sock=ours)
        self._listening = asyncio.create_task(self._listen(reader, self._supervisor))

    def _send(self, request: dict[str, Any]) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(json.dumps(request).encode() + b"\n")

    async def _listen(self, reader: asyncio.StreamReader, supervisor: subprocess.Popen[bytes]) -> None:
        try:
            while line := await reader.readline():
                event = json.loads(line)
                process = self._processes.get(event["id"])
                if process is not None:
                    process._on_event(event)
                    if process.ended is not None:
                        del self._processes[event["id"]]
        except ConnectionError:
            pass
        await asyncio.to_thread(supervisor.wait)
        if self._writer is not None:
            self._writer.close()
        if self._open:
            log.warning("the job supervisor of this process's children was killed; ending what it left")
            await asyncio.to_thread(end_abandoned)
        for process in list(self._processes.values()):
            process._end(ProcessEnded(0, signal.SIGKILL, lost=self._open))
        self._processes.clear()


def _killed(supervisor: subprocess.Popen[bytes]) -> bool:
    """Waits for the end of a job supervisor whose socket was closed; returns whether it had to be killed."""
    try:
        supervisor.wait(CLOSE_PATIENCE)
    except subprocess.TimeoutExpired:
        log.warning("the job supervisor did not end within %g s and is killed", CLOSE_PATIENCE)
        supervisor.kill()
        return True
    return False
