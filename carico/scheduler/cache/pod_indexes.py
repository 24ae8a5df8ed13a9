"""Indexes over the pods on nodes, which plugins register.

An index gets the same calls whether a pod is bound, assumed, or only tried: every `add` is undone by a `remove` with
the same arguments. After a restart it is rebuilt by the calls for the pods that are there, so it needs no storage.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from carico.scheduler.cache.template import PodInfo

__all__ = ["PodIndex"]


class PodIndex(Protocol):
    """Called synchronously at every change, so it must be fast; an exception is logged and ignored."""

    @property
    def name(self) -> str: ...
    def add(self, pod: PodInfo, row: int) -> None: ...
    def remove(self, pod: PodInfo, row: int) -> None: ...
    def node_changed(self, row: int) -> None:
        """The row's Node was added, changed or removed; another node may have the row now."""
        ...


Contain = Callable[[str, Exception], object]


class PodIndexes:
    """The registered ones; an exception of one does not keep the change from the others."""

    def __init__(self) -> None:
        self._indexes: list[tuple[PodIndex, Contain]] = []

    def __bool__(self) -> bool:
        return bool(self._indexes)

    def register(self, index: PodIndex, contain: Contain) -> None:
        self._indexes.append((index, contain))

    def change(self, pod: PodInfo, row: int, change: int) -> None:
        for index, contain in self._indexes:
            try:
                index.add(pod, row) if change > 0 else index.remove(pod, row)
            except Exception as error:
                contain(index.name, error)

    def node_changed(self, row: int) -> None:
        for index, contain in self._indexes:
            try:
                index.node_changed(row)
            except Exception as error:
                contain(index.name, error)
