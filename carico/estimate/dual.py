"""One resource, two scalar filters: the baseline observes x − c·n, then the cost observes x − b through n.

The report's pair of filters, applied to the usage instead of the signal k. There is no covariance between the two, so
an error of one is not compensated by the other: it converges more slowly than the joint filter and does not oscillate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from carico.estimate.kalman import ScalarKalman
from carico.estimate.ramp import RampTracker
from carico.estimate.saved import numbers

# In shares of the node; found by random search with seeds 1000–1002 of the synthetic node; the benchmark uses others.
BASELINE = (0.1, 0.055**2, 0.0024**2)  # x₀, P₀, Q per second
COST = (0.1, 0.075**2)  # x₀, P₀
COST_WALK = 0.05  # per second, share of the cost
LEAST_COST = 0.03  # lower bound of the cost that the random walk is a share of
MEASUREMENT = 0.0095**2  # variance; usage is not exactly linear in the pods
EVIDENCE = 0.25  # share of the prior variance of c below which the cost counts as known from own evidence


class Dual:
    """Baseline and cost of one resource.

    >>> fit = Dual()
    >>> for second in range(200):
    ...     pods = second // 10 % 4
    ...     fit.learn(0.1 + 0.2 * pods, noise=1e-6, at=float(second), pods=pods, starts=RampTracker(), least=-math.inf)
    >>> round(fit.baseline, 2), round(fit.cost, 2)
    (0.1, 0.2)
    """

    ramp = 0.0  # two scalar filters cannot distinguish a ramp from a pod with a lower cost

    def __init__(self) -> None:
        self._b = ScalarKalman(*BASELINE, r=MEASUREMENT)
        self._c = ScalarKalman(*COST, q=0.0, r=MEASUREMENT)

    def learn(self, z: float, noise: float, at: float, pods: float, starts: RampTracker, least: float) -> None:  # noqa: ARG002
        r = noise + MEASUREMENT
        deviation = math.sqrt(self._b.p + pods * pods * self._c.p + r)
        if z - self.baseline - self.cost * pods < least * deviation:
            return
        self._b.predict()
        self._c.q = (COST_WALK * max(self._c.x, LEAST_COST)) ** 2
        self._c.predict()
        self._b.update(z - self._c.x * pods, 1.0, r + pods * pods * self._c.p)
        self._c.update(z - self._b.x, pods, r + self._b.p)
        self._c.x = max(self._c.x, 0.0)

    def expect(self, first: float) -> None:
        """Does nothing: the prior of the cost is a fixed share of the node."""

    def rescale(self, factor: float) -> None:
        """The node's size changed: multiplies all shares of the node by `factor`."""
        for part in (self._b, self._c):
            part.x, part.p = part.x * factor, part.p * factor * factor

    @property
    def baseline(self) -> float:
        return self._b.x

    @property
    def cost(self) -> float:
        return self._c.x

    @property
    def variance(self) -> float:
        return self._c.p

    @property
    def known(self) -> bool:
        return self.variance < EVIDENCE * COST[1]

    def save(self) -> dict[str, object]:
        return {"filters": [self._b.x, self._b.p, self._c.x, self._c.p]}

    def restore(self, state: Mapping[str, object]) -> None:
        self._b.x, self._b.p, self._c.x, self._c.p = numbers(state, "filters", 4, least=-1e6, most=1e6)
        if min(self._b.p, self._c.p) < 0.0:
            raise ValueError("saved state: 'filters' holds a negative variance; delete the state file to start fresh")
