"""Early churn warning: the kubelet creates a pod's cgroup about 0.3 s before containerd's first event
(docs/event-lead.md).

containerd 2 sets up a pod's network, which is most of the spike, before its first event about that pod. The cgroup is
created before both, and inotify reports it without polling. It only marks churn; which pods run is determined by the
runtime. Where the kubepods tree is not visible there is no warning, and nothing else changes.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from pathlib import Path

from carico.clock import Clock
from carico.errors import SourceMissing
from carico.runtime.auto import RuntimeSource
from carico.runtime.cgroups import QOS, kubepods
from carico.runtime.pods import PodTable

LOOK_AGAIN = 30.0  # s; the kubelet may create its tree after the agent starts, or re-create it
IN_CREATE = 0x100
IN_ONLYDIR = 0x01000000


class CgroupNotifier:
    """A source, with an early churn warning from the kubelet's cgroups."""

    def __init__(self, source: RuntimeSource, cgroup_root: Path, clock: Clock) -> None:
        self._source = source
        self._cgroup_root = cgroup_root
        self._clock = clock

    @property
    def name(self) -> str:
        return self._source.name

    @property
    def table(self) -> PodTable:
        return self._source.table

    @property
    def problem(self) -> str | None:
        return self._source.problem

    @property
    def socket(self) -> Path | None:
        return self._source.socket

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._source.run())
            group.create_task(self._listen())

    async def _listen(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)  # not at import: recordings are read on other systems too
        descriptor = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if descriptor < 0:  # the limit of inotify instances is reached: no warning
            return
        loop = asyncio.get_running_loop()
        loop.add_reader(descriptor, self._on_readable, descriptor)
        try:
            while True:
                for folder in _where_pods_come(self._cgroup_root):  # adding a watch again has no effect
                    libc.inotify_add_watch(descriptor, os.fsencode(folder), IN_CREATE | IN_ONLYDIR)
                await self._clock.sleep(LOOK_AGAIN)
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)

    def _on_readable(self, descriptor: int) -> None:
        os.read(descriptor, 65536)
        self.table.expect_pod(self._clock.monotonic())


def _where_pods_come(cgroup_root: Path) -> list[Path]:
    try:
        top = kubepods(cgroup_root)
        return [top, *(folder for folder in top.iterdir() if QOS.search(folder.name))]
    except (SourceMissing, OSError):
        return []
