"""One run of the demo: all pods are created at once, then watched until the last is done.

Times are taken here, on watch events: Kubernetes' time stamps have whole seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from carico.errors import CaricoError
from carico.kube import calls, pods
from carico.kube.client import Client
from carico.kube.objects import Pod
from carico.kube.watch import Reflector, WatchedResource

NAMESPACE = "default"
JOB_LABEL = "batch.kubernetes.io/job-name"
GONE_WITHIN = 30.0  # s for the pods of a run to be deleted


class PlacementVariant(NamedTuple):
    """A way of placing the same pods."""

    name: str
    label: str
    scheduler: str
    cpu_request: str  # empty: none


VARIANTS = (
    PlacementVariant("100m", "requests 100m", "packed", "100m"),
    PlacementVariant("500m", "requests 500m", "packed", "500m"),
    PlacementVariant("carico", "Carico, no requests", "carico", ""),
)


@dataclass
class PodTimes:
    """s, monotonic."""

    created: float
    started: float | None = None
    done: float | None = None


@dataclass
class DemoRun:
    """What happened to the pods of one run."""

    way: PlacementVariant
    published: float
    pods: dict[str, PodTimes] = field(default_factory=dict)
    latencies: list[float] = field(default_factory=list)  # s, of the web server
    utilisation: float = 0.0

    @property
    def done(self) -> int:
        return sum(pod.done is not None for pod in self.pods.values())

    @property
    def running(self) -> int:
        return sum(pod.started is not None and pod.done is None for pod in self.pods.values())


def manifest(way: PlacementVariant, name: str, command: list[str]) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "work", "image": "local", "command": command}
    if way.cpu_request:
        container["resources"] = {"requests": {"cpu": way.cpu_request}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {JOB_LABEL: f"pi-{way.name}"}},
        "spec": {"schedulerName": way.scheduler, "restartPolicy": "Never", "containers": [container]},
    }


class DemoJob:
    """Runs the pods of one way and records their times."""

    def __init__(self, client: Client, way: PlacementVariant, commands: Iterable[list[str]]) -> None:
        self._client = client
        self._commands = {f"pi-{way.name}-{i:03}": command for i, command in enumerate(commands)}
        self._selector = f"labelSelector={JOB_LABEL}%3Dpi-{way.name}"
        self._over = asyncio.Event()
        self._failure: str | None = None
        self.run = DemoRun(way, time.monotonic())

    async def work(self) -> DemoRun:
        watching = asyncio.create_task(self._reflector(self._seen).run())
        try:
            self.run.published = time.monotonic()
            await asyncio.gather(*(self._create(name, command) for name, command in self._commands.items()))
            await self._over.wait()
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        if self._failure is not None:
            raise CaricoError(self._failure)
        return self.run

    async def clear(self) -> None:
        """Delete the pods and wait until they are deleted."""
        gone = asyncio.Event()

        def look(_: Pod | None, __: Pod | None) -> None:
            if not reflector.store:
                gone.set()

        reflector = self._reflector(look)
        await pods.delete_all(self._client, NAMESPACE, self._selector)
        watching = asyncio.create_task(reflector.run())
        try:
            async with asyncio.timeout(GONE_WITHIN):
                await reflector.synced.wait()
                if reflector.store:
                    await gone.wait()
        except TimeoutError:
            raise CaricoError(f"{len(reflector.store)} pods were not deleted within {GONE_WITHIN:.0f} s") from None
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    def _reflector(self, on_change: Callable[[Pod | None, Pod | None], None]) -> Reflector[Pod]:
        return Reflector(self._client, WatchedResource(calls.FOLLOW_PODS, Pod, f"&{self._selector}"), on_change)

    async def _create(self, name: str, command: list[str]) -> None:
        self.run.pods[name] = PodTimes(time.monotonic())
        await pods.create(self._client, NAMESPACE, manifest(self.run.way, name, command))

    def _seen(self, _: Pod | None, pod: Pod | None) -> None:
        if pod is None or (times := self.run.pods.get(pod.name)) is None:
            return
        now = time.monotonic()
        if pod.status.phase == "Failed":
            self._failure = f"pod {pod.name} failed; its log may contain the reason (--keep leaves it for kubectl logs)"
            self._over.set()
        if pod.status.phase in ("Running", "Succeeded") and times.started is None:
            times.started = now
        if pod.status.phase == "Succeeded" and times.done is None:
            times.done = now
        if self.run.done == len(self._commands):
            self._over.set()
