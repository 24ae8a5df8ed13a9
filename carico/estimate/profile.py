"""Demand of a class by pod age: the mean change from one age bucket to the next.

Ramps, start-up surplus and slow growth are all described by this curve. It is computed from differences within one pod.
Means over all pods of some age would be biased: pods differ, and the few long-lived ones are not representative.
"""

from __future__ import annotations

from bisect import bisect_right

# s; the last bucket has no end.
EDGES = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0, 96.0, 128.0, 192.0, 256.0, 384.0, 768.0)
LONGEST = 40.0  # maximum weight of a difference, in pods


class Course:
    """One resource of one pod: the mean in the current age bucket, and in the previous one."""

    __slots__ = ("before", "bucket", "readings", "total")

    def __init__(self) -> None:
        self.bucket = -1
        self.total = 0.0
        self.readings = 0
        self.before: tuple[int, float] | None = None


class AgeProfile:
    """One resource of one class.

    >>> profile, course = AgeProfile(), Course()
    >>> for age, demand in ((0.5, 4.0), (1.5, 4.0), (2.5, 1.0), (3.5, 1.0), (5.0, 1.0)):
    ...     profile.read(course, age, demand)
    >>> profile.end(course)
    >>> profile.changes
    [0.0, -3.0, 0.0, 0.0]
    >>> profile.surplus(0.2), profile.ahead(0.0)
    ((3.0, 2.0), 0.0)
    """

    __slots__ = ("changes", "pods", "version")

    def __init__(self) -> None:
        self.changes: list[float] = []  # from each bucket to the next
        self.pods: list[float] = []  # weight of each change, in pods
        self.version = 0  # incremented with each change

    def read(self, course: Course, age: float, demand: float) -> None:
        bucket = bisect_right(EDGES, age)
        if bucket != course.bucket:
            self.end(course)
            course.bucket, course.total, course.readings = bucket, 0.0, 0
        course.total += demand
        course.readings += 1

    def end(self, course: Course) -> None:
        """The pod leaves its bucket, or has ended."""
        if not course.readings:
            return
        mean = course.total / course.readings
        if course.before is not None:
            self._change(course.before, course.bucket, mean)
        course.before = (course.bucket, mean)

    def _change(self, before: tuple[int, float], bucket: int, mean: float) -> None:
        """Divides the change equally among buckets that were skipped."""
        first, level = before
        steps = bucket - first
        if steps <= 0:
            return
        self.version += 1
        while len(self.changes) < bucket:
            self.changes.append(0.0)
            self.pods.append(0.0)
        for i in range(first, bucket):
            self.pods[i] = min(self.pods[i] + 1.0, LONGEST)
            self.changes[i] += ((mean - level) / steps - self.changes[i]) / self.pods[i]

    def ahead(self, age: float) -> float:
        """Expected maximum increase of demand of a pod of this age."""
        most = total = 0.0
        for change in self.changes[bisect_right(EDGES, age) :]:
            total += change
            most = max(most, total)
        return most

    def ramp(self, least: float) -> float:
        """s of age from which on demand is expected to rise by at most `least`."""
        most = total = 0.0
        for i in range(len(self.changes) - 1, -1, -1):
            # From bucket i on: its change plus the maximum rise after it.
            total = max(total, 0.0) + self.changes[i]
            most = max(total, 0.0)
            if most > least:
                return EDGES[i]
        return 0.0

    def surplus(self, least: float) -> tuple[float, float]:
        """By how much demand at the start exceeds later demand, and for how many s; (0, 0) if by at most `least`."""
        most, length, fall = 0.0, 0.0, 0.0
        for i in range(len(self.changes) - 1, -1, -1):
            fall -= self.changes[i]
            most = max(most, fall)
            if fall > least and not length:
                length = EDGES[i]
        return (most, length) if length else (0.0, 0.0)
