"""What every estimator is: it learns once a second and says how many more pods fit.

The report's estimators work on the signal k (signal.py), ours on the usage of each resource (resource.py); which one
runs is a setting. All see the same `Second` and give the same `Answer`, so that they can be compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from carico.estimate.prior import Prior
from carico.types import CostBelief, MeasuredPod

Values = tuple[float, ...]


class Second(NamedTuple):
    """All that one second tells an estimator."""

    at: float  # s, monotonic, end of the second
    pods: int
    unsettled: int  # pods whose load cannot be in `usage` yet
    churn: bool  # usage lies, or does not know the present pod count yet
    usage: Values  # smoothed
    latest: Values  # the last raw sample
    noise: Values  # variance of one raw sample
    clean: int  # raw samples of this second without churn and with the present pod count
    mean: Values  # over these
    saturated: tuple[bool, ...]  # one of these was full: the mean is then a lower bound
    unit: Values  # the workload vector that k counts
    k: float
    measured: Sequence[MeasuredPod] | None = None  # every workload pod; None: there is no accounting


class Answer(NamedTuple):
    """See `carico.types.Estimate` for the units."""

    pod_capacity: float
    baseline: Values
    cost: Values
    baseline_scalar: float
    cost_scalar: float
    room: Values = ()


class Estimator(Protocol):
    trace: bool  # k is to be made with the trace-normalised unit

    def count(self, at: float, pods: int) -> None:
        """The pod count changed; called at the tick, before the second's `learn`."""

    def learn(self, second: Second) -> None:
        """Take in a second. Seconds of churn come as well: what of them is usable is the estimator's choice."""

    def answer(self, second: Second, prior: Prior) -> Answer:
        """What fits now. Changes nothing."""

    def cost(self) -> CostBelief | None:
        """What this node alone has learned of a pod's cost, per dimension; None before it has."""

    def save(self) -> dict[str, object]: ...
    def restore(self, state: Mapping[str, object]) -> None: ...
