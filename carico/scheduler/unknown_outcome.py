"""What became of a binding whose answer was lost: asked again and again until it is known, by whoever tells it first.

The pod holds no slot meanwhile, but it keeps its promise: it may be on its node already.
"""

from __future__ import annotations

from carico.kube.binding import DONE, Binding, Bound, Outcome
from carico.scheduler.slots import Slots
from carico.scheduler.waiting import Ended, Ending, InFlightPod

FIRST_LOOK = 2.0  # s after the tries in a row, doubled each time
LAST_LOOK = 15.0  # s between two looks, at most


async def settle(request: Binding, in_flight: InFlightPod, slots: Slots) -> Outcome:
    """The outcome of a binding that was sent; returns only when it is known."""
    pause = FIRST_LOOK
    while in_flight.ended is None:
        await in_flight.news("outcome", pause)
        if in_flight.ended is not None:
            break
        async with slots:
            outcome = await request.again()
        if outcome.bound is not Bound.UNKNOWN:
            return outcome
        pause = min(LAST_LOOK, 2 * pause)
    return as_told(in_flight.ended, in_flight.node)


def as_told(ended: Ended, node: str) -> Outcome:
    """What the watch said of a pod that was to be bound to this node."""
    if ended.how is Ending.POD_GONE:
        return Outcome(Bound.GONE, ended.why)
    if ended.how is Ending.POD_BOUND:
        return DONE if ended.node == node else Outcome(Bound.ELSEWHERE, ended.why)
    return Outcome(Bound.FAILED, ended.why)
