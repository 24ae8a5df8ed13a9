"""The cluster's cost of a pod as a prior, and how a node combines it with its own evidence.

Per resource, with the node's own cost c ± √p (from its filter, which does not use the prior, so it can be sent to the
cluster repeatedly) and the cluster's μ ± √v (v the variance between the nodes, at least (μ/20)²):

    c_used = (c/(p+o) + μ/v) / (1/(p+o) + 1/v)        with own evidence
    c_used = μ                                        without

Where the two are more than three standard deviations apart, (c − μ)² > 9·(p+o+v), this node's pods
differ from the cluster's. Then v ← (c − μ)², which leaves the own cost almost unchanged.

o ≥ 0 is added to the node's own variance. When μ moved by more than √v since the last increase (μ₀):

    o ← o + (μ − μ₀)²,  μ₀ ← μ

so a workload that other nodes have just found to be heavier counts here before its first pod arrives. Every own start
or stop of d pods, observed through usage of variance r, reduces it again as an observation of d·c does:

    1/o ← 1/o + d²/(2r)
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from carico.errors import InvalidMessage
from carico.estimate.saved import numbers
from carico.types import CostBelief

# Pods differ even if the nodes of a cluster report exactly the same cost.
LEAST_SPREAD = 0.05  # share of the mean
LEAST_VARIANCE = 1e-8
CONFLICT = 9.0  # squared standard deviations
UNKNOWN = 1e12  # variance that represents infinity, which JSON lacks: no node has evidence of the dimension


class Prior:
    """The cluster's cost as this node uses it.

    >>> prior = Prior(1)
    >>> prior.adopt(CostBelief(mean=(0.1,), variance=(0.0001,)))
    >>> prior.mix(0, None)
    0.1
    >>> round(prior.mix(0, (0.12, 0.0001)), 3)
    0.11
    >>> round(prior.mix(0, (0.2, 0.0001)), 3)  # not the same pods at all
    0.199
    >>> prior.adopt(CostBelief(mean=(0.2,), variance=(0.0001,)))  # ten spreads away: own evidence is opened
    >>> round(prior.mix(0, (0.1, 0.0001)), 3)
    0.199
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self.mean: tuple[float, ...] = ()  # empty: nothing received
        self.variance: tuple[float, ...] = ()
        self._received: list[float] = []  # μ₀
        self._opened = [0.0] * size

    def adopt(self, cost: CostBelief | None) -> None:
        """Stores the cluster's cost; None keeps the previous one."""
        if cost is None:
            return
        if len(cost.mean) != self._size or len(cost.variance) != self._size:
            raise InvalidMessage("shape", f"a cost of {len(cost.mean)} dimensions where this node has {self._size}")
        if not all(math.isfinite(x) and x >= 0 for x in cost.mean) or not all(v >= 0 for v in cost.variance):
            raise InvalidMessage("range", f"a cost that is negative or not finite: {cost}")
        before, self.mean = self.variance or (UNKNOWN,) * self._size, cost.mean
        self.variance = tuple(
            min(max(v, (LEAST_SPREAD * m) ** 2, LEAST_VARIANCE), UNKNOWN)
            for m, v in zip(cost.mean, cost.variance, strict=True)
        )
        self._received = self._received or list(cost.mean)
        for i in range(self._size):
            moved = (self.mean[i] - self._received[i]) ** 2
            if before[i] >= UNKNOWN:
                self._received[i] = self.mean[i]
            elif moved > self.variance[i]:
                self._opened[i] += moved
                self._received[i] = self.mean[i]

    def mix(self, i: int, own: tuple[float, float] | None) -> float | None:
        """c_used of dimension i; `own` is (c, p) or None without evidence. Returns None if neither is known."""
        if not self.mean or self.variance[i] >= UNKNOWN:
            return own[0] if own else None
        if own is None:
            return self.mean[i]
        variance, apart = own[1] + self._opened[i] + LEAST_VARIANCE, (own[0] - self.mean[i]) ** 2
        in_conflict = apart > CONFLICT * (variance + self.variance[i])
        trust, theirs = 1.0 / variance, 1.0 / (apart if in_conflict else self.variance[i])
        return (own[0] * trust + self.mean[i] * theirs) / (trust + theirs)

    def seen(self, i: int, pods: float, variance: float) -> None:
        """`pods` started or stopped on this node, with their load observed with `variance`."""
        if self._opened[i] > 0.0:
            self._opened[i] = 1.0 / (1.0 / self._opened[i] + pods * pods / (2.0 * variance))

    def rescale(self, factors: tuple[float, ...]) -> None:
        """The node's size changed: multiplies all shares of the node by `factors`, one per resource."""
        if self.mean:
            self.mean = tuple([m * f for m, f in zip(self.mean, factors, strict=True)])
            self.variance = tuple([
                v if v >= UNKNOWN else max(v * f * f, LEAST_VARIANCE)
                for v, f in zip(self.variance, factors, strict=True)
            ])  # fmt: skip
            self._received = [one * f for one, f in zip(self._received, factors, strict=True)]
        self._opened = [opened * f * f for opened, f in zip(self._opened, factors, strict=True)]

    def save(self) -> dict[str, object]:
        received, opened = list(self._received), list(self._opened)
        return {"mean": self.mean, "variance": self.variance, "heard": received, "opened": opened}

    def restore(self, state: Mapping[str, object]) -> None:
        self.mean = numbers(state, "mean", self._size, least=0.0, empty=True)
        self.variance = numbers(state, "variance", self._size, least=LEAST_VARIANCE, empty=True)
        self._received = list(numbers(state, "heard", self._size, least=0.0, empty=True))
        self._opened = list(numbers(state, "opened", self._size, least=0.0))
        if not len(self.mean) == len(self.variance) == len(self._received):
            raise ValueError("saved state: the prior is incomplete; delete the state file to start fresh")
