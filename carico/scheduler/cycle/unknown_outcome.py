"""Finds the outcome of a binding whose answer was lost, by a watch event or by reading the pod, whichever comes first.

The pod holds no slot meanwhile, but keeps its reservation: it may be bound to the node already.
"""

from __future__ import annotations

from carico.kube.binding import DONE, Binding, BindOutcome, BindResult
from carico.scheduler.cycle.binding_slots import Slots
from carico.scheduler.framework.in_flight import Ending, InFlightEnded, InFlightPod

FIRST_LOOK = 2.0  # s after the retries in a row, doubled each time
LAST_LOOK = 15.0  # s between two reads, at most


async def settle(request: Binding, in_flight: InFlightPod, slots: Slots) -> BindOutcome:
    """The outcome of a binding that was sent; returns only when it is known."""
    pause = FIRST_LOOK
    while in_flight.ended is None:
        await in_flight.news("outcome", pause)
        if in_flight.ended is not None:
            break
        async with slots:
            outcome = await request.again()
        if outcome.bound is not BindResult.UNKNOWN:
            return outcome
        pause = min(LAST_LOOK, 2 * pause)
    return outcome_of(in_flight.ended, in_flight.node)


def outcome_of(ended: InFlightEnded, node: str) -> BindOutcome:
    """The outcome for a pod that was to be bound to this node, from the event that ended its binding cycle."""
    if ended.how is Ending.POD_GONE:
        return BindOutcome(BindResult.GONE, ended.why)
    if ended.how is Ending.POD_BOUND:
        return DONE if ended.node == node else BindOutcome(BindResult.ELSEWHERE, ended.why)
    return BindOutcome(BindResult.FAILED, ended.why)
