"""What is known of one class of pods: what they settle at, how unlike they are, and how demand goes with age.

Pods count alike, however long they live: those that have ended are a decayed mean and variance, those that run stand
beside them with their present level. A pod that changes its level while it runs says that the class changed, so the
ended ones then count for less. New pods that are off to one side again and again say the same.
"""

from __future__ import annotations

import math

from carico.estimate.profile import Course, Profile
from carico.estimate.quantile import LogHistogram
from carico.estimate.track import Level
from carico.types import ClassCost, ClassKey

Values = tuple[float, ...]

LONGEST = 50.0  # pods behind a mean
FIRST_SPREAD = 0.15  # deviation between pods before it is known, as a share of their mean
FIRST_SPREAD_PODS = 1.0  # what that guess is worth
FORGET = 86400.0  # s without a pod after which the measured ones count half
USE_HIGH = 0.95  # quantile of use
DRIFT_SHARE = 0.3  # weight of one new pod in the drift
DRIFT = 2.2  # mean standardised deviation of new pods that is a change: two pods far off, or many somewhat
KEPT_AFTER_DRIFT = 0.5  # pods
STEPPED = 0.4  # share of the running pods that must change their level together to be a change of the class
STEPS_FOR = 15.0  # s in which changes are together
KEPT_AFTER_STEP = 0.3  # share of the ended pods' weight after the only running pod changed its level
RECENT = 600.0  # s in which a start is recent
STILL_TO_COME = 0.2  # share of the level that a pod may still come up by when it counts as come up
PEAK_TO_COME = 0.05  # the same of memory
SURPLUS = 0.3  # share of the level by which a start must exceed it to be a surplus
SWINGS = 1.6  # times the mean: where pods' highest demand lies beyond that, they swing
SHOWN = 0.8  # share of the ended pods' highest demand that a running pod must have shown to count beside them
WHOLE = 1.1  # s of age before which a reading says little: a program is being loaded
FALLEN = 0.75  # share of a starting pod's demand below which its start-up is over
DOUBLED = 2.0  # times a level, from which on a reading of a saturated second says that the pod has changed
QUEUE_SHARE = 0.05  # weight of one reading in that factor
ENOUGH = 4.0  # pods that make a profile; before that a start-up surplus is what a single pod has shown
SETTLES_BY = 20.0  # s after which a pod that still grows counts as measured
BRIEF = 0.3  # what a pod counts that ended before it settled: all that can be known of pods that live for seconds


class Spread:
    """Mean and variance over pods of one resource, the last LONGEST of them.

    >>> spread = Spread()
    >>> for value in (1.0, 3.0):
    ...     spread.add(value, 1.0)
    >>> spread.weight, spread.mean, spread.variance
    (2.0, 2.0, 1.0)
    """

    __slots__ = ("mean", "variance", "weight")

    def __init__(self, weight: float = 0.0, mean: float = 0.0, variance: float = 0.0) -> None:
        self.weight, self.mean, self.variance = weight, mean, variance

    def add(self, value: float, weight: float) -> None:
        total = self.weight + weight
        if total <= 0.0:
            return
        share, off = weight / total, value - self.mean
        self.mean += share * off
        self.variance = (1.0 - share) * (self.variance + share * off * off)
        self.weight = min(total, LONGEST)


class Pod:
    """One pod of the class that runs."""

    __slots__ = (
        "age",
        "courses",
        "idle_since",
        "last",
        "levels",
        "provisional",
        "restarted",
        "running",
        "settled",
        "started_up",
    )

    def __init__(self, resources: int, at: float) -> None:
        self.levels = [Level() for _ in range(resources)]
        self.courses = [Course() for _ in range(resources)]
        self.settled = [False] * resources  # has come up to its load
        self.started_up = [False] * resources  # its demand fell, and the surplus of its start with it
        self.provisional = [False] * resources  # its level is a lower bound: the node has been saturated
        self.age = 0.0
        self.running = False
        self.idle_since = at  # s; since when no container runs
        self.last: Values | None = None  # reading
        self.restarted = False  # its containers ended and were started again

    def level(self, i: int) -> float:
        level = self.levels[i]
        return level.mean if level.readings else level.now


class ClassStats:
    """One class. Resources are numbered; `peaks[i]`: what counts of resource i is its highest value, as of memory."""

    def __init__(self, key: ClassKey, peaks: tuple[bool, ...], at: float) -> None:
        size = len(peaks)
        self.key = key
        self._peaks = peaks
        self.ended = [Spread() for _ in peaks]
        self.profiles = [Profile() for _ in peaks]
        self.highest = [0.0] * size  # level of any pod
        self.tops = [Spread() for _ in peaks]  # highest demand of pods that have ended
        self.uses = [LogHistogram() for _ in peaks]
        self.queueing = [1.0] * size  # by what factor demand looks dearer while threads queue
        self._drift = [0.0] * size
        self._steps = [0.0] * size  # pods that changed their level a moment ago
        self.pods: dict[str, Pod] = {}
        self.recent = 0.0  # starts, older ones counting less
        self.used_at = at
        self.start_ups = [0.0] * size  # s of surplus at the start
        self.ramps = [0.0] * size  # s until a pod has come up to its load
        self._aged = [(-1, 0.0)] * size  # of which profile and mean the ramp is
        self._surplus_found = [(0.0, 0.0)] * size  # amount, s
        self.refresh()

    # Learning

    def read(self, pod: Pod, i: int, demand: float, *, exact: bool) -> None:
        """A fresh reading of resource i. One that is not exact is a lower bound."""
        level = pod.levels[i]
        if pod.age < WHOLE:
            return
        known = level.readings and not pod.provisional[i]
        if not exact and known and FALLEN * level.before <= demand <= DOUBLED * level.before:
            self._queue(i, demand, level.before)
            return
        if exact and pod.provisional[i]:
            level.forget()
            pod.provisional[i] = False
        lasting = self._lasts(pod, i)
        level.read(demand, pod.age, lasting=lasting, swings=self.swings[i])
        if not lasting and pod.age < self.start_ups[i] and demand < FALLEN * max(level.recent)[0]:
            pod.started_up[i] = True
        pod.provisional[i] = pod.provisional[i] or (not exact and level.readings <= 1.0)
        if exact:
            self.profiles[i].read(pod.courses[i], pod.age, demand)
        if lasting:
            self._settle(pod, i)
            self._watch(pod, i)

    def _lasts(self, pod: Pod, i: int) -> bool:
        """Whether a reading of now belongs to the level that the pod settles at."""
        age, level = pod.age, pod.levels[i]
        if pod.settled[i]:
            return not self.is_starting(pod, i)
        if self.spreads[i].weight >= 1.0:
            return age >= self.ramps[i] and not self.is_starting(pod, i)
        return age >= SETTLES_BY or not level.is_rising(age)

    def _settle(self, pod: Pod, i: int) -> None:
        if pod.settled[i]:
            return
        pod.settled[i] = True
        mean, variance, weight = self.spreads[i].mean, with_first_spread(self.spreads[i]), self.spreads[i].weight
        if weight < 2.0 or mean <= 0.0 or self.swings[i]:
            return
        deviation = math.sqrt(variance * (1.0 + 1.0 / weight) + (0.05 * mean) ** 2)
        off = min(max((pod.level(i) - mean) / deviation, -6.0), 6.0)
        self._drift[i] += DRIFT_SHARE * (off - self._drift[i])
        if abs(self._drift[i]) > DRIFT:
            self.ended[i].weight = min(self.ended[i].weight, KEPT_AFTER_DRIFT)
            self._drift[i] = 0.0

    def _watch(self, pod: Pod, i: int) -> None:
        level = pod.levels[i]
        if level.stepped:
            self._step(i)
        self.highest[i] = max(self.highest[i], level.now)

    def _queue(self, i: int, demand: float, level: float) -> None:
        """Demand read while threads queued, of a pod whose level is known from before."""
        if level > 0.0:
            seen = min(max(demand / level, 1.0), DOUBLED)
            self.queueing[i] += QUEUE_SHARE * (seen - self.queueing[i])

    def _step(self, i: int) -> None:
        """A running pod changed its level. One alone may be odd; if most do, the ended ones were another workload."""
        self._steps[i] += 1.0
        running = sum(other.settled[i] for other in self.pods.values())
        if self._steps[i] >= max(1.5, STEPPED * running):
            self.ended[i].weight = min(self.ended[i].weight, KEPT_AFTER_DRIFT)
        elif running == 1:
            self.ended[i].weight *= KEPT_AFTER_STEP

    def retire(self, uid: str) -> None:
        """The pod has ended: what it showed joins the others."""
        pod = self.pods.pop(uid)
        for i, level in enumerate(pod.levels):
            self.profiles[i].end(pod.courses[i])
            if level.readings or level.recent:
                value = max(pod.level(i), level.now) if self._peaks[i] else pod.level(i)
                self.ended[i].add(value, _worth(pod, i) or BRIEF)
                self.highest[i] = max(self.highest[i], level.now if self._peaks[i] else 0.0)
            if level.top > 0.0:
                self.tops[i].add(level.top, 1.0)

    def idle(self, seconds: float) -> None:
        """So much time passed: without pods the measured ones count less and less, and the mean stays."""
        self.recent *= math.exp(-seconds / RECENT)
        forgotten = math.exp(-seconds / STEPS_FOR)
        self._steps = [steps * forgotten for steps in self._steps]
        if self.pods:
            return
        kept = 0.5 ** (seconds / FORGET)
        for spread in self.ended:
            spread.weight *= kept

    # What is known

    def refresh(self) -> None:
        """Works out what the pods of now and the ended ones say together; to be called after a second's readings."""
        self.spreads = [self._together(i) for i in range(len(self._peaks))]
        means = [spread.mean for spread in self.spreads]
        for i, mean in enumerate(means):
            self._refresh_age(i, mean)
        self.top = [self._top(i) for i in range(len(means))]
        self.swings = [
            not peak and top > SWINGS * mean for peak, top, mean in zip(self._peaks, self.top, means, strict=True)
        ]
        # A class that swings has no start-up of its own: its bursts are not bound to age.
        found = [(0.0, 0.0) if swings else s for swings, s in zip(self.swings, self._surplus_found, strict=True)]
        self.surplus, self.start_ups = [most for most, _ in found], [length for _, length in found]
        self.cost = self._cost()

    def _refresh_age(self, i: int, mean: float) -> None:
        """Ramp and start-up, if the profile changed or the mean did by more than a little."""
        profile, (version, seen) = self.profiles[i], self._aged[i]
        if version == profile.version and abs(mean - seen) <= 0.02 * seen:
            return
        self._aged[i] = (profile.version, mean)
        most, length = (0.0, 0.0) if self._peaks[i] else profile.surplus(SURPLUS * mean)
        self._surplus_found[i] = (most, length)
        level = max(mean, (mean + most) / 2.0)
        self.ramps[i] = profile.ramp((PEAK_TO_COME if self._peaks[i] else STILL_TO_COME) * level)

    def _together(self, i: int) -> Spread:
        """Ended and running pods as one."""
        ended = self.ended[i]
        found = Spread(ended.weight, ended.mean, ended.variance)
        for pod in self.pods.values():
            if pod.levels[i].readings and not self.is_starting(pod, i):
                found.add(pod.level(i), _worth(pod, i))
        return found

    def is_starting(self, pod: Pod, i: int) -> bool:
        """Whether the surplus of its start is still to be expected of the pod."""
        return pod.age < self.start_ups[i] and not pod.started_up[i]

    def _top(self, i: int) -> float:
        """Highest demand of a pod after its start-up: of ended pods, and of those that showed it and fell again."""
        ended = self.tops[i]
        found = Spread(ended.weight, ended.mean, ended.variance)
        for pod in self.pods.values():
            level = pod.levels[i]
            if level.top > SHOWN * ended.mean and level.now < FALLEN * level.top:
                found.add(level.top, 1.0)
        return found.mean

    def _high(self, i: int, mean: float) -> float:
        """Highest level of memory; of cpu what a pod wants in its dear seconds, at its start or in bursts."""
        if self._peaks[i]:
            return max(self.highest[i], mean)
        known = max(self.profiles[i].pods, default=0.0) >= ENOUGH
        early = 0.0 if known else max([pod.levels[i].early for pod in self.pods.values()], default=0.0)
        return max(mean, self.top[i], mean + self.surplus[i], early)

    def _cost(self) -> ClassCost | None:
        weight = min(spread.weight for spread in self.spreads)
        if weight <= 0.0:
            return None
        return ClassCost(
            key=self.key,
            pods=sum(pod.running for pod in self.pods.values()),
            weight=weight,
            mean=tuple([spread.mean for spread in self.spreads]),
            variance=tuple([with_first_spread(spread) for spread in self.spreads]),
            high=tuple([self._high(i, spread.mean) for i, spread in enumerate(self.spreads)]),
            use_high=tuple([histogram.quantile(USE_HIGH) for histogram in self.uses]),
            ramp=max(self.ramps),
        )


def with_first_spread(spread: Spread) -> float:
    """Variance between pods, with a guess beside the few that were measured."""
    guess = (FIRST_SPREAD * spread.mean) ** 2
    total = spread.weight + FIRST_SPREAD_PODS
    return (spread.weight * spread.variance + FIRST_SPREAD_PODS * guess) / total


def _worth(pod: Pod, i: int) -> float:
    """A pod whose level rests on few readings counts for less than one."""
    readings = pod.levels[i].readings
    return 0.0 if not readings else (0.3 if pod.provisional[i] else 1.0) * readings / (readings + 2.0)
