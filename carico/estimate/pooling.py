"""How much more than the sum of their means pods that swing can demand at once.

The deviations of independent pods add up as √Σσ², of fully correlated pods as Σσ. The correlation between this node's
pods is measured: the variance of the sum of their deviations lies between Σσ² and (Σσ)². Until it is known the pods are
assumed to be fully correlated. A pod that demands its highest value t for a part of the time and little otherwise, with
mean m, has σ² = m·(t − m).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

DEVIATIONS = 2.0  # standard deviations that are kept free
MEMORY_SECONDS = 240.0
MOST = 6.0  # limit of one second's correlation: a burst of all pods at once is far above the mean over time
FIRST_SECONDS = 60.0  # weight of the prior "fully correlated"


class SwingPool:
    """One resource of one node.

    >>> pool = SwingPool()
    >>> pool.margin([1.0, 1.0, 1.0, 1.0], most=20.0)  # in step, until measured
    8.0
    >>> pool.margin([1.0, 1.0, 1.0, 1.0], most=6.0)
    6.0
    """

    def __init__(self) -> None:
        self._seconds = FIRST_SECONDS
        self._in_step = 1.0  # 0: independent, 1: fully correlated

    def learn(self, swings: Sequence[tuple[float, float, float]], seconds: float) -> None:
        """`swings`: of each pod the deviation from its mean, its standard deviation and the maximum deviation."""
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
        """What to keep free above the means; `most` is the maximum that the pods can demand above them."""
        if not deviations:
            return 0.0
        apart, together = sum([d * d for d in deviations]), sum(deviations) ** 2
        share = min(max(self._in_step, 0.0), 1.0)
        return min(DEVIATIONS * math.sqrt(apart + share * max(together - apart, 0.0)), most)
