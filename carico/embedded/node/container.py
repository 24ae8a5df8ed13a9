"""The life cycle of one container: start, end, back-off and restart, by its pod's restartPolicy."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from carico.backoff import doubled
from carico.clock import Clock
from carico.embedded.node.command import command_of
from carico.embedded.node.objects import RunContainer, RunPod
from carico.embedded.node.runtime import FirstProcess, Runtime
from carico.embedded.supervisor.guard import ChildProcess, Guard, ProcessEnded
from carico.errors import CaricoError, StartFailed

log = logging.getLogger(__name__)

FIRST_BACKOFF, LONGEST_BACKOFF = 10.0, 300.0  # s, as a kubelet's; the first restart is immediate
FORGIVEN_AFTER = 600.0  # s of running after which the back-off is reset
START_ERROR = 128  # exit code of a container whose program could not be started, as containerd gives it


@dataclass(frozen=True)
class Terminated:
    exit_code: int
    reason: str  # Completed, Error, OOMKilled, StartError, ContainerStatusUnknown
    started: float  # s since the epoch
    finished: float
    signal: int = 0
    message: str = ""
    id: str = ""


@dataclass
class ContainerState:
    """The state of a container. Exactly one of running, terminated and waiting applies."""

    id: str = ""
    restarts: int = 0
    running: float | None = None  # s since the epoch, of its start
    terminated: Terminated | None = None
    waiting: str = "ContainerCreating"  # the reason, if neither of the others applies
    message: str = ""
    last: Terminated | None = None  # the end before the current state
    over: bool = field(default=False)  # it will not be restarted


class LocalContainer:
    """`run` returns when the container will not be restarted; `changed` is called at every change of `state`."""

    def __init__(
        self, pod: RunPod, spec: RunContainer, guard: Guard, runtime: Runtime, clock: Clock, changed: Callable[[], None]
    ) -> None:
        self.spec = spec
        self.state = ContainerState()
        self._pod, self._guard, self._runtime, self._clock, self._changed = pod, guard, runtime, clock, changed
        self._process: ChildProcess | None = None
        self._stopping = asyncio.Event()
        self._failures = 0  # restarts in a row of a container that soon ended again

    async def run(self, sandbox: str, folder: Path, log_file: Path, restart: Callable[[int], bool]) -> None:
        """`restart` returns whether the container is restarted after an exit code."""
        while not self._stopping.is_set():
            end = await self._once(sandbox, folder, log_file)
            again = restart(end.exit_code) and not self._stopping.is_set()
            self.state = ContainerState(id=end.id, restarts=self.state.restarts, terminated=end, over=not again)
            self._changed()
            if not again:
                return
            await self._back_off(end)
        self.state.over = True

    async def _once(self, sandbox: str, folder: Path, log_file: Path) -> Terminated:
        identity = secrets.token_hex(32)
        self._runtime.container_created(identity, sandbox, self.spec.image)
        began = self._clock.wall()
        try:
            command = command_of(self._pod, self.spec, folder, log_file)
            process = self._process = await self._guard.start(command)
        except (StartFailed, CaricoError, ValueError) as error:
            self._runtime.container_stopped(identity)
            return Terminated(START_ERROR, "StartError", 0.0, self._clock.wall(), message=str(error), id=identity)
        began = self._clock.wall()
        self._runtime.container_started(identity, FirstProcess(process.pid, command.memory))
        last = self.state.terminated or self.state.last
        self.state = ContainerState(id=identity, restarts=self.state.restarts, running=began, last=last)
        self._changed()
        if self._stopping.is_set():
            process.kill()
        ended = await process.wait()
        self._process = None
        self._runtime.container_stopped(identity)
        return Terminated(ended.exit_code, _reason(ended), began, self._clock.wall(), ended.signal, id=identity)

    async def _back_off(self, end: Terminated) -> None:
        if end.finished - end.started > FORGIVEN_AFTER:
            self._failures = 0
        if self._failures:
            pause = doubled(FIRST_BACKOFF, LONGEST_BACKOFF, self._failures)
            why = f"back-off {pause:.0f}s restarting failed container={self.spec.name}"
            state = self.state
            self.state = ContainerState(state.id, state.restarts, waiting="CrashLoopBackOff", message=why, last=end)
            self._changed()
            await self._wait_or_stop(pause)
        self._failures += 1
        self.state.restarts += 1

    async def _wait_or_stop(self, seconds: float) -> None:
        waits = [asyncio.ensure_future(self._clock.sleep(seconds)), asyncio.ensure_future(self._stopping.wait())]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)

    async def stop(self, grace: float) -> None:
        """Send SIGTERM to the process, and kill it if it has not ended within `grace` seconds; no restart."""
        self._stopping.set()
        process = self._process
        if process is None:
            return
        if grace > 0:
            await process.stop(grace)
        else:
            process.kill()
            await process.wait()


def _reason(ended: ProcessEnded) -> str:
    if ended.oom and ended.exit_code:
        return "OOMKilled"
    return "Error" if ended.exit_code else "Completed"
