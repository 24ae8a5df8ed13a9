"""When a node reports to a scheduler, and what it may leave out.

A report goes out when Pod-Capacity moved by ≥ max(0.5, 5 %), or pods, churn or the sets of pods changed; at most twice
a second; and as a heartbeat whenever nothing was sent for the interval that the scheduler asked for. `counted` and
`finished` travel in a stream's first report, whenever they change, and in the next report after a refusal, because then
the other side may not have them.
"""

from __future__ import annotations

import dataclasses
import math

from carico.types import NodeReport

MOVED_PODS = 0.5
MOVED_SHARE = 0.05
LEAST_GAP = 0.5  # s: at most two reports a second
HEARTBEAT = 5.0  # s, until the scheduler says otherwise


class ReportRule:
    """The rule for one stream to one scheduler; `now` is monotonic time in seconds."""

    def __init__(self) -> None:
        self.heartbeat = HEARTBEAT
        self._newest: NodeReport | None = None
        self._sent: NodeReport | None = None
        self._sent_at = -math.inf
        self._sets_known = False

    def opened(self) -> None:
        """A new stream: the other side knows nothing yet."""
        self._sent, self._sent_at, self._sets_known = None, -math.inf, False

    def offer(self, report: NodeReport) -> None:
        """The newest state, with both sets in it. What was offered before and not sent is forgotten."""
        self._newest = report

    def acknowledged(self, heartbeat: float, *, refused: bool) -> None:
        self.heartbeat = heartbeat
        if refused:
            self._sets_known = False

    def wait(self, now: float) -> float:
        """Seconds until `take` has something to send, if nothing new is offered; 0 when it has something now."""
        if self._newest is None:
            return math.inf
        due = self._sent_at + (LEAST_GAP if self._moved(self._newest) else max(LEAST_GAP, self.heartbeat))
        return max(0.0, due - now)

    def take(self, sequence: int, now: float) -> NodeReport:
        """The report to send now, numbered, its age brought up to date, sets left out where they are known."""
        newest = self._newest
        assert newest is not None, "take() is for when wait() is 0"
        known = self._sent if self._sets_known else None
        report = dataclasses.replace(
            newest,
            sequence=sequence,
            age=max(0.0, now - newest.estimate.at),
            counted=None if known is not None and known.counted == newest.counted else newest.counted,
            finished=None if known is not None and known.finished == newest.finished else newest.finished,
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
            or new.estimate.pods != old.estimate.pods
            or new.churn != old.churn
            or new.counted != old.counted
            or new.finished != old.finished
        )
