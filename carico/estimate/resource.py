"""Estimators on the usage of each resource: x = b + c·n, one fit per resource; the scarcest resource is the limit.

`resource-joint` fits with one two-state filter per resource (joint.py), `resource` with two scalar ones (dual.py).
Pod-Capacity is computed directly in pods. The report's signal is in a unit of workload that changes with the load,
which is a source of error there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

from carico.estimate.estimator import Observation, Prediction, Values
from carico.estimate.pod_capacity import bounded, completed, room
from carico.estimate.prior import Prior
from carico.estimate.ramp import RampTracker
from carico.estimate.saved import number, numbers, section
from carico.estimate.scale import Scale
from carico.estimate.stage import Stage
from carico.types import CostBelief

JUMP = 4.0  # standard deviations by which a raw sample must exceed the expected usage to be a jump

PRECISE = 0.05  # share of a cost; a deviation above it is added to the cost of further pods
BLIND = 0.1  # deviation of a cost, as a share of the node, from which on the cost counts as unknown
SEASON = 6.0  # s after the first evidence in which the pod count at most doubles: load may still be rising
CHURN = 10  # s without a clean sample after which unknown costs are learned from the lowest samples
ROUGH = 0.05**2  # variance of the usage in those; the slope between two such seconds would be noise, so they
ROUGHLY = 0.25  # are used only for the sum of all pods, until that is known to this share of the node
LOWEST = 1.5  # standard deviations by which the lowest of ten samples is below their mean
SPIKES = 0.35  # share of the node that the runtime may use for seconds; usage above that belongs to the pods
SATURATED = 0.04  # share of the node below full: a lowest sample above that means that the resource is full
SATURATED_LEAST = 0.0  # residuals of a full resource are used only if positive
UNSETTLED_LEAST = -2.0  # usage below the prediction is load that is not visible yet
UNKNOWN_LEAST = 0.0  # while the cost is unknown, pods whose load is not visible yet would seem to cost nothing


class Fit(Stage, Protocol):
    """The filters of one resource."""

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
    def learn(self, z: float, noise: float, at: float, pods: float, starts: RampTracker, least: float) -> None: ...
    def expect(self, first: float) -> None: ...
    def rescale(self, factor: float) -> None: ...


def _least(second: Observation, known: bool, *, saturated: bool) -> float:
    """The residual, in standard deviations, below which this second is ignored because it is a lower bound."""
    if saturated:
        return SATURATED_LEAST
    if not second.unsettled:
        return -math.inf
    return UNSETTLED_LEAST if known else UNKNOWN_LEAST


class ResourceFit:
    """One fit per dimension.

    >>> from carico.estimate.joint import Joint
    >>> resource = ResourceFit([Joint()], ("cpu",), full=(0.99,), limit=1000.0)
    >>> resource.cost() is None  # no pod has been seen
    True
    """

    trace = False

    def __init__(self, fits: Sequence[Fit], dimensions: Sequence[str], full: Sequence[float], limit: float) -> None:
        self._fits = list(fits)
        self._starts = RampTracker()
        self._dirty = 0  # s without a clean sample
        self._blind = -math.inf  # s, the last time at which a cost was unknown (BLIND)
        self._has_known = False  # whether all costs were ever known from own evidence
        self._full = tuple(full)
        self._limit = limit
        # Cpu spikes at container starts belong to the runtime and end; used memory is not available in any case.
        self._jumps = [dimension == "memory" for dimension in dimensions]

    def count(self, at: float, pods: int) -> None:
        self._starts.count(at, pods)

    def learn(self, second: Observation) -> None:
        self._dirty = 0 if second.clean else self._dirty + 1
        for i, fit in enumerate(self._fits):
            if second.clean:
                noise = second.noise[i] / second.clean
                self._learn(second, i, second.mean[i], noise, saturated=second.saturated[i])
            elif self._dirty > CHURN and fit.variance**0.5 * second.pods > ROUGHLY:
                lowest = second.lowest[i] + LOWEST * second.noise[i] ** 0.5
                self._learn(second, i, lowest, ROUGH, saturated=lowest >= self._full[i] - SATURATED)
        if self._spread() >= BLIND or not math.isfinite(self._blind):
            self._blind = second.at
        self._has_known = self._has_known or all(fit.known for fit in self._fits)

    def _learn(self, second: Observation, i: int, z: float, noise: float, *, saturated: bool) -> None:
        fit, pods = self._fits[i], float(second.pods)
        least = _least(second, fit.known, saturated=saturated)
        if not fit.known and not saturated:
            half = 0.5 * second.unsettled
            noise += (half * fit.cost) ** 2
            if 0 < second.unsettled < second.pods - second.unsettled:
                # With continuous pod starts no second is settled. Part of the young pods' load is visible.
                pods, least = pods - half, -math.inf
        fit.learn(z, noise, second.at, pods, self._starts, least)

    def _spread(self) -> float:
        """Largest deviation of a resource's cost."""
        return math.sqrt(max(fit.variance for fit in self._fits))

    def answer(self, second: Observation, prior: Prior) -> Prediction:
        costs = self._costs(prior)
        usage = self.load(second, prior)
        kept = [self._seen_cost(i, second, cost) for i, cost in enumerate(self._kept(second, costs, prior))]
        pods, binding = room(self._full, usage, kept)
        baseline = tuple([min(max(fit.baseline, 0.0), 1.0) for fit in self._fits])
        empty, _ = room(self._full, baseline, costs)
        pods = min(pods, self._most_unseen(second, prior) - second.unsettled)
        return Prediction(bounded(pods, self._limit), baseline, costs, bounded(empty, self._limit), costs[binding])

    def _most_unseen(self, second: Observation, prior: Prior) -> float:
        """Limit of pods whose load is not visible yet. While costs are unknown: as many as there are visible ones.

        A node that never knew a cost uses the cluster's. One whose own evidence has faded does not: the cluster's cost
        may come from that evidence.
        """
        only_prior = not self._has_known and all(prior.mix(i, None) is not None for i in range(len(self._fits)))
        return math.inf if only_prior or not self._is_new(second) else max(1.0, second.pods - second.unsettled)

    def _is_new(self, second: Observation) -> bool:
        """Whether costs are unknown, or were less than SEASON ago."""
        return second.at - self._blind < SEASON

    def _kept(self, second: Observation, costs: Values, prior: Prior) -> Values:
        """Cost to reserve for one more pod: plus one standard deviation, where the node has only inexact own evidence.

        Without any evidence it is the first guess alone, or no pod would ever be admitted.
        """
        found = list(costs)
        for i, fit in enumerate(self._fits):
            if fit.known or (prior.mix(i, None) is None and not self._is_new(second)):
                found[i] += max(fit.variance**0.5 - PRECISE * costs[i], 0.0)
        return tuple(found)

    def load(self, second: Observation, prior: Prior) -> Values:
        """Usage of each resource including the load of all counted pods."""
        costs = self._costs(prior)
        kept = self._kept(second, costs, prior)
        return tuple([self._usage(i, second, costs[i], kept[i]) for i in range(len(costs))])

    def _costs(self, prior: Prior) -> Values:
        """Own costs combined with the cluster's; at least 1/limit each."""
        floor = 1.0 / self._limit
        mixed = [prior.mix(i, (f.cost, f.variance) if f.known else None) for i, f in enumerate(self._fits)]
        return tuple([max(f.cost if c is None else c, floor) for f, c in zip(self._fits, mixed, strict=True)])

    def _usage(self, i: int, second: Observation, mean: float, cost: float) -> float:
        """Usage of one resource including all counted pods; those whose load is not visible yet count `cost` each.

        Visible pods count the cost learned here. Where there is none, only `mean` is known, from the cluster, and the
        model does not reduce what is added for the missing pods.
        """
        fit, now = self._fits[i], second.usage[i]
        missing = max(second.unsettled, self._starts.missing(second.at, fit.ramp))
        model = fit.baseline + (fit.cost if fit.known else mean) * (second.pods - missing) + cost * missing
        if second.unreliable:
            usage = max(model, self._at_least(i, second, model))
        elif fit.known:
            usage = completed(now, model, missing * cost)
        else:
            usage = now + missing * cost
        if self._jumps[i] and second.latest[i] > usage + JUMP * second.noise[i] ** 0.5:
            return second.latest[i]
        return usage

    def _at_least(self, i: int, second: Observation, model: float) -> float:
        """Lower bound of the current usage in churn. Pods that have ended since may have been part of it."""
        fit = self._fits[i]
        lowest = second.lowest[i] - (fit.cost * (second.most - second.pods) if fit.known else 0.0)
        if lowest >= self._full[i] - SATURATED:
            return self._full[i]
        return lowest if lowest > model + SPIKES or not fit.known else 0.0

    def _seen_cost(self, i: int, second: Observation, cost: float) -> float:
        """Nothing is learned in churn, so a lowest sample far above the prediction raises the cost directly."""
        fit, lowest = self._fits[i], second.lowest[i]
        if second.unreliable and fit.known and lowest > fit.baseline + fit.cost * second.most + SPIKES:
            return max(cost, (lowest - fit.baseline) / max(second.pods, 1))
        return cost

    def resize(self, scale: Scale) -> None:
        """The amount that the node can hold changed."""
        self._full = scale.full_share
        for fit, first in zip(self._fits, scale.first_share, strict=True):
            fit.expect(first)

    def rescale(self, factors: Values) -> None:
        """The node's size changed: multiplies all shares of the node by `factors`, one per resource."""
        for fit, factor in zip(self._fits, factors, strict=True):
            fit.rescale(factor)

    def cost(self) -> CostBelief | None:
        if not all(fit.known for fit in self._fits):
            return None
        return CostBelief(tuple([f.cost for f in self._fits]), tuple([f.variance for f in self._fits]))

    def save(self) -> dict[str, object]:
        blind = [self._blind] if math.isfinite(self._blind) else []
        fits = {str(i): fit.save() for i, fit in enumerate(self._fits)}
        return {
            "starts": self._starts.save(),
            "blind": blind,
            "dirty": self._dirty,
            "has_known": int(self._has_known),
            **fits,
        }

    def restore(self, state: Mapping[str, object]) -> None:
        self._starts.restore(section(state, "starts"))
        for i, fit in enumerate(self._fits):
            fit.restore(section(state, str(i)))
        self._dirty = int(number(state, "dirty", least=0))
        self._has_known = number(state, "has_known", least=0, most=1) > 0
        self._blind = max(numbers(state, "blind", 1, empty=True), default=-math.inf)
