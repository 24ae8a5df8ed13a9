"""Estimators on the usage of each resource: x = b + c·n, one fit per resource, the scarcest one decides.

`resource-joint` fits with one two-state filter per resource (joint.py), `resource` with two scalar ones (dual.py).
Pod-Capacity is in pods from the start, so no unit of workload that moves with the load stands in between: that is what
the report's signal suffers from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

from carico.estimate.estimator import Answer, Second, Values
from carico.estimate.pod_capacity import bounded, completed, room
from carico.estimate.prior import Prior
from carico.estimate.ramp import Starts
from carico.estimate.saved import section
from carico.estimate.scale import Scale
from carico.types import CostBelief

JUMP = 4.0  # standard deviations by which a raw sample must exceed the expected usage to be a jump


SATURATED_LEAST = 1.0  # a full resource can only surprise upwards
UNSETTLED_LEAST = -2.0  # while load may be missing, less than expected is the load that is missing
UNKNOWN_LEAST = 0.0  # before the cost is known anything is expected, and pods that do not show yet would seem free


class Fit(Protocol):
    """What one resource's filters know."""

    @property
    def baseline(self) -> float: ...
    @property
    def cost(self) -> float: ...
    @property
    def variance(self) -> float: ...
    @property
    def known(self) -> bool: ...
    @property
    def ramp(self) -> float: ...
    def learn(self, z: float, noise: float, at: float, pods: int, starts: Starts, least: float) -> None: ...
    def expect(self, first: float) -> None: ...
    def rescale(self, factor: float) -> None: ...
    def save(self) -> dict[str, object]: ...
    def restore(self, state: Mapping[str, object]) -> None: ...


def _least(second: Second, i: int, known: bool) -> float:
    """The surprise, in standard deviations, below which this second says nothing of resource i: it is a lower bound."""
    if second.saturated[i]:
        return SATURATED_LEAST
    if not second.unsettled:
        return -math.inf
    return UNSETTLED_LEAST if known else UNKNOWN_LEAST


class Resource:
    """One fit per dimension.

    >>> from carico.estimate.joint import Joint
    >>> resource = Resource([Joint()], ("cpu",), full=(0.99,), limit=1000.0)
    >>> resource.cost() is None  # no pod has been seen
    True
    """

    trace = False

    def __init__(self, fits: Sequence[Fit], dimensions: Sequence[str], full: Sequence[float], limit: float) -> None:
        self._fits = list(fits)
        self._starts = Starts()
        self._full = tuple(full)
        self._limit = limit
        # Cpu spikes at container starts are the runtime's; memory that is gone is gone, whoever took it.
        self._jumps = [dimension == "memory" for dimension in dimensions]

    def count(self, at: float, pods: int) -> None:
        self._starts.count(at, pods)

    def learn(self, second: Second) -> None:
        if not second.clean:
            return
        for i, fit in enumerate(self._fits):
            noise = second.noise[i] / second.clean
            fit.learn(second.mean[i], noise, second.at, second.pods, self._starts, _least(second, i, fit.known))

    def answer(self, second: Second, prior: Prior) -> Answer:
        costs = self._costs(prior)
        usage = self.load(second, prior)
        pods, binding = room(self._full, usage, costs)
        baseline = tuple([min(max(fit.baseline, 0.0), 1.0) for fit in self._fits])
        empty, _ = room(self._full, baseline, costs)
        return Answer(bounded(pods, self._limit), baseline, costs, bounded(empty, self._limit), costs[binding])

    def load(self, second: Second, prior: Prior) -> Values:
        """Usage of each resource once every counted pod shows its load."""
        return tuple([self._usage(i, second, cost) for i, cost in enumerate(self._costs(prior))])

    def _costs(self, prior: Prior) -> Values:
        """The mixed costs; one that would fit more pods than the limit is as good as none."""
        floor = 1.0 / self._limit
        mixed = [prior.mix(i, (f.cost, f.variance) if f.known else None) for i, f in enumerate(self._fits)]
        return tuple([max(f.cost if c is None else c, floor) for f, c in zip(self._fits, mixed, strict=True)])

    def _usage(self, i: int, second: Second, cost: float) -> float:
        """Usage of one resource once every counted pod shows its load; those still to show it cost `cost` each.

        Pods that show cost what was seen here. Where nothing was, only `cost` is known, from the cluster, and the model
        is no reason to expect less of the missing ones.
        """
        fit, now = self._fits[i], second.usage[i]
        missing = max(second.unsettled, self._starts.missing(second.at, fit.ramp))
        model = fit.baseline + (fit.cost if fit.known else cost) * (second.pods - missing) + cost * missing
        if second.churn:
            usage = model
        elif fit.known:
            usage = completed(now, model, missing * cost)
        else:
            usage = now + missing * cost
        if self._jumps[i] and second.latest[i] > usage + JUMP * second.noise[i] ** 0.5:
            return second.latest[i]
        return usage

    def resize(self, scale: Scale) -> None:
        """The node holds another amount."""
        self._full = scale.full_share
        for fit, first in zip(self._fits, scale.first_share, strict=True):
            fit.expect(first)

    def rescale(self, factors: Values) -> None:
        """The node's size changed: the same amounts are so many times the shares of it that they were."""
        for fit, factor in zip(self._fits, factors, strict=True):
            fit.rescale(factor)

    def cost(self) -> CostBelief | None:
        if not all(fit.known for fit in self._fits):
            return None
        return CostBelief(tuple([f.cost for f in self._fits]), tuple([f.variance for f in self._fits]))

    def save(self) -> dict[str, object]:
        return {"starts": self._starts.save(), **{str(i): fit.save() for i, fit in enumerate(self._fits)}}

    def restore(self, state: Mapping[str, object]) -> None:
        self._starts.restore(section(state, "starts"))
        for i, fit in enumerate(self._fits):
            fit.restore(section(state, str(i)))
