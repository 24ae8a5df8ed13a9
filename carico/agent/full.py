"""How much absolute demand this node can hold, per resource. A scheduler's answer refines it with allocatable."""

from __future__ import annotations

import logging
from collections.abc import Callable

from carico.runtime import PodTable
from carico.runtime.cgroups import TOPS
from carico.settings import FULL, NodeSettings
from carico.telemetry.full import FullMemory, full_memory, limit_above
from carico.types import NodeSize

log = logging.getLogger(__name__)


class FullAmounts:
    """Calls `changed` with the new amounts and the node's size whenever one of them changed."""

    def __init__(
        self, settings: NodeSettings, table: PodTable, changed: Callable[[tuple[float, ...], NodeSize], None]
    ) -> None:
        self._settings = settings
        self._table = table
        self._changed = changed
        self._allocatable: float | None = None  # bytes
        self._size: NodeSize | None = None
        self.amounts: tuple[float, ...] = ()
        self.memory: FullMemory | None = None

    def allocatable(self, amounts: NodeSize) -> None:
        """Sets the node's allocatable from the API server."""
        self._allocatable = amounts.memory_bytes
        if self._size is not None:
            self.update(self._size)

    def update(self, size: NodeSize) -> None:
        settings = self._settings
        groups = [pod.cgroup for pod in self._table.workload().values() if pod.cgroup]
        memory = full_memory(
            size,
            allocatable=self._allocatable,
            kubepods=limit_above(settings.cgroup_root, groups[:1] or [f"/{top}/pod" for top in TOPS]),
            ratio=settings.full.get("memory"),
            own_limits=settings.own_limits,
        )
        if self.memory is None or memory.source != self.memory.source:
            log.debug("memory is full at %.0f MiB (%s)", memory.bytes / 2**20, memory.source)
        amounts = tuple([self._amount(dimension, size, memory) for dimension in settings.dimensions])
        if (amounts, size) != (self.amounts, self._size):
            self._changed(amounts, size)
        self.amounts, self.memory, self._size = amounts, memory, size

    def _amount(self, dimension: str, size: NodeSize, memory: FullMemory) -> float:
        """A busy thread is 1.0 of cpu: where pressure is included, a node is full with two of them per core."""
        if dimension == "memory":
            return memory.bytes
        ratio = self._settings.full.get(dimension, FULL)
        threads = 2.0 if dimension == "cpu" and self._settings.cpu != "utilisation" else 1.0
        return ratio * threads * size.of(dimension)
