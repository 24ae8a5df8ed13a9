"""`runtime: auto` takes the best that can be used: containerd's events, then CRI, then the kubepods cgroups.

It decides once, at the start. Only while it has found nothing does it look again: a source that works is not changed
for a better one under the estimator's feet, and one that breaks is the node's own and comes back.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Protocol

from carico.clock import Clock
from carico.errors import SourceError
from carico.runtime.cgroups import CgroupSource, kubepods
from carico.runtime.channel import probe
from carico.runtime.containerd import containerd
from carico.runtime.cri import cri
from carico.runtime.pods import PodTable
from carico.settings import RuntimeSettings

log = logging.getLogger(__name__)

LOOK_AGAIN = 10.0  # s


class Source(Protocol):
    """Tells which pods run here."""

    @property
    def name(self) -> str: ...
    @property
    def table(self) -> PodTable: ...
    @property
    def problem(self) -> str | None:
        """Why the table may be wrong at the moment, or None."""

    async def run(self) -> None:
        """Keeps the table right, for ever; an outage of the runtime never ends it."""


class NoSource:
    """`runtime: none`: no pods are counted, and that is no problem."""

    name = "none"
    problem: str | None = None

    def __init__(self, table: PodTable, clock: Clock) -> None:
        self.table = table
        self._clock = clock

    async def run(self) -> None:
        while True:
            await self._clock.sleep(3600.0)


class AutoSource:
    def __init__(self, settings: RuntimeSettings, cgroup_root: Path, table: PodTable, clock: Clock) -> None:
        self.table = table
        self._settings = settings
        self._cgroup_root = cgroup_root
        self._clock = clock
        self._chosen: Source | None = None
        self._why_none = "no container runtime looked for yet"

    @property
    def name(self) -> str:
        return self._chosen.name if self._chosen else "auto"

    @property
    def problem(self) -> str | None:
        return self._chosen.problem if self._chosen else self._why_none

    async def run(self) -> None:
        while (chosen := await self._choose()) is None:
            await self._clock.sleep(LOOK_AGAIN)
        log.info("pods are counted by %s", chosen.name)
        self._chosen = chosen
        await chosen.run()

    async def _choose(self) -> Source | None:
        why_not = []
        for follow, path in ((containerd, self._settings.containerd_socket), (cri, self._settings.cri_socket)):
            try:
                await probe(path)
                return follow(path, self.table, self._clock)
            except SourceError as error:
                why_not.append(str(error))
        try:
            kubepods(self._cgroup_root)
            return CgroupSource(self._cgroup_root, self.table, self._clock)
        except SourceError as error:
            why_not.append(str(error))
        self._say("; ".join(why_not))
        return None

    def _say(self, why_none: str) -> None:
        if why_none != self._why_none:
            log.warning("no pods are counted: %s; looking again every %.0f s", why_none, LOOK_AGAIN)
        self._why_none = why_none
