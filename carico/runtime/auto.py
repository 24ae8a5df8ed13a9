"""`runtime: auto` selects the best available source: containerd's events, then CRI, then the kubepods cgroups.

It selects once, at the start, and retries only while there is none. A working source is not replaced by a better one
while the estimator uses it, and a source that fails is the node's runtime and is expected to return.

A machine may have a second containerd, such as Docker's in addition to that of k3s: a runtime that responds is not
necessarily the kubelet's. If it has no pods while processes run in the kubelet's cgroups, it belongs to something else,
and the next candidate is tried.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from carico.clock import Clock
from carico.errors import SourceError
from carico.runtime.cgroups import CgroupSource, has_pods, kubepods
from carico.runtime.channel import probe
from carico.runtime.containerd import containerd
from carico.runtime.cri import cri
from carico.runtime.pod_cgroups import PodCgroups
from carico.runtime.pods import PodTable
from carico.settings import RuntimeSettings

log = logging.getLogger(__name__)

LOOK_AGAIN = 10.0  # s
DOUBT_EVERY = 5.0  # s between two checks whether a runtime without pods is the kubelet's
# Sockets of distributions that include their own containerd; tried after the one of the settings.
OTHER_CONTAINERDS = (
    Path("/run/k3s/containerd/containerd.sock"),
    Path("/run/k0s/containerd.sock"),
    Path("/var/snap/microk8s/common/run/containerd.sock"),
)


class RuntimeSource(Protocol):
    """Maintains the table of pods on this node."""

    @property
    def name(self) -> str: ...
    @property
    def table(self) -> PodTable: ...
    @property
    def problem(self) -> str | None:
        """Why the table may be wrong at the moment, or None."""

    @property
    def socket(self) -> Path | None:
        """The socket of the runtime; None for a source without one."""

    async def run(self) -> None:
        """Keeps the table up to date indefinitely; an outage of the runtime does not end it."""


class NoSource:
    """`runtime: none`: no pods are counted, and no problem is reported."""

    name = "none"
    problem: str | None = None
    socket: Path | None = None

    def __init__(self, table: PodTable, clock: Clock) -> None:
        self.table = table
        self._clock = clock

    async def run(self) -> None:
        while True:
            await self._clock.sleep(3600.0)


class AutoSource:
    def __init__(
        self,
        settings: RuntimeSettings,
        cgroup_root: Path,
        table: PodTable,
        clock: Clock,
        cgroups: PodCgroups | None = None,
    ) -> None:
        self.table = table
        self._settings = settings
        self._cgroup_root = cgroup_root
        self._cgroups = cgroups or PodCgroups(cgroup_root)
        self._clock = clock
        self._chosen: RuntimeSource | None = None
        self._foreign: dict[Path, str] = {}  # sockets of runtimes that are not the kubelet's → the reason
        self._why_none = "no container runtime looked for yet"

    @property
    def name(self) -> str:
        return self._chosen.name if self._chosen else "auto"

    @property
    def socket(self) -> Path | None:
        return self._chosen.socket if self._chosen else None

    @property
    def problem(self) -> str | None:
        return self._chosen.problem if self._chosen else self._why_none

    async def run(self) -> None:
        while True:
            while (chosen := await self._choose()) is None:
                await self._clock.sleep(LOOK_AGAIN)
            log.info("pods are counted by %s", chosen.name)
            self._chosen = chosen
            if chosen.socket is None:
                await chosen.run()
            else:
                await self._run_while_it_is_the_kubelets(chosen, chosen.socket)
            self._chosen = None

    async def _run_while_it_is_the_kubelets(self, chosen: RuntimeSource, socket: Path) -> None:
        tasks = [asyncio.ensure_future(chosen.run()), asyncio.ensure_future(self._until_foreign())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if tasks[0].done():
                tasks[0].result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        why = f"{socket} has no pods, but pods run below {self._cgroup_root}: it is not the kubelet's runtime"
        log.warning("%s; looking for another one", why)
        self._foreign[socket] = why

    async def _until_foreign(self) -> None:
        """Two checks in a row, since a pod's cgroup is created before the runtime has the pod."""
        suspicious = 0
        while suspicious < 2:
            await self._clock.sleep(DOUBT_EVERY)
            working = self._chosen is not None and self._chosen.problem is None
            suspicious = suspicious + 1 if working and not self.table.counted() and has_pods(self._cgroup_root) else 0

    def _candidates(self) -> Iterator[tuple[Callable[..., RuntimeSource], Path]]:
        yield containerd, self._settings.containerd_socket
        yield from ((containerd, path) for path in OTHER_CONTAINERDS if path.exists())
        yield cri, self._settings.cri_socket

    async def _choose(self) -> RuntimeSource | None:
        why_not = []
        for follow, path in self._candidates():
            if path in self._foreign:
                why_not.append(self._foreign[path])
                continue
            try:
                await probe(path)
                return follow(path, self.table, self._clock, self._cgroups)
            except SourceError as error:
                why_not.append(str(error))
        try:
            kubepods(self._cgroup_root)
            return CgroupSource(self._cgroup_root, self.table, self._clock)
        except SourceError as error:
            why_not.append(str(error))
        self._log_choice("; ".join(why_not))
        return None

    def _log_choice(self, why_none: str) -> None:
        if why_none != self._why_none:
            log.warning("no pods are counted: %s; looking again every %.0f s", why_none, LOOK_AGAIN)
        self._why_none = why_none
