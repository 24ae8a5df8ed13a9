"""Scores of the feasible nodes: the weighted sum over the Score plugins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from carico.scheduler.cache.rows import RowArray
from carico.scheduler.framework.contract import MAX_SCORE, Code, Cycle, Plugin, PreScore, Score
from carico.types import Vector


class Scoring:
    """The score plugins of one profile; a weight of 0 leaves a plugin out."""

    def __init__(self, plugins: Sequence[Plugin], weights: Mapping[str, float]) -> None:
        # Evaluated here and not per pod: isinstance with a protocol costs more than most scores.
        self._plugins = [
            (p, weights.get(p.name, 1.0), p if isinstance(p, PreScore) else None)
            for p in plugins
            if isinstance(p, Score) and weights.get(p.name, 1.0) > 0
        ]

    def run(self, cycle: Cycle, rows: RowArray) -> Vector:
        total: Vector | None = None
        for _, weight, scores in self.table(cycle, rows):
            weighed = scores if weight == 1 else weight * scores  # never written to: it may be the plugin's own array
            total = weighed if total is None else total + weighed
        return np.zeros(len(rows)) if total is None else total

    def table(self, cycle: Cycle, rows: RowArray) -> Iterator[tuple[str, float, Vector]]:
        """Name, weight and scores in [0, 100] of every plugin that does not skip the pod."""
        times = cycle.times
        for plugin, weight, prepared in self._plugins:
            if times is not None:
                if prepared is not None:
                    status = times.call("PreScore", plugin.name, prepared.pre_score, cycle, rows)
                    if status.code is Code.SKIP:
                        continue
                yield plugin.name, weight, times.call("Score", plugin.name, plugin.score, cycle, rows)
            elif prepared is None or prepared.pre_score(cycle, rows).code is not Code.SKIP:
                yield plugin.name, weight, plugin.score(cycle, rows)


def normalised(raw: Vector, *, reverse: bool = False) -> Vector:
    """Scaled so that the largest becomes 100; `reverse`: subtracted from 100, so that lower raw values are better.

    >>> normalised(np.array([0.0, 1.0, 4.0])).tolist(), normalised(np.array([0.0, 1.0, 4.0]), reverse=True).tolist()
    ([0.0, 25.0, 100.0], [100.0, 75.0, 0.0])
    """
    top = raw.max(initial=0.0)
    scaled = raw * (MAX_SCORE / top) if top > 0 else np.zeros_like(raw)
    return MAX_SCORE - scaled if reverse else scaled
