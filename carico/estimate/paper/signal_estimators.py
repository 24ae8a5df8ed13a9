"""The report's estimators: Pod-Capacity from the signal k, which falls with every pod as k = B − c·n.

    signal             two scalar filters, k with the report's unit σ₁u₁
    signal-trace       two scalar filters, k with the author's trace-normalised unit
    signal-joint       one filter for both
    signal-difference  one filter for c alone, on the differences of k and n from second to second

Pod-Capacity is k/c − u, and B/c − n in churn. `signal-difference` has no B: in churn it keeps its last settled answer
and subtracts the pods that started since. Nothing is learned in churn or while k = 0, where one more pod does not lower
k any further. Without pods on the node c cannot be observed, so it decays back to its initial value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from carico.estimate.estimator import Observation, Prediction
from carico.estimate.kalman import LineKalman, ScalarKalman
from carico.estimate.pod_capacity import bounded, completed
from carico.estimate.prior import Prior
from carico.estimate.saved import numbers, section
from carico.estimate.stage import Stage
from carico.types import CostBelief

CREEP = 0.05  # share of the distance to the initial value per second without pods; author's

# (x₀, P₀, Q per second, R); c is written > 0 where the author wrote the slope −c. Found for each estimator in its own
# unit by random search over seeds 1000–1002 of the synthetic node, which the benchmark does not use. The author's, for
# pods that cost about one unit of the trace-normalised signal, were: B 1.3, 0.01, 1e-4, 0.5 and c 1, 0.2, 1e-3, 0.5;
# differences 1, 0.1, 0.01, 0.1; joint B 1.4, c 1, P 1e-4 and 1e-3, Q 1e-4, R 1. The report itself gives none.
REPORT_BASELINE = (3.0, 0.06, 1.5e-5, 1.0)
REPORT_COST = (0.3, 0.04, 5.6e-6, 0.04)
TRACE_BASELINE = (1.3, 3.0, 3.7e-6, 1.2e-3)
TRACE_COST = (0.1, 4e-3, 2.9e-4, 2.2e-3)
DIFFERENCE_COST = (0.1, 0.025, 1e-3, 0.19)
JOINT_START = (1.4, 0.1, 0.09, 1.7e-3)  # B, c and their variances
JOINT_WALK, JOINT_R = 2.1e-6, 4e-3

LEAST_COST = 1e-3  # k per pod; below it k/c is noise


class Slope(Stage, Protocol):
    """The filters of one signal estimator."""

    @property
    def baseline(self) -> float | None: ...  # B; None where there is none
    @property
    def cost(self) -> float: ...
    @property
    def variance(self) -> float: ...
    def learn(self, k: float, pods: int) -> None: ...


class DualSlope:
    """B first, observed as k + c·n; then c, observed through −n with the new B.

    >>> slope = DualSlope(baseline=(1.0, 1.0, 1e-4, 0.1), cost=(1.0, 1.0, 1e-4, 0.1))
    >>> for second in range(400):
    ...     slope.learn(k=3.5 - 0.5 * (second % 5), pods=1 + second % 5)
    >>> round(slope.baseline / slope.cost)  # eight pods on the empty node
    8
    """

    def __init__(self, baseline: tuple[float, float, float, float], cost: tuple[float, float, float, float]) -> None:
        self._b, self._c, self._home = ScalarKalman(*baseline), ScalarKalman(*cost), cost[0]

    def learn(self, k: float, pods: int) -> None:
        self._b.predict()
        self._b.update(k + self._c.x * pods, 1.0)
        if pods:
            self._c.predict()
            self._c.update(k - self._b.x, -pods)
        else:
            self._c.x += CREEP * (self._home - self._c.x)

    @property
    def baseline(self) -> float:
        return self._b.x

    @property
    def cost(self) -> float:
        return self._c.x

    @property
    def variance(self) -> float:
        return self._c.p

    def save(self) -> dict[str, object]:
        return {"filters": [self._b.x, self._b.p, self._c.x, self._c.p]}

    def restore(self, state: Mapping[str, object]) -> None:
        self._b.x, self._b.p, self._c.x, self._c.p = _filters(state, 4, variances=(1, 3))


class JointSlope:
    """B and −c in one filter."""

    def __init__(self) -> None:
        b, c, pbb, pcc = JOINT_START
        self._line = LineKalman(b, -c, pbb, pcc, qb=JOINT_WALK, qc=JOINT_WALK)

    def learn(self, k: float, pods: int) -> None:
        self._line.predict()
        self._line.update(k, pods, JOINT_R)
        if not pods:
            self._line.c += CREEP * (-JOINT_START[1] - self._line.c)

    @property
    def baseline(self) -> float:
        return self._line.b

    @property
    def cost(self) -> float:
        return -self._line.c

    @property
    def variance(self) -> float:
        return self._line.pcc

    def save(self) -> dict[str, object]:
        line = self._line
        return {"filters": [line.b, line.c, line.pbb, line.pbc, line.pcc]}

    def restore(self, state: Mapping[str, object]) -> None:
        line = self._line
        line.b, line.c, line.pbb, line.pbc, line.pcc = _filters(state, 5, variances=(2, 4))
        if line.pbc**2 > line.pbb * line.pcc + 1e-12:
            raise ValueError("saved state: 'filters' holds impossible variances; delete the state file to start fresh")


class DifferenceSlope:
    """c alone, from seconds between which the pods changed."""

    baseline = None

    def __init__(self) -> None:
        self._c = ScalarKalman(*DIFFERENCE_COST)
        self._before: tuple[float, ...] = ()  # k and pods of the previous second that was learned from

    def learn(self, k: float, pods: int) -> None:
        if self._before and pods != self._before[1]:
            self._c.predict()
            self._c.update(k - self._before[0], self._before[1] - pods)
        if not pods:
            self._c.x += CREEP * (DIFFERENCE_COST[0] - self._c.x)
        self._before = (k, float(pods))

    @property
    def cost(self) -> float:
        return self._c.x

    @property
    def variance(self) -> float:
        return self._c.p

    def save(self) -> dict[str, object]:
        return {"filters": [self._c.x, self._c.p], "before": self._before}

    def restore(self, state: Mapping[str, object]) -> None:
        self._c.x, self._c.p = _filters(state, 2, variances=(1,))
        self._before = numbers(state, "before", 2, least=0.0, empty=True)


def _filters(state: Mapping[str, object], size: int, variances: tuple[int, ...]) -> tuple[float, ...]:
    """Saved filters; a negative variance would change the sign of the gain, or divide by zero."""
    values = numbers(state, "filters", size, least=-1e9, most=1e9)
    if min([values[place] for place in variances]) < 0.0:
        raise ValueError("saved state: 'filters' holds a negative variance; delete the state file to start fresh")
    return values


class Signal:
    """Pod-Capacity from k and a slope."""

    def __init__(self, slope: Slope, *, trace: bool, limit: float) -> None:
        self.trace = trace
        self._slope = slope
        self._limit = limit
        self._settled: tuple[float, ...] = ()  # the last settled answer and its pods

    def count(self, at: float, pods: int) -> None:
        """Does nothing: differences are taken between seconds, whenever the count changed within one."""

    def learn(self, second: Observation) -> None:
        if not second.unreliable and second.k > 0.0:
            self._slope.learn(second.k, second.pods)
        if not second.unreliable:
            self._settled = (self._pods(second), float(second.pods))

    def answer(self, second: Observation, prior: Prior) -> Prediction:  # noqa: ARG002 k already includes the cluster's model
        cost = max(self._slope.cost, LEAST_COST)
        by_dimension = tuple([min(cost * v, 1.0) for v in second.unit])
        baseline = tuple([max(x - second.pods * c, 0.0) for x, c in zip(second.usage, by_dimension, strict=True)])
        scalar = second.k if self._slope.baseline is None else self._slope.baseline
        return Prediction(bounded(self._pods(second), self._limit), baseline, by_dimension, scalar, cost)

    def _pods(self, second: Observation) -> float:
        cost, baseline = max(self._slope.cost, LEAST_COST), self._slope.baseline
        if second.unreliable:
            return self._in_churn(second) if baseline is None else baseline / cost - second.pods
        now = second.k / cost
        if baseline is None:
            return now - second.unsettled
        # In pods instead of usage, hence with opposite signs.
        return -completed(-now, second.pods - baseline / cost, second.unsettled)

    def _in_churn(self, second: Observation) -> float:
        if not self._settled:
            return 0.0
        pods, count = self._settled
        return pods - (second.pods - count)

    def cost(self) -> CostBelief | None:
        """None: another node cannot use a slope of k as a cost. k itself includes the cluster's model."""
        return None

    def save(self) -> dict[str, object]:
        return {"slope": self._slope.save(), "settled": self._settled}

    def restore(self, state: Mapping[str, object]) -> None:
        self._slope.restore(section(state, "slope"))
        self._settled = numbers(state, "settled", 2, empty=True)
