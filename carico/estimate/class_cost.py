"""What to reserve for one more pod of a class, from the statistics of the class. Used by agents and schedulers.

    cpu     mean + ½·sd + sd/√w, or the high quantile where the class bursts or uses more cpu as it starts
    memory  mean + 2·sd·√(1 + 1/w), at least the highest working set; at most that plus 2 % once 8 pods were measured
    other   mean + sd/√w

with sd the standard deviation between pods and w the number of pods measured. Without measurements: the larger of the
first guess and the requests.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from carico.types import ClassCost

BURSTS = 1.3  # times the mean: a high quantile above that is not noise
SURE = 8.0  # pods measured after which the highest working set bounds what is reserved
CPU_SPREAD = 0.5  # standard deviations reserved for a pod that differs from the mean
MEMORY_SPREAD = 2.0  # the same for memory, where reserving too little ends in an OOM kill
MARGIN = 1.02  # times the highest working set


def cost_of(
    own: ClassCost | None,
    resources: Sequence[str],
    first: Sequence[float],
    requests: Sequence[float] = (),
) -> tuple[float, ...]:
    """Absolute, per resource. `first` is the first guess, `requests` the pod's requests; both per resource.

    >>> cost_of(None, ("cpu", "memory"), first=(1.0, 1e9), requests=(2.0, 0.0))
    (2.0, 1000000000.0)
    """
    if own is None:
        return tuple([max(a, b) for a, b in zip(first, requests or first, strict=True)])
    figures = zip(resources, own.mean, own.variance, own.high, strict=True)
    return tuple([_reserved(name, mean, variance, high, own.weight) for name, mean, variance, high in figures])


def _reserved(resource: str, mean: float, variance: float, high: float, weight: float) -> float:
    deviation, pods = math.sqrt(max(variance, 0.0)), max(weight, 1.0)
    if resource == "memory":
        wide = mean + MEMORY_SPREAD * deviation * math.sqrt(1.0 + 1.0 / pods)
        bounded = min(wide, MARGIN * high) if pods >= SURE else wide
        return max(bounded, high, mean)
    unsure = mean + deviation / math.sqrt(pods)
    if resource == "cpu":
        unsure += CPU_SPREAD * deviation
    return max(unsure, high) if high > BURSTS * mean else unsure
