"""ImageLocality plugin: prefers nodes that have the pod's images; large and widespread images weigh more."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from carico.scheduler.cache.rows import RowArray
from carico.scheduler.cache.snapshot import Snapshot
from carico.scheduler.framework.cluster_events import EventInterest
from carico.scheduler.framework.contract import MAX_SCORE, OK, SKIP, Cycle, PreScore, Score, Status
from carico.types import Vector

# As in kube-scheduler: below 23 MB the download time does not matter; the score saturates at 1000 MB per container.
LEAST = 23 * 1024 * 1024
MOST = 1000 * 1024 * 1024

Sizes = dict[str, dict[int, int]]  # image name to row to bytes


class ImageLocality(PreScore, Score):
    name = "ImageLocality"
    interests: tuple[EventInterest, ...] = ()

    def __init__(self) -> None:
        self._sizes: Sizes = {}
        self._on: dict[int, tuple[str, ...]] = {}  # row to the names of its images
        self._mark = 0  # up to where the snapshot's changes were read

    def pre_score(self, cycle: Cycle, rows: RowArray) -> Status:
        self._refresh(cycle.snapshot)
        found = [name for name in images(cycle) if name in self._sizes]
        cycle.state[self.name] = found
        return OK if found else SKIP

    def score(self, cycle: Cycle, rows: RowArray) -> Vector:
        total = np.zeros(len(cycle.snapshot))
        for name in cycle.state[self.name]:
            total += self._weighed(name, cycle.snapshot)
        containers = len(cycle.pod.pod.spec.containers) + len(cycle.pod.pod.spec.init_containers)
        top = MOST * containers
        return (np.clip(total[rows], LEAST, top) - LEAST) * (MAX_SCORE / (top - LEAST))

    def _weighed(self, name: str, snapshot: Snapshot) -> NDArray[np.float64]:
        """The image's size on its rows, times the share of nodes that have it: one node must not attract all pods."""
        sizes = self._sizes[name]
        weighed = np.zeros(len(snapshot))
        weighed[list(sizes)] = list(sizes.values())
        return weighed * (len(sizes) / max(1, snapshot.node_count))

    def _refresh(self, snapshot: Snapshot) -> None:
        """Only nodes whose images changed are read again: kubelets pull images frequently."""
        changed = snapshot.image_changes.since(self._mark)
        self._mark = snapshot.image_changes.mark
        for row in range(len(snapshot)) if changed is None else changed:
            self._read(snapshot, int(row))

    def _read(self, snapshot: Snapshot, row: int) -> None:
        for name in self._on.pop(row, ()):
            self._sizes[name].pop(row, None)
            if not self._sizes[name]:
                del self._sizes[name]
        node = snapshot.nodes[row]
        here = {name: image.size_bytes for image in (node.status.images if node else ()) for name in image.names}
        for name, size in here.items():
            self._sizes.setdefault(name, {})[row] = size
        if here:
            self._on[row] = tuple(here)


def images(cycle: Cycle) -> list[str]:
    spec = cycle.pod.template.spec
    return [full_name(c.image) for c in (*spec.init_containers, *spec.containers)]


def full_name(image: str) -> str:
    """With the tag `latest` if none is given.

    >>> full_name("registry:5000/web"), full_name("web:2")
    ('registry:5000/web:latest', 'web:2')
    """
    return image if image.rfind(":") > image.rfind("/") else f"{image}:latest"
