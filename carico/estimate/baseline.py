"""Usage of a node that belongs to no pod: x = b + γ·Σd, with the demand d of every pod measured.

Every second is an observation of b, whatever the pods do. γ is near 1: some of the kernel's work for pods is not
charged to any cgroup. Both are the state of one Kalman filter, in which γ may change little and slowly. Two large
residuals in a row with the same sign increase the variance of b: a process that is not a pod has started or stopped.
Two kinds of seconds count only if usage is below the prediction: the first after a saturated one, in which pods have
ended while the run queue and their last readings are means over a time in which they ran; and those with pods that were
not read yet: neither their demand is known, nor for how long their limit throttled them, which pressure shows as load.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from carico.estimate.kalman import LineKalman
from carico.estimate.saved import numbers

FIRST, FIRST_VARIANCE = 0.1, 0.2**2
WALK = 0.001**2  # per second
GAMMA_VARIANCE, GAMMA_WALK = 0.02**2, 0.00002**2
GAMMA_LEAST, GAMMA_MOST = 0.9, 1.1
MODEL_ERROR = 0.004**2
SURPRISE = 3.0  # standard deviations


class Baseline:
    """One resource, as shares of the node.

    >>> node = Baseline()
    >>> for second in range(60):
    ...     pods = 0.1 * (second % 5)
    ...     node.learn(0.2 + pods, pods, noise=1e-6, seconds=1.0, saturated=False)
    >>> round(node.b, 2)
    0.2
    """

    def __init__(self) -> None:
        self._line = LineKalman(FIRST, 1.0, FIRST_VARIANCE, GAMMA_VARIANCE, qb=WALK, qc=GAMMA_WALK)
        self._last = 0.0  # the previous residual, in standard deviations
        self._was_saturated = False  # in the previous second

    def learn(
        self,
        usage: float,
        pods: float,
        noise: float,
        seconds: float,
        *,
        saturated: bool,
        may_miss: bool = False,
        unread: bool = False,
    ) -> None:
        """`pods` is the sum of the pods' demands in the same second, `noise` the variance of usage less that sum.

        `unread`: that sum includes a guess for a pod without a reading.

        `may_miss`: more threads are busy than there are processors. Pressure then shows only a part of their wait if
        they are spread unevenly over the processors, so a usage far below the prediction has no meaning.
        """
        line, too_high = self._line, unread or (self._was_saturated and not saturated)
        self._was_saturated = saturated
        line.predict(min(seconds, 60.0))
        r = noise + MODEL_ERROR
        off = usage - line.at(pods)
        if saturated and off < 0.0:  # a lower bound below the prediction: no information
            return
        variance = line.spread(pods) + r
        surprise = off / math.sqrt(variance)
        doubtful = too_high and off > 0.0
        if may_miss and surprise < -SURPRISE:
            return
        if not doubtful and abs(surprise) > SURPRISE and self._last * surprise > 0.0 and abs(self._last) > SURPRISE:
            line.pbb = min(line.pbb + off * off, 1.0)
        self._last = 0.0 if doubtful else surprise
        line.update(usage, pods, r)
        line.c = min(max(line.c, GAMMA_LEAST), GAMMA_MOST)
        line.b = min(max(line.b, -0.05), 1.0)

    @property
    def b(self) -> float:
        return min(max(self._line.b, 0.0), 1.0)

    @property
    def gamma(self) -> float:
        return self._line.c

    def at(self, pods: float) -> float:
        return self._line.at(pods)

    def rescale(self, factor: float) -> None:
        """The node's size changed: converts shares of the old size to shares of the new one."""
        line = self._line
        line.b *= factor
        line.pbb *= factor * factor
        line.pbc *= factor
        self._last = 0.0

    def save(self) -> dict[str, object]:
        line = self._line
        return {"line": [line.b, line.c, line.pbb, line.pbc, line.pcc, self._last]}

    def restore(self, state: Mapping[str, object]) -> None:
        b, c, pbb, pbc, pcc, last = numbers(state, "line", 6, least=-1e6, most=1e6)
        if not (-1.0 <= b <= 1.0 and GAMMA_LEAST <= c <= GAMMA_MOST and min(pbb, pcc) >= 0.0):
            raise ValueError("saved state: 'line' is not a baseline; delete the state file to start fresh")
        if pbc * pbc > pbb * pcc + 1e-12:
            raise ValueError("saved state: 'line' holds impossible variances; delete the state file to start fresh")
        line = self._line
        line.b, line.c, line.pbb, line.pbc, line.pcc, self._last = b, c, pbb, pbc, pcc, last
