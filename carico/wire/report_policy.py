"""When a node reports to a scheduler, and what it may leave out.

A report is sent when something moved that the scheduler decides by: Pod-Capacity by ≥ max(0.5, 5 %), the room in some
resource by ≥ max(1 % of what the node holds, 5 %), the number of pods, the pods that are counted, or pods that ended;
at most twice a second, or as rarely as the scheduler requests. Another is sent as a heartbeat when nothing was sent for
the interval that the scheduler requested. That the runtime is busy, or that an ended pod is no longer listed, triggers
no report. A class cost that moved is sent with the next report, at the latest after CLASSES_WITHIN seconds.

`counted` and `finished` are sent in a stream's first report, then only their changes, and whole again in the next
report after a rejection, because then the other side may not have them.
"""

from __future__ import annotations

import dataclasses
import math

from carico.types import NodeReport
from carico.wire.class_news import ClassNews
from carico.wire.codec import report as codec

MOVED_PODS = 0.5
MOVED_SHARE = 0.05
MOVED_ROOM = 0.01  # share of what the node holds
CLASSES_WITHIN = 1.0  # s
LEAST_GAP = 0.5  # s: at most two reports a second
HEARTBEAT = 5.0  # s, until the scheduler requests another


class ReportPolicy:
    """The rule for one stream to one scheduler; `now` is monotonic time in seconds."""

    def __init__(self) -> None:
        self.heartbeat = HEARTBEAT
        self.known: NodeReport | None = None  # the sets that the other side has and accepts changes of
        self._least_gap = LEAST_GAP
        self._takes_changes = False
        self._newest: NodeReport | None = None
        self._sent: NodeReport | None = None
        self._sent_at = -math.inf
        self._sets_known = False
        self._news = ClassNews()

    def reset(self) -> None:
        """A new stream: the other side knows nothing yet, and what it supports is not known."""
        self._sent, self._sent_at, self._sets_known = None, -math.inf, False
        self._takes_changes = False
        self._news.reset()

    def offer(self, report: NodeReport) -> None:
        """The newest state, with both sets and all class costs. What was offered before and not sent is forgotten."""
        self._newest = report

    def acknowledged(
        self, heartbeat: float, *, refused: bool, least_gap: float = 0.0, takes_changes: bool = False
    ) -> None:
        self.heartbeat = heartbeat
        self._least_gap = max(LEAST_GAP, least_gap)
        self._takes_changes = takes_changes
        if refused:
            self._sets_known = False

    def wait(self, now: float) -> float:
        """Seconds until `take` has something to send, if nothing new is offered; 0 when it has something now."""
        newest = self._newest
        if newest is None:
            return math.inf
        gap = max(self._least_gap, self.heartbeat)
        if self._moved(newest):
            gap = self._least_gap
        elif self._news.has_any(newest.class_costs, newest.dimensions, now):
            gap = max(self._least_gap, min(gap, CLASSES_WITHIN))
        return max(0.0, self._sent_at + gap - now)

    def take(self, sequence: int, now: float) -> NodeReport:
        """The report to send now, numbered, with its current age, sets left out where they are known.

        To be encoded against `known`.
        """
        newest = self._newest
        assert newest is not None, "take() is for when wait() is 0"
        known = self._sent if self._sets_known else None
        self.known = known if self._takes_changes else None
        limits = codec.cost_limits(newest.full, newest.dimensions)
        report = dataclasses.replace(
            newest,
            sequence=sequence,
            age=max(0.0, now - newest.estimate.at),
            counted=None if known is not None and known.counted == newest.counted else newest.counted,
            finished=None if known is not None and known.finished == newest.finished else newest.finished,
            class_costs=self._news.take(newest.class_costs, limits, now),
        )
        self._sent, self._sent_at, self._sets_known = newest, now, True
        return report

    def _moved(self, new: NodeReport) -> bool:
        old = self._sent
        if old is None:
            return True
        least = max(MOVED_PODS, MOVED_SHARE * old.estimate.pod_capacity)
        return (
            abs(new.estimate.pod_capacity - old.estimate.pod_capacity) >= least
            or _room_moved(old, new)
            or new.estimate.pods != old.estimate.pods
            or new.counted != old.counted
            or not (new.finished or frozenset()) <= (old.finished or frozenset())
        )


def _room_moved(old: NodeReport, new: NodeReport) -> bool:
    before, now = old.estimate.room, new.estimate.room
    if len(before) != len(now) or old.full != new.full:
        return True
    if len(new.full) != len(now):
        return False
    figures = zip(before, now, new.full, strict=True)
    return any(abs(b - a) >= max(MOVED_ROOM * full, MOVED_SHARE * a) > 0 for a, b, full in figures)
