"""What plugins register besides themselves: kinds of objects to watch, indexes, background tasks, and wake-ups.

    def make(tools: PluginTools) -> Plugin:
        links = tools.register.follow(WatchedResource(FOLLOW_LINKS, Link))    its objects by key, kept current
        tools.register.index(index)                      called for every pod that comes to a node or leaves it
        tools.register.background("LinkProber", probe)   one task in every replica, cancelled when the process ends

A change of a followed object wakes up the pods whose plugins have an interest in its kind, like any other change. What
a plugin learns in another way wakes them by `wake`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from carico.backoff import doubled
from carico.clock import Clock
from carico.errors import UsageError
from carico.kube.calls import ApiCall
from carico.kube.meta import KubeObject
from carico.kube.watch import WatchedResource
from carico.scheduler.cache.pod_indexes import PodIndex
from carico.scheduler.cache.snapshot import Snapshot
from carico.scheduler.framework.cluster_events import ClusterEvent

__all__ = ["Registrations"]

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0  # s before a task that raised is started again
K = TypeVar("K", bound=KubeObject)
Task = Callable[[], Coroutine[Any, Any, None]]


class Registrations:
    """Of the plugins of all profiles of one scheduler."""

    def __init__(self, snapshot: Snapshot, clock: Clock, count_error: Callable[[str], object] = lambda _: None) -> None:
        self._snapshot, self._clock, self._count_error = snapshot, clock, count_error
        self.kinds: list[WatchedResource[Any]] = []
        self._tasks: list[tuple[str, Task]] = []
        self._listeners: list[Callable[[ClusterEvent], object]] = []

    # --- for plugins ---

    def follow(self, resource: WatchedResource[K]) -> Mapping[str, K]:
        """Lists and watches a kind; returns its objects by key. Several plugins may register the same one."""
        if resource not in self.kinds:
            if self._snapshot.store.has_kind(resource.kind):
                raise UsageError(f"kind {resource.kind} is followed already, by other calls or as another type")
            self.kinds.append(resource)
        return self._snapshot.store.table(resource.type)

    def index(self, index: PodIndex) -> None:
        """From now on the index gets every change of the pods on nodes, also while a plan is tried."""
        self._snapshot.indexes.register(index, self.contain)

    def background(self, name: str, task: Task) -> None:
        """Runs while the process runs, in every replica. If it raises it is started again, after a pause."""
        self._tasks.append((name, task))

    def wake(self, change: ClusterEvent) -> None:
        """Wakes up the waiting pods that the change could help, by the interests of the plugins that rejected them."""
        for listener in self._listeners:
            listener(change)

    # --- for the scheduler ---

    @property
    def calls(self) -> list[ApiCall]:
        """The requests that following the registered kinds needs, for the generated roles."""
        return [call for kind in self.kinds for call in (kind.followed.list, kind.followed.watch)]

    def listen(self, listener: Callable[[ClusterEvent], object]) -> None:
        self._listeners.append(listener)

    def contain(self, name: str, error: Exception) -> None:
        """An exception of something that was registered: logged and counted; the process continues."""
        log.error("%s, registered by a plugin, raised an exception", name, exc_info=error)
        self._count_error(name)

    async def run(self) -> None:
        """Runs all background tasks, until it is cancelled; a task that returns is done."""
        async with asyncio.TaskGroup() as group:
            for name, task in self._tasks:
                group.create_task(self._keep_running(name, task))
            await asyncio.get_running_loop().create_future()

    async def _keep_running(self, name: str, task: Task) -> None:
        failures = 0
        while True:
            try:
                await task()
            except Exception as error:
                self.contain(name, error)
            else:
                return
            failures += 1
            await self._clock.sleep(doubled(FIRST_PAUSE, LONGEST_PAUSE, failures))
