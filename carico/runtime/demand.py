"""What one pod asks of the node, from two instants of its own accounting: mathematics without I/O.

Cpu demand is in tasks that want to run ("cores of demand"): processor time used, and time waited for a processor,
per second. Two things tell of waiting, and neither tells all:

    some     s in which at least one task of the pod waited: right for one busy thread, and at most 1 however many wait
    stretch  tasks that want to run per processor of the node: each runs 1/stretch of its time, so usage · stretch is
             what it wants; right for busy threads of equal weight

The larger counts. Where the others have less weight (BestEffort pods beside one with requests) the stretch is theirs
and not this pod's. Its own pressure tells: no thread waits for a larger share w of its time than `some`, which bounds
the wait by usage · w/(1 − w). But `some` is a mean over processors, and of a thread that moved from one to another it
shows a part only: w is taken to be four times as much.

Time in which the pod's own cpu limit held it back is no waiting for a processor, and no pod demands more than its
limit.
"""

from __future__ import annotations

from typing import NamedTuple

from carico.types import PodCounters

# Wait up to this share of the usage leaves demand as good as known. Beyond it threads that sleep between bursts look
# dearer than they are, and those of low weight cheaper.
LITTLE_WAIT = 0.1
LITTLE_CORES = 0.01
MOVED = 4.0  # by which `some` may be too low for threads that move between processors
AT_LIMIT = 0.95  # of a cpu limit, from which on the limit is what holds the pod back


class CpuDemand(NamedTuple):
    cores: float
    exact: bool  # False: how much the pod would use on a free node is not known


def cpu_demand(usage: float, some: float | None, throttled: float, stretch: float, limit: float | None) -> CpuDemand:
    """Rates per second; `some` is None without PSI, `stretch` is at least 1.

    >>> cpu_demand(usage=0.5, some=0.5, throttled=0.0, stretch=2.0, limit=None)
    CpuDemand(cores=1.0, exact=False)
    >>> cpu_demand(usage=2.0, some=1.0, throttled=0.0, stretch=4.0, limit=None).cores
    8.0
    >>> cpu_demand(usage=0.2, some=0.8, throttled=0.8, stretch=1.0, limit=0.2)
    CpuDemand(cores=0.2, exact=True)
    """
    wait = usage * (stretch - 1.0)
    if some is not None:
        if throttled == 0.0 and (most := MOVED * some) < 1.0:
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
    """Per second, between two instants."""

    usage: float
    some: float | None
    throttled: float


def rates(before: PodCounters, after: PodCounters, seconds: float) -> Rates | None:
    """None when a counter stepped back, because the group was made anew, or no time has passed."""
    used = after.usage_seconds - before.usage_seconds
    throttled = after.throttled_seconds - before.throttled_seconds
    some = None
    if after.some_seconds is not None and before.some_seconds is not None:
        some = after.some_seconds - before.some_seconds
    if seconds <= 0.0 or used < 0.0 or (some is not None and some < 0.0):
        return None
    # A container with a limit that has ended takes its throttled time with it.
    throttled = max(0.0, throttled)
    return Rates(used / seconds, None if some is None else some / seconds, throttled / seconds)
