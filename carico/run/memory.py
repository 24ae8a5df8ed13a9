"""Whether there is memory for one more task, and which task to pause or kill if there is not. State without I/O.

How much a task will take is known from those that have ended: the kernel reports the peak of each. With mean μ and
standard deviation σ of the peaks and the largest peak M, n running tasks that hold rᵢ now and one more need

    used + Σ (eᵢ − rᵢ)⁺ + μ + σ·√(n+1)  ≤  limit       eᵢ = μ, or M once rᵢ has passed μ

or, if that is less, what they need if all of them are like the largest: used + Σ (M − rᵢ) + M. Before the first has
ended, every running task is expected to double what it holds.

This is a forecast, and tasks may differ from earlier ones. So the level is watched as well: if it would reach the limit
within REACTION at its current rise, the youngest task is paused; if that does not help, it is killed and restarted
later. Paused tasks are resumed when the forecast allows it again, the oldest first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

LIMIT_SHARE = 0.92  # of the limit that may be planned for
PAUSE_SHARE = 0.92  # of the limit: the expected level above which a task is paused
KILL_SHARE = 0.95  # of the limit: the level above which a task is killed
REACTION = 0.35  # s from a measurement of the level to its effect, with a measurement every 0.1 s
RECENT = 0.1  # weight of a new peak once ten are known
SIGMAS = 1.0  # more would hold back tasks for a case that pausing handles


class Peaks:
    """Mean, spread and maximum of what ended tasks took; recent ones weigh more.

    >>> peaks = Peaks()
    >>> for size in (100.0, 100.0, 400.0):
    ...     peaks.add(size)
    >>> peaks.mean, peaks.largest
    (200.0, 400.0)
    """

    def __init__(self) -> None:
        self.count = 0
        self.mean = 0.0
        self.variance = 0.0
        self.largest = 0.0

    def add(self, size: float) -> None:
        self.count += 1
        share = max(1.0 / self.count, RECENT)
        off = size - self.mean
        self.mean += share * off
        self.variance = (1.0 - share) * (self.variance + share * off * off)
        self.largest = max(self.largest, size)

    @property
    def deviation(self) -> float:
        return math.sqrt(self.variance)


class MemoryGuard:
    """`limit` in bytes. `look` is called at every tick, the other methods on events."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.peaks = Peaks()
        self._used = 0.0
        self._rise = 0.0  # bytes/s
        self._at = -math.inf
        self._held: dict[int, float] = {}  # by task, bytes now
        self._highest: dict[int, float] = {}  # by task, bytes at most so far

    def __str__(self) -> str:
        mega = 1e-6
        held = sum(self._held.values())
        peaks = f"peaks {self.peaks.mean * mega:.0f} ± {self.peaks.deviation * mega:.0f} MB"
        return f"memory {self._used * mega:.0f} of {self.limit * mega:.0f} MB, tasks hold {held * mega:.0f} MB, {peaks}"

    def look(self, at: float, used: float, held: Mapping[int, float]) -> None:
        """`used` of the whole machine or group, `held` by each running task."""
        passed = at - self._at
        self._rise = max(0.0, used - self._used) / passed if 0.0 < passed < 10.0 else 0.0
        self._used, self._at, self._held = used, at, dict(held)
        for task, size in held.items():
            self._highest[task] = max(size, self._highest.get(task, 0.0))

    def ended(self, task: int, peak: float) -> None:
        """`peak` is the kernel's value for its largest process; all its processes together may have held more."""
        self._held.pop(task, None)
        self.peaks.add(max(peak, self._highest.pop(task, 0.0)))

    def dropped(self, task: int) -> None:
        """It was killed before its end: what it held is a lower bound, which matters if it is a new maximum."""
        self._held.pop(task, None)
        self.peaks.largest = max(self.peaks.largest, self._highest.pop(task, 0.0))

    def fits(self, running: int, least: float = 0.0) -> bool:
        """Whether one more task fits that is known to take at least `least` bytes."""
        likely = self.expected(running) + max(self._one_more(running), least)
        if self.peaks.count:
            likely = min(likely, self._at_worst(running) + max(self.peaks.largest, least))
        return self._used + likely <= LIMIT_SHARE * self.limit

    def _at_worst(self, running: int) -> float:
        """What running tasks may still take if each is like the largest so far."""
        return sum(max(0.0, self.peaks.largest - held) for held in self._held.values()) + (
            max(0, running - len(self._held)) * self.peaks.largest
        )

    def expected(self, running: int) -> float:
        """What the running tasks are expected to take in addition; the mean for tasks without a measurement."""
        unseen = max(0, running - len(self._held)) * self.peaks.mean
        return sum(map(self._to_come, self._held.values())) + unseen

    def _to_come(self, held: float) -> float:
        if not self.peaks.count:
            return held
        end = self.peaks.mean if held <= self.peaks.mean else self.peaks.largest
        return max(0.0, end - held)

    def _one_more(self, running: int) -> float:
        if not self.peaks.count:
            return 2.0 * max(self._held.values(), default=0.0)
        return self.peaks.mean + SIGMAS * self.peaks.deviation * math.sqrt(running + 1)

    @property
    def tight(self) -> bool:
        """Whether the level is about to reach the limit."""
        return self._used + self._rise * REACTION > PAUSE_SHARE * self.limit

    @property
    def short(self) -> bool:
        """Whether the level has almost reached the limit."""
        return self._used > KILL_SHARE * self.limit

    def resumes(self, task: int, running: int) -> bool:
        """Whether a paused task may be resumed while `running` others run."""
        return (
            self._used + self.expected(running) + self._to_come(self._held.get(task, 0.0)) <= LIMIT_SHARE * self.limit
        )
