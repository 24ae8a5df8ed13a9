"""The protocol of all estimators: learn once a second, return how many more pods fit.

The report's estimators work on the signal k (paper/signal_estimators.py), the others on the usage of each resource
(resource.py) and on measured pods (by_class.py); a setting selects one. All take the same `Observation` and return the
same `Prediction`, so that they can be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from carico.estimate.prior import Prior
from carico.estimate.stage import Stage
from carico.types import CostBelief, MeasuredPod

Values = tuple[float, ...]


class Observation(NamedTuple):
    """The observations of one second."""

    at: float  # s, monotonic, end of the second
    pods: int
    unsettled: int  # pods whose load cannot be in `usage` yet
    unreliable: bool  # usage is not representative (churn), or does not include the current pod count yet
    usage: Values  # smoothed
    latest: Values  # the last raw sample
    noise: Values  # variance of one raw sample
    clean: int  # raw samples of this second without churn and with the current pod count
    mean: Values  # over these
    saturated: tuple[bool, ...]  # one of these was full: the mean is then a lower bound
    lowest: Values  # minimum of all raw samples of the last seconds: usage without spikes was at least that
    most: int  # largest pod count of the same seconds
    unit: Values  # the workload vector that k counts
    k: float
    measured: Sequence[MeasuredPod] | None = None  # every workload pod; None: there is no accounting


class Prediction(NamedTuple):
    """See `carico.types.Estimate` for the units."""

    pod_capacity: float
    baseline: Values
    cost: Values
    baseline_scalar: float
    cost_scalar: float
    room: Values = ()


class Estimator(Stage, Protocol):
    trace: bool  # k is computed with the trace-normalised unit

    def count(self, at: float, pods: int) -> None:
        """The pod count changed; called with the sample, before the second's `learn`."""

    def learn(self, second: Observation) -> None:
        """Processes one second. Seconds of churn are passed too; the estimator decides what it uses of them."""

    def answer(self, second: Observation, prior: Prior) -> Prediction:
        """What fits now. Does not change state."""

    def cost(self) -> CostBelief | None:
        """The cost of a pod per dimension from this node's evidence alone; None without evidence."""
