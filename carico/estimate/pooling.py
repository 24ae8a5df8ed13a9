"""How much more than their means pods that swing can want at once.

Swings that are independent of each other add up as √Σσ², swings in step as Σσ. How far this node's pods are in step is
measured: the variance of the sum of their deviations lies between Σσ² and (Σσ)². Until that is known they are taken to
be in step. A pod that wants its highest demand t for a part of the time and little else, m in the mean, has
σ² = m·(t − m).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

DEVIATIONS = 2.0  # that are kept free
MEMORY_SECONDS = 240.0
MOST = 6.0  # of one second's correlation: a burst of all pods at once is far more than its mean over time
FIRST_SECONDS = 60.0  # that "in step" counts for at the beginning


class Pool:
    """One resource of one node.

    >>> pool = Pool()
    >>> pool.margin([1.0, 1.0, 1.0, 1.0], most=20.0)  # in step, until measured
    8.0
    >>> pool.margin([1.0, 1.0, 1.0, 1.0], most=6.0)
    6.0
    """

    def __init__(self) -> None:
        self._seconds = FIRST_SECONDS
        self._in_step = 1.0  # 0: independent, 1: in step

    def learn(self, swings: Sequence[tuple[float, float, float]], seconds: float) -> None:
        """Each pod's deviation from its mean in this second, its standard deviation, and the most it can be."""
        if len(swings) < 2:
            return
        apart = sum([deviation * deviation for _, deviation, _ in swings])
        together = sum([deviation for _, deviation, _ in swings]) ** 2
        if together <= 1.01 * apart:
            return
        found = (sum([off for off, _, _ in swings]) ** 2 - apart) / (together - apart)
        self._seconds = min(self._seconds + seconds, MEMORY_SECONDS)
        self._in_step += min(1.0, seconds / self._seconds) * (min(max(found, -1.0), MOST) - self._in_step)

    def margin(self, deviations: Sequence[float], most: float) -> float:
        """What to keep free beyond the means; `most` is all that the pods can want beyond them."""
        if not deviations:
            return 0.0
        apart, together = sum([d * d for d in deviations]), sum(deviations) ** 2
        share = min(max(self._in_step, 0.0), 1.0)
        return min(DEVIATIONS * math.sqrt(apart + share * max(together - apart, 0.0)), most)
