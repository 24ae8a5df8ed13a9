"""The pods that are bound to this node, and one worker for each of them."""

from __future__ import annotations

import asyncio
import logging

from carico.embedded.node.objects import RunPod
from carico.embedded.node.worker import GRACE, Worker, WorkerTools
from carico.kube import calls
from carico.kube.paths import segment
from carico.kube.watch import Reflector, WatchedResource

log = logging.getLogger(__name__)


class EmbeddedKubelet:
    """Watches the pods that are bound to `node`. A failure of one pod's worker ends only that worker."""

    def __init__(self, node: str, tools: WorkerTools) -> None:
        self._tools = tools
        self._workers: dict[str, Worker] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._pods = Reflector(
            tools.client,
            WatchedResource(calls.FOLLOW_PODS, RunPod, f"&fieldSelector=spec.nodeName%3D{segment(node)}"),
            self._on_change,
            clock=tools.clock,
        )

    async def run(self) -> None:
        try:
            await self._pods.run()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _on_change(self, old: RunPod | None, new: RunPod | None) -> None:
        if new is None:
            if old is not None and (worker := self._workers.get(old.uid)) is not None:
                worker.vanish()
            return
        worker = self._workers.get(new.uid)
        if worker is None:
            worker = self._workers[new.uid] = Worker(new, self._tools)
            task = asyncio.create_task(self._run(worker))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if new.metadata.deletion_timestamp is not None:
            worker.delete(_grace(new))

    async def _run(self, worker: Worker) -> None:
        try:
            await worker.run()
        except Exception:
            log.exception("pod %s: its worker failed", worker.pod.key)
        finally:
            self._workers.pop(worker.pod.uid, None)


def _grace(pod: RunPod) -> float:
    grace = pod.metadata.deletion_grace_period_seconds
    return GRACE if grace is None else float(grace)
