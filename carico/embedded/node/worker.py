"""The life cycle of one pod: sandbox, init containers one by one, containers together, end, deletion."""

from __future__ import annotations

import asyncio
import logging
import secrets
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from carico.clock import Clock
from carico.embedded.node.container import ContainerState, LocalContainer, Terminated
from carico.embedded.node.objects import RunContainer, RunPod
from carico.embedded.node.runtime import LocalSandbox, Runtime
from carico.embedded.node.status import Conditions, NamedContainer, PodVerdict, status_of
from carico.embedded.supervisor.guard import Guard
from carico.errors import ApiError, CaricoError
from carico.kube import pods
from carico.kube.binding import NOT_THIS_POD
from carico.kube.client import Client

log = logging.getLogger(__name__)

GRACE = 30.0  # s, if the pod does not set it
DEADLINE = PodVerdict("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")
RETRY = 0.5  # s before a status that could not be written is written again
LOST = "the node process ended while it ran"


@dataclass(frozen=True)
class WorkerTools:
    """What all workers share."""

    client: Client
    guard: Guard
    runtime: Runtime
    clock: Clock
    folder: Path  # contains a folder for each pod
    logs: Path


class Worker:
    """`run` returns when the pod is deleted. `delete` and `vanish` may be called at any time."""

    def __init__(self, pod: RunPod, tools: WorkerTools) -> None:
        self.pod = pod
        self._tools = tools
        self._start = tools.clock.wall()
        self._inits = [self._container(spec) for spec in pod.spec.init_containers]
        self._containers = [self._container(spec) for spec in pod.spec.containers]
        self._conditions = Conditions()
        self._verdict = PodVerdict()
        self._sandbox = secrets.token_hex(32)
        self._ending = asyncio.Event()
        self._grace = GRACE
        self._vanished = pod.terminal  # no status has to be written
        self._dirty = asyncio.Event()
        self._written = asyncio.Event()

    def _container(self, spec: RunContainer) -> LocalContainer:
        tools = self._tools
        return LocalContainer(self.pod, spec, tools.guard, tools.runtime, tools.clock, self._mark_dirty)

    def delete(self, grace: float) -> None:
        """The pod was deleted, with a grace period in s. A second call may only shorten it."""
        self._grace = min(grace, self._grace) if self._ending.is_set() else grace
        self._ending.set()

    def vanish(self) -> None:
        """The object does not exist any more: the pod ends at once and no status is written."""
        self._vanished = True
        self.delete(0.0)

    async def run(self) -> None:
        writing = asyncio.create_task(self._write())
        try:
            if not self.pod.terminal:
                await self._live()
                await self._wait_until_written()
            await self._ending.wait()
            await self._wait_until_written()
            if not self._vanished or self.pod.terminal:
                await self._confirm()
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
            self._tools.runtime.sandbox_removed(self._sandbox)
            for folder in (self._folder, self._logs):
                shutil.rmtree(folder, ignore_errors=True)

    @property
    def _folder(self) -> Path:
        return self._tools.folder / self.pod.uid

    @property
    def _logs(self) -> Path:
        return self._tools.logs / self.pod.uid

    async def _live(self) -> None:
        """Until every container has ended and will not be restarted, or until something ends the pod."""
        if self.pod.lost and self.pod.spec.restart_policy == "Never":
            self._give_up()
            return
        meta = self.pod.metadata
        for folder in (self._folder, self._logs):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        annotations = {"kubernetes.io/config.source": "api"} | meta.annotations
        self._tools.runtime.sandbox_started(
            LocalSandbox(self._sandbox, meta.name, meta.namespace, meta.uid, meta.labels, annotations, self._start)
        )
        life = asyncio.create_task(self._run_all())
        ends = [asyncio.create_task(self._ending.wait()), *self._deadline()]
        try:
            done, _ = await asyncio.wait([life, *ends], return_when=asyncio.FIRST_COMPLETED)
            if life not in done:
                if not self._ending.is_set():
                    self._verdict = DEADLINE
                await self._stop(self._grace if self._ending.is_set() else self._own_grace())
            await life
        finally:
            for task in (life, *ends):
                task.cancel()
            await asyncio.gather(life, *ends, return_exceptions=True)
            self._tools.runtime.sandbox_stopped(self._sandbox)
            self._mark_dirty()

    def _own_grace(self) -> float:
        grace = self.pod.spec.termination_grace_period_seconds
        return GRACE if grace is None else float(grace)

    def _deadline(self) -> list[asyncio.Task[None]]:
        seconds = self.pod.spec.active_deadline_seconds
        return [] if seconds is None else [asyncio.create_task(self._tools.clock.sleep(seconds))]

    async def _stop(self, grace: float) -> None:
        """Stop all containers; a deletion with grace 0 that arrives in the meantime kills them."""
        stopping = asyncio.gather(*(one.stop(grace) for one in (*self._inits, *self._containers)))
        while not stopping.done() and self._grace > 0.0:
            await asyncio.wait([stopping], timeout=0.2)
        if not stopping.done():
            await asyncio.gather(*(one.stop(0.0) for one in (*self._inits, *self._containers)))
        await stopping

    async def _run_all(self) -> None:
        policy = self.pod.spec.restart_policy
        self._mark_dirty()
        for init in self._inits:
            await self._run_one(init, lambda code: code != 0 and policy != "Never")
            end = init.state.terminated
            if end is None or end.exit_code:
                return
        again: dict[str, Callable[[int], bool]] = {"Always": lambda _: True, "OnFailure": lambda code: code != 0}
        restart = again.get(policy, lambda _: False)
        await asyncio.gather(*(self._run_one(container, restart) for container in self._containers))

    async def _run_one(self, container: LocalContainer, restart: Callable[[int], bool]) -> None:
        old = {one.name: one.restart_count for one in self.pod.status.container_statuses}
        if self.pod.lost:
            container.state.restarts = old.get(container.spec.name, 0) + 1
        await container.run(self._sandbox, self._folder, self._logs / f"{container.spec.name}.log", restart)

    def _give_up(self) -> None:
        """Its containers ended with the node process that ran them, and must not be restarted."""
        now = self._tools.clock.wall()
        for container in self._containers:
            end = Terminated(137, "ContainerStatusUnknown", 0.0, now, message=LOST)
            container.state = ContainerState(terminated=end, over=True)
        self._mark_dirty()

    def _mark_dirty(self) -> None:
        self._written.clear()
        self._dirty.set()

    async def _wait_until_written(self) -> None:
        """Return when the API server has the newest status."""
        if self._dirty.is_set() and not self._vanished:
            await self._written.wait()

    async def _write(self) -> None:
        """Write the newest status; changes during a write are written next."""
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            if not self._vanished and not await self._patch():
                self._dirty.set()
                await self._tools.clock.sleep(RETRY)
            if not self._dirty.is_set():
                self._written.set()

    def _status(self) -> dict[str, Any]:
        def named(containers: list[LocalContainer]) -> list[NamedContainer]:
            return [NamedContainer(one.spec.name, one.spec.image, one.state) for one in containers]

        now = self._tools.clock.wall()
        return status_of(named(self._inits), named(self._containers), self._conditions, self._start, self._verdict, now)

    async def _patch(self) -> bool:
        return await self._wait_written_or_gone(pods.patch_status(self._tools.client, self.pod, self._status()))

    async def _confirm(self) -> None:
        """The pod's processes have ended, so the object is deleted."""
        while not await self._wait_written_or_gone(pods.delete(self._tools.client, self.pod, grace=0)):
            await self._tools.clock.sleep(RETRY)

    async def _wait_written_or_gone(self, request: Awaitable[None]) -> bool:
        """Whether nothing is left to do: the request succeeded, or this pod does not exist any more."""
        try:
            await request
        except ApiError as error:
            if error.status in NOT_THIS_POD:
                return True
            log.warning("pod %s: %s", self.pod.key, error)
            return False
        except (CaricoError, OSError) as error:
            log.warning("pod %s: %s; trying again", self.pod.key, str(error) or type(error).__name__)
            return False
        return True
