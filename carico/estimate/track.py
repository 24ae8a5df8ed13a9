"""The readings of one pod: its current demand, the level it has settled at, and the variance around that.

All in absolute amounts of one resource. A level is a mean over up to a minute. The last readings are compared with the
level of those before them: if all are far from it on the same side, the level restarts with them, unless the pod is
known to swing. Each such step adds to the variance. A pod that bursts has a few steps and then a mean and a variance; a
permanent change is followed within seconds.
"""

from __future__ import annotations

import math

RECENT = 3  # readings in `now`
LONGEST = 60.0  # readings in a level
EARLY = 45.0  # s of age below which a decrease is the end of the start-up and not a swing
TOP_FROM = 15.0  # s of age from which on high demand does not belong to the start-up
NOISE = 0.1  # standard deviation of one reading of a steady pod, as a share of it
STEP = 0.15  # share by which recent readings must differ from a level to be a step
STEP_SIGMAS = 2.5
RISING = 0.4  # growth per age so far, as a share of the current demand, above which demand is still rising


class Level:
    """One resource of one pod.

    >>> level = Level()
    >>> for _ in range(5):
    ...     level.read(2.0, age=10.0, lasting=True)
    >>> level.mean, level.readings, level.now
    (2.0, 5.0, 2.0)
    """

    __slots__ = (
        "_before",
        "_taken",
        "early",
        "first",
        "mean",
        "now",
        "present",
        "readings",
        "recent",
        "stepped",
        "top",
        "variance",
    )

    def __init__(self) -> None:
        self.recent: list[tuple[float, bool]] = []  # readings, and whether they belong to the level
        self._before = 0.0  # level before the recent readings
        self._taken = 0.0  # number of readings in that
        self.variance = 0.0  # in time, in excess of the variance of a steady pod's readings
        self.now = 0.0  # mean of the last readings
        self.present = 0.0  # the same of those that belong to the level, where there are any
        self.mean = 0.0  # the level; `now` before the first lasting reading
        self.readings = 0.0  # number of readings in the level
        self.top = 0.0  # highest `now` of lasting readings, once the pod is no longer young
        self.early = 0.0  # highest demand of two readings in a row while it was young: one alone may be noise
        self.first: float | None = None  # reading of its first second, which belongs to no level
        self.stepped = False  # the last reading ended a level

    def read(self, demand: float, age: float, *, lasting: bool, swings: bool = False) -> None:
        """`lasting`: the pod is past its start-up, so the reading belongs to its level. `swings`: it is known to."""
        self.recent.append((demand, lasting))
        if len(self.recent) > RECENT:
            value, lasted = self.recent.pop(0)
            if lasted:
                self._take(value)
        if age < EARLY and len(self.recent) > 1:
            self.early = max(self.early, min(self.recent[-1][0], self.recent[-2][0]))
        self.now = sum([value for value, _ in self.recent]) / len(self.recent)
        lasted_now = [value for value, lasted in self.recent if lasted]
        self.present = sum(lasted_now) / len(lasted_now) if lasted_now else self.now
        if len(lasted_now) == RECENT and age >= TOP_FROM:
            self.top = max(self.top, self.now)
        self.stepped = not swings and self._taken >= 2.0 and self._is_step()
        if self.stepped:
            self._restart(age)
        self.readings = self._taken + len(lasted_now)
        self.mean = (self._taken * self._before + sum(lasted_now)) / self.readings if self.readings else self.now

    @property
    def before(self) -> float:
        """The level without the last readings, where there are older ones."""
        return self._before if self._taken else self.mean

    def forget(self) -> None:
        """Removes all readings so far from the level."""
        self._taken = self.readings = 0.0
        self.recent = [(value, False) for value, _ in self.recent]

    def _take(self, demand: float) -> None:
        self._taken = min(self._taken + 1.0, LONGEST)
        off = demand - self._before
        self._before += off / self._taken
        if self._taken > 1.0:
            beyond = max(0.0, off * (demand - self._before) - (NOISE * self._before) ** 2)
            self.variance += (beyond - self.variance) / self._taken

    def _is_step(self) -> bool:
        before = self._before
        spread = math.sqrt(self.variance + (NOISE * before) ** 2)
        least = max(STEP * max(before, self.now), STEP_SIGMAS * spread)
        values = [value for value, lasted in self.recent if lasted]
        if len(values) < RECENT or abs(self.now - before) <= least:
            return False
        return min(values) > before or max(values) < before

    def _restart(self, age: float) -> None:
        if self.now < self._before and age < EARLY:
            self.variance = 0.0
        else:
            self.variance += (self.now - self._before) ** 2 / 4.0
        self._taken = 0.0
        self._before = self.now

    def is_rising(self, age: float) -> bool:
        """Whether demand is still rising: the growth at the current rate over the pod's age so far exceeds RISING."""
        if len(self.recent) < RECENT:
            return True
        slope = (self.recent[-1][0] - self.recent[0][0]) / (len(self.recent) - 1)
        return slope * max(age, 1.0) > RISING * self.now
