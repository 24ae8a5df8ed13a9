"""Demand of one pod, from two readings of its counters. No I/O.

Cpu demand is in runnable tasks ("cores of demand"): processor time used plus time waited for a processor, per second.
There are two measures of waiting, each incomplete:

    some     s in which at least one task of the pod waited (PSI, https://docs.kernel.org/accounting/psi.html): correct
             for one busy thread, and at most 1 however many wait
    stretch  runnable tasks per processor of the node: each runs 1/stretch of its time, so usage · stretch is its
             demand; correct for busy threads of equal weight

The larger one is used. If the other pods have less weight (BestEffort pods and one with requests) the stretch applies
to them and not to this pod. Its own pressure gives a bound: no thread waits for a larger share w of its time than
`some`, which bounds the wait by usage · w/(1 − w). But `some` is a mean over processors, and includes only a part of
the wait of a thread that migrated between them: of one that spent the same time on each of n, 1/n. w is assumed to be
n · `some` with n up to four. A bound that is too wide lets the noise of the stretch, a mean of ten counts a second,
make busy threads look more expensive: on two processors, with four instead of two, by 7 %.

Time in which the pod was throttled by its own cpu limit is not waiting for a processor, and no pod demands more than
its limit.
"""

from __future__ import annotations

from typing import NamedTuple

from carico.types import PodCounters

# With a wait up to this share of the usage, demand counts as exact. Above it, the demand of threads that sleep between
# bursts is overestimated, and that of threads with low weight underestimated.
LITTLE_WAIT = 0.1
LITTLE_CORES = 0.01
MOVED = 4.0  # maximum factor by which `some` may be too low for threads that migrate between processors
AT_LIMIT = 0.95  # share of a cpu limit from which on the limit is what bounds the pod


class CpuDemand(NamedTuple):
    cores: float
    exact: bool  # False: how much the pod would use on an idle node is not known


def cpu_demand(
    usage: float, some: float | None, throttled: float, stretch: float, limit: float | None, cores: float = MOVED
) -> CpuDemand:
    """Rates per second; `some` is None without PSI, `stretch` is at least 1. `cores` is the node's.

    >>> cpu_demand(usage=0.5, some=0.5, throttled=0.0, stretch=2.0, limit=None)
    CpuDemand(cores=1.0, exact=False)
    >>> cpu_demand(usage=2.0, some=1.0, throttled=0.0, stretch=4.0, limit=None).cores
    8.0
    >>> cpu_demand(usage=0.2, some=0.8, throttled=0.8, stretch=1.0, limit=0.2)
    CpuDemand(cores=0.2, exact=True)
    """
    wait = usage * (stretch - 1.0)
    if some is not None:
        if throttled == 0.0 and (most := min(cores, MOVED) * some) < 1.0:
            wait = min(wait, usage * most / (1.0 - most))
        wait = max(wait, some - throttled)
    wait = max(wait, 0.0)
    if limit is not None and usage >= AT_LIMIT * limit:
        return CpuDemand(min(usage + wait, limit), True)
    exact = wait <= LITTLE_WAIT * usage + LITTLE_CORES
    return CpuDemand(usage + wait if limit is None else min(usage + wait, limit), exact)


def memory_demand(counters: PodCounters) -> float:
    """Bytes."""
    held = counters.memory_working_set + counters.swap
    return held if counters.memory_limit is None else min(held, counters.memory_limit)


class Rates(NamedTuple):
    """Per second, between two readings."""

    usage: float
    some: float | None
    throttled: float


def rates(before: PodCounters, after: PodCounters, seconds: float) -> Rates | None:
    """None if a counter decreased, because the cgroup was re-created, or no time has passed."""
    used = after.usage_seconds - before.usage_seconds
    throttled = after.throttled_seconds - before.throttled_seconds
    some = None
    if after.some_seconds is not None and before.some_seconds is not None:
        some = after.some_seconds - before.some_seconds
    if seconds <= 0.0 or used < 0.0 or (some is not None and some < 0.0):
        return None
    # The throttled time of a container with a limit is lost when it ends.
    throttled = max(0.0, throttled)
    return Rates(used / seconds, None if some is None else some / seconds, throttled / seconds)
