"""Cost per event and memory of a standby replica while 100,000 pods are created, bound by the leader, and deleted.

A standby watches everything and pops nothing from its queue; anything that it kept of deleted pods would grow until it
could not take over any more. 25 pods are created per second, 200 wait and 500 run at any time, every node reports every
5 s. PODS changes the number.
"""

from __future__ import annotations

import os

import psutil

from harness.scheduler.standby import WARM_UP, Standby, tracked_objects

PODS = int(os.environ.get("PODS", "100000"))
TENTHS = 10


def run() -> dict[str, float]:
    standby, process = Standby(), psutil.Process()
    standby.pass_by(WARM_UP)
    objects, memory = tracked_objects(), process.memory_info().rss
    costs: list[float] = []
    print(f"{'pods':>8} {'µs/event':>9} {'objects':>9} {'MB':>7}   beyond the beginning")
    for tenth in range(TENTHS):
        standby.events, standby.seconds = 0, 0.0
        standby.pass_by(PODS // TENTHS)
        costs.append(1e6 * standby.seconds / standby.events)
        grown, more = tracked_objects() - objects, (process.memory_info().rss - memory) / 1e6
        print(f"{(tenth + 1) * PODS // TENTHS:8} {costs[-1]:9.1f} {grown:9} {more:7.1f}", flush=True)
    return {
        "event_us_first_tenth": round(costs[0], 1),
        "event_us_last_tenth": round(costs[-1], 1),
        "objects_grown": grown,
        "rss_grown_mb": round(more, 1),
    }
