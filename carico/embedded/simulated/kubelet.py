"""The kubelet of all simulated nodes: a bound pod runs at once, and ends after the time in its annotation.

carico.dev/runs-for: 5s      the pod succeeds after five seconds; without it, it runs until it is deleted
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Collection
from typing import Any

from carico.clock import Clock
from carico.errors import ApiError, CaricoError
from carico.kube import calls, pods
from carico.kube.binding import NOT_THIS_POD, rfc3339
from carico.kube.client import MERGE_PATCH, Client
from carico.kube.objects import Pod
from carico.kube.watch import Reflector, WatchedResource

log = logging.getLogger(__name__)

RUNS_FOR = "carico.dev/runs-for"
BOUND: WatchedResource[Pod] = WatchedResource(calls.FOLLOW_PODS, Pod, "&fieldSelector=spec.nodeName!=")
AT_ONCE = 32  # writes in flight
_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?")

Counts = Callable[[str, str, bool], None]  # node, UID, whether it runs


def seconds(text: str) -> float | None:
    """
    >>> seconds("5s"), seconds("1m30s"), seconds("0.5s"), seconds("soon")
    (5.0, 90.0, 0.5, None)
    """
    match = _DURATION.fullmatch(text)
    if not text or match is None:
        return None
    hours, minutes, rest = (float(part or 0) for part in match.groups())
    return hours * 3600 + minutes * 60 + rest


class SimulatedKubelet:
    """Simulates all pods of `nodes`, and calls `counts` when one starts or ends."""

    def __init__(self, client: Client, nodes: Collection[str], counts: Counts, clock: Clock) -> None:
        self._client, self._nodes, self._counts, self._clock = client, nodes, counts, clock
        self._pods = Reflector(client, BOUND, self._on_change, clock=clock)
        self._tasks: dict[str, asyncio.Task[None]] = {}  # UID to the task that simulates the pod
        self._places = asyncio.Semaphore(AT_ONCE)

    async def run(self) -> None:
        try:
            await self._pods.run()
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _on_change(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        assert pod is not None
        if pod.spec.node_name not in self._nodes:
            return
        if new is None or new.terminal:
            self._counts(pod.spec.node_name, pod.uid, False)
            if new is None:
                self._end(pod)
        elif new.terminating:
            if old is None or not old.terminating:
                self._start(pod, self._leave(new))
        elif pod.uid not in self._tasks:
            self._start(pod, self._live(new))

    def _start(self, pod: Pod, life: Any) -> None:
        self._end(pod)
        self._tasks[pod.uid] = asyncio.create_task(life)

    def _end(self, pod: Pod) -> None:
        task = self._tasks.pop(pod.uid, None)
        if task is not None:
            task.cancel()

    async def _live(self, pod: Pod) -> None:
        if pod.status.phase != "Running":
            await self._write_status(pod, running(pod, self._clock.wall()))
        self._counts(pod.spec.node_name, pod.uid, True)
        wanted = pod.metadata.annotations.get(RUNS_FOR)
        if wanted is None:
            return
        span = seconds(wanted)
        if span is None:
            log.warning(
                "pod %s: %s: %r is no duration such as 5s or 1m30s; it runs until deleted",
                pod.key,
                RUNS_FOR,
                wanted,
            )
            return
        began = self._clock.wall()
        await self._clock.sleep(span)
        await self._write_status(pod, succeeded(pod, began, self._clock.wall()))

    async def _leave(self, pod: Pod) -> None:
        """No process has to be stopped: the API server may delete the pod."""
        await self._send(lambda: pods.delete(self._client, pod, grace=0))

    async def _write_status(self, pod: Pod, status: dict[str, Any]) -> None:
        await self._send(lambda: pods.patch_status(self._client, pod, status, MERGE_PATCH))

    async def _send(self, request: Callable[[], Awaitable[None]]) -> None:
        """Retry until it succeeds, or the pod does not exist any more."""
        while True:
            try:
                async with self._places:
                    await request()
                return
            except ApiError as error:
                if error.status in NOT_THIS_POD:
                    return
                log.warning("%s", error)
            except (CaricoError, OSError) as error:
                log.warning("%s", str(error) or type(error).__name__)
            await self._clock.sleep(1.0)


def _conditions(at: str, ready: bool) -> list[dict[str, str]]:
    conditions = {"Initialized": True, "ContainersReady": ready, "Ready": ready, "PodScheduled": True}
    return [{"type": name, "status": str(holds), "lastTransitionTime": at} for name, holds in conditions.items()]


def _status(pod: Pod, phase: str, at: str, state: dict[str, Any], ready: bool) -> dict[str, Any]:
    containers = [
        {
            "name": one.name,
            "image": one.image,
            "imageID": "",
            "ready": ready,
            "started": ready,
            "restartCount": 0,
            "state": state,
        }
        for one in pod.spec.containers
    ]
    return {"phase": phase, "conditions": _conditions(at, ready), "containerStatuses": containers}


def running(pod: Pod, wall: float) -> dict[str, Any]:
    now = _text(wall)
    status = _status(pod, "Running", now, {"running": {"startedAt": now}}, ready=True)
    return status | {"startTime": now, "hostIP": "127.0.0.1", "podIP": "127.0.0.1"}


def succeeded(pod: Pod, began: float, wall: float) -> dict[str, Any]:
    now = _text(wall)
    ended = {"exitCode": 0, "reason": "Completed", "startedAt": _text(began), "finishedAt": now}
    return _status(pod, "Succeeded", now, {"terminated": ended}, ready=False)


def _text(wall: float) -> str:
    return rfc3339(wall)[:19] + "Z"
