"""When Python's garbage collector of reference cycles traverses all objects: once an hour.

By default it does so whenever their number has grown by a quarter: with 5,000 nodes and 2,000 classes each time took
0.3 to 0.5 s, in which no node got a response. Rows, classes and open streams have no reference cycles, and a stream
that ends leaves none; the few objects in a cycle that gRPC leaves at the start of a stream are young, and collected as
such.
"""

from __future__ import annotations

import gc

from carico.clock import Clock

YOUNG = 2_000  # new objects at which they are collected: half a millisecond
MIDDLE = 5  # such collections until the objects that were left by these are collected
NEVER = 1_000_000  # collections of the middle generation before one of everything
FULL_EVERY = 3600.0  # s


async def run(clock: Clock) -> None:
    """Never returns. For a process that is only an aggregator."""
    gc.set_threshold(YOUNG, MIDDLE, NEVER)
    while True:
        gc.collect()
        await clock.sleep(FULL_EVERY)
