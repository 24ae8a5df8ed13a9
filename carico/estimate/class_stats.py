"""Statistics of one class of pods: the level they settle at, the variance between pods, and demand by age.

All pods have the same weight, however long they live. Ended pods are a decayed mean and variance; running pods are
added with their current level. A running pod that changes its level is evidence that the class changed, so ended pods
then get less weight. New pods that repeatedly deviate to the same side are the same evidence.
"""

from __future__ import annotations

import math

from carico.estimate.profile import AgeProfile, Course
from carico.estimate.quantile import LogHistogram
from carico.estimate.track import Level
from carico.types import ClassCost, ClassKey

Values = tuple[float, ...]

LONGEST = 50.0  # maximum weight of a mean, in pods
FIRST_SPREAD = 0.15  # prior of the deviation between pods, as a share of their mean
FIRST_SPREAD_PODS = 1.0  # weight of that prior, in pods
FORGET = 86400.0  # s without a pod in which the weight of the measured ones halves
USE_HIGH = 0.95  # quantile of use
DRIFT_SHARE = 0.3  # weight of one new pod in the drift
DRIFT = 2.2  # mean standardised deviation of new pods that is a change: two with a large one, or many with a small one
KEPT_AFTER_DRIFT = 0.5  # pods
STEPPED = 0.4  # share of the running pods that must change their level together to be a change of the class
STEPS_FOR = 15.0  # s; time constant within which changes count as simultaneous
KEPT_AFTER_STEP = 0.3  # share of the ended pods' weight that is left after the only running pod changed its level
RECENT = 600.0  # s; time constant of the count of recent starts
STILL_TO_COME = 0.2  # share of the level by which demand may still rise when the ramp counts as over
PEAK_TO_COME = 0.05  # the same for memory
SURPLUS = 0.3  # share of the level by which demand at the start must exceed it to be a surplus
SWINGS = 1.6  # times the mean: a class whose highest demand is above that swings
SHOWN = 0.8  # share of the ended pods' highest demand that a running pod must have reached to be included
WHOLE = 1.26  # s of age up to which a reading may begin with the pod: it includes the loading of the program
SHOWN_SURPLUS = 0.5  # share of the class's surplus that a pod must have shown and lost again
FALLEN = 0.75  # share of a starting pod's demand below which its start-up is over
DOUBLED = 2.0  # times a level, above which a reading of a saturated second means that the pod has changed
QUEUE_SHARE = 0.05  # weight of one reading in `queueing`
ENOUGH = 4.0  # pods that make a profile; before that a start-up surplus is what a single pod has shown
SETTLES_BY = 20.0  # s after which a pod that still grows counts as measured
COMES_UP = 1.2  # times the previous reading, above which cpu demand is still rising
LITTLE = 0.02  # cores
FEW = 3.0  # readings below which there is no level yet after a start-up, or to compare saturated seconds with
QUIET = 0.02  # share of a level by which a reading may differ from it without an update of the class's statistics
BRIEF = 0.3  # weight of a pod that ended before it settled: the only evidence of pods that live for seconds


class WeightedSpread:
    """Weighted mean and variance over pods of one resource; the weight is at most LONGEST.

    >>> spread = WeightedSpread()
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


class PodTrack:
    """One current pod of the class."""

    __slots__ = (
        "age",
        "courses",
        "idle_since",
        "last",
        "levels",
        "plain",
        "provisional",
        "quiet",
        "restarted",
        "running",
        "settled",
        "started_up",
    )

    def __init__(self, resources: int, at: float) -> None:
        self.levels = [Level() for _ in range(resources)]
        self.courses = [Course() for _ in range(resources)]
        self.settled = [False] * resources  # has reached its load
        self.started_up = [False] * resources  # its demand fell: the surplus of its start is over
        self.provisional = [False] * resources  # its level is a lower bound: the node was saturated
        self.age = 0.0
        self.running = False
        self.idle_since = at  # s; no container runs since then
        self.last: Values | None = None  # reading
        self.restarted = False  # its containers ended and were started again
        self.plain = False  # all its levels are known without its class
        self.quiet = False  # and its last reading hardly differs from them

    def look(self) -> None:
        """Updates `plain` and `quiet`. Call it after the pod's readings of a second."""
        known = all(self.settled) and not any(self.provisional)
        few = (level.readings < FEW for level in self.levels)
        self.plain = known and not any(done and short for done, short in zip(self.started_up, few, strict=True))
        self.quiet = self.plain and self._is_quiet()

    def _is_quiet(self) -> bool:
        for level, amount in zip(self.levels, self.last or (), strict=True):
            if level.stepped or abs(amount - level.mean) > QUIET * level.mean:
                return False
        return True

    def level(self, i: int) -> float:
        level = self.levels[i]
        return level.mean if level.readings else level.now


class ClassStats:
    """One class. Resources are numbered; `peaks[i]`: the highest value of resource i counts, as for memory."""

    def __init__(self, key: ClassKey, peaks: tuple[bool, ...], at: float) -> None:
        size = len(peaks)
        self.key = key
        self._peaks = peaks
        self.ended = [WeightedSpread() for _ in peaks]
        self.profiles = [AgeProfile() for _ in peaks]
        self.highest = [0.0] * size  # level of any pod
        self.tops = [WeightedSpread() for _ in peaks]  # highest demand of pods that have ended
        self.uses = [LogHistogram() for _ in peaks]
        self.queueing = [1.0] * size  # factor by which measured demand is too high while threads queue
        self._drift = [0.0] * size
        self._steps = [0.0] * size  # pods that recently changed their level, decayed
        self.pods: dict[str, PodTrack] = {}
        self.recent = 0.0  # starts, exponentially decayed
        self.used_at = at
        self.start_ups = [0.0] * size  # s of surplus at the start
        self.ramps = [0.0] * size  # s until a pod has reached its load
        self._aged = [(-1, 0.0)] * size  # profile version and mean that the ramp was computed from
        self._surplus_found = [(0.0, 0.0)] * size  # amount, s
        self.refresh()

    # Learning

    def read(self, pod: PodTrack, i: int, demand: float, *, exact: bool) -> None:
        """Processes a new reading of resource i. One that is not exact is a lower bound.

        Demand by age includes the saturated seconds: pods saturate a node most of all while they start, so without
        those seconds the curve would consist of different pods at different ages.
        """
        level = pod.levels[i]
        if pod.age < WHOLE:
            level.first = demand
            return
        known = level.readings and not pod.provisional[i]
        if not exact and known and FALLEN * level.before <= demand <= DOUBLED * level.before:
            self._queue(i, demand, level.before, level.readings)
            self.profiles[i].read(pod.courses[i], pod.age, level.before)
            return
        if exact and pod.provisional[i]:
            level.forget()
            pod.provisional[i] = False
        lasting = self._lasts(pod, i)
        level.read(demand, pod.age, lasting=lasting, swings=self.swings[i])
        if self._has_started_up(pod, i, demand, lasting=lasting):
            pod.started_up[i] = True
        pod.provisional[i] = pod.provisional[i] or (not exact and level.readings <= 1.0)
        self.profiles[i].read(pod.courses[i], pod.age, demand)
        if lasting:
            self._settle(pod, i)
            self._watch(pod, i)

    def _has_started_up(self, pod: PodTrack, i: int, demand: float, *, lasting: bool) -> bool:
        """Whether the pod has shown the demand of its start, and that it is over."""
        level = pod.levels[i]
        if not lasting and pod.age < self.start_ups[i]:
            return demand < FALLEN * max(level.recent)[0]
        # The surplus may become known, or longer, after this pod has had its own.
        return level.early - demand > max(SHOWN_SURPLUS * self.surplus[i], LITTLE) and demand < FALLEN * level.early

    def _lasts(self, pod: PodTrack, i: int) -> bool:
        """Whether a reading taken now belongs to the level that the pod settles at."""
        age, level = pod.age, pod.levels[i]
        if pod.settled[i]:
            return not self.is_starting(pod, i)
        if self.spreads[i].weight >= 1.0:
            return age >= self.ramps[i] and not self.is_starting(pod, i)
        return age >= SETTLES_BY or not level.is_rising(age)

    def _settle(self, pod: PodTrack, i: int) -> None:
        if pod.settled[i]:
            return
        pod.settled[i] = True
        mean, variance, weight = self.spreads[i].mean, with_first_spread(self.spreads[i]), self.spreads[i].weight
        if weight < 2.0 or mean <= 0.0 or self.swings[i]:
            return
        deviation = math.sqrt(variance * (1.0 + 1.0 / weight) + (0.05 * mean) ** 2)
        if deviation <= 0.0:  # a mean of 1e-200, whose square is 0
            return
        off = min(max((pod.level(i) - mean) / deviation, -6.0), 6.0)
        self._drift[i] += DRIFT_SHARE * (off - self._drift[i])
        if abs(self._drift[i]) > DRIFT:
            self.ended[i].weight = min(self.ended[i].weight, KEPT_AFTER_DRIFT)
            self._drift[i] = 0.0

    def _watch(self, pod: PodTrack, i: int) -> None:
        level = pod.levels[i]
        if level.stepped:
            self._step(i)
        self.highest[i] = max(self.highest[i], level.now)

    def _queue(self, i: int, demand: float, level: float, readings: float) -> None:
        """Updates `queueing` with demand read while threads queued, of a pod whose level was known before.

        A level of one or two readings may be the end of a ramp, and the rest of the ramp is no queueing.
        """
        if level > 0.0 and readings >= FEW:
            seen = min(max(demand / level, 1.0), DOUBLED)
            self.queueing[i] += QUEUE_SHARE * (seen - self.queueing[i])

    def _step(self, i: int) -> None:
        """A running pod changed its level. One may be an outlier; if most do, the ended pods were another workload."""
        self._steps[i] += 1.0
        running = sum(other.settled[i] for other in self.pods.values())
        if self._steps[i] >= max(1.5, STEPPED * running):
            self.ended[i].weight = min(self.ended[i].weight, KEPT_AFTER_DRIFT)
        elif running == 1:
            self.ended[i].weight *= KEPT_AFTER_STEP

    def retire(self, uid: str) -> None:
        """The pod has ended: adds its levels to those of the ended pods."""
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
        """Applies the decay of `seconds`. Without current pods the weight of ended ones decays, but not their mean."""
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
        """Recomputes the statistics of current and ended pods together. Call it after the readings of a second."""
        self.spreads = [self._together(i) for i in range(len(self._peaks))]
        means = [spread.mean for spread in self.spreads]
        for i, mean in enumerate(means):
            self._refresh_age(i, mean)
        self.top = [self._top(i) for i in range(len(means))]
        self.swings = [
            not peak and top > SWINGS * mean + LITTLE
            for peak, top, mean in zip(self._peaks, self.top, means, strict=True)
        ]
        # A class that swings has no start-up: its bursts do not depend on age.
        found = [(0.0, 0.0) if swings else s for swings, s in zip(self.swings, self._surplus_found, strict=True)]
        self.surplus, self.start_ups = [most for most, _ in found], [length for _, length in found]
        # From this age on the pod's own level is used, in every resource.
        self.grown = math.inf if any(self.swings) else max([*self.start_ups, *self.ramps])
        self.cost = self._cost()

    def _refresh_age(self, i: int, mean: float) -> None:
        """Recomputes ramp and start-up if the profile changed, or the mean by more than 2 %."""
        profile, (version, seen) = self.profiles[i], self._aged[i]
        if version == profile.version and abs(mean - seen) <= 0.02 * seen:
            return
        self._aged[i] = (profile.version, mean)
        # Where the level is almost nothing, a share of it is noise.
        most, length = (0.0, 0.0) if self._peaks[i] else profile.surplus(max(SURPLUS * mean, LITTLE))
        self._surplus_found[i] = (most, length)
        level = max(mean, (mean + most) / 2.0)
        self.ramps[i] = profile.ramp(PEAK_TO_COME * level if self._peaks[i] else max(STILL_TO_COME * level, LITTLE))

    def _together(self, i: int) -> WeightedSpread:
        """Ended and running pods combined."""
        ended = self.ended[i]
        found = WeightedSpread(ended.weight, ended.mean, ended.variance)
        for pod in self.pods.values():
            if pod.levels[i].readings and not self.is_starting(pod, i):
                found.add(pod.level(i), _worth(pod, i))
        return found

    def is_starting(self, pod: PodTrack, i: int) -> bool:
        """Whether the pod may still show the surplus of its start."""
        return pod.age < self.start_ups[i] and not pod.started_up[i]

    def is_shown(self, pod: PodTrack, i: int) -> bool:
        """Whether a pod that has not settled has shown its cpu demand: it no longer rises.

        Later pods of a class may follow its ramp or start-up, so this holds for them only once both are over.
        """
        if self._peaks[i] or (self.cost is not None and (pod.age < self.ramps[i] or self.is_starting(pod, i))):
            return False
        level = pod.levels[i]
        recent = [demand for demand, _ in level.recent[-2:]]
        if len(recent) == 1 and level.first is not None:
            recent.insert(0, level.first)
        return len(recent) == 2 and recent[1] <= COMES_UP * recent[0] + LITTLE

    def shown(self, guess: Values) -> Values:
        """What to reserve for one more pod before the class has a cost: what its pods have shown, else the guess.

        The scheduler may know the class from other nodes and place more of its pods here already. The report that
        counts these must not reserve the guess for them if the first one demands more than that.
        """
        return tuple([self._shown(i, amount) for i, amount in enumerate(guess)])

    def _shown(self, i: int, guess: float) -> float:
        found = [max(pod.levels[i].recent)[0] for pod in self.pods.values() if self.is_shown(pod, i)]
        if found:
            return (1.0 + FIRST_SPREAD) * max(found)
        return max([guess, *[pod.last[i] for pod in self.pods.values() if pod.last is not None]])

    def _top(self, i: int) -> float:
        """Highest demand of a pod after its start-up: of ended pods, and of those that reached it and fell again."""
        ended = self.tops[i]
        found = WeightedSpread(ended.weight, ended.mean, ended.variance)
        for pod in self.pods.values():
            level = pod.levels[i]
            if level.top > SHOWN * ended.mean and level.now < FALLEN * level.top:
                found.add(level.top, 1.0)
        return found.mean

    def _high(self, i: int, mean: float) -> float:
        """Memory: the highest level. Cpu: the demand of a pod at its start or in bursts."""
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


def with_first_spread(spread: WeightedSpread) -> float:
    """Variance between pods, combined with a prior for when few were measured."""
    guess = (FIRST_SPREAD * spread.mean) ** 2
    total = spread.weight + FIRST_SPREAD_PODS
    return (spread.weight * spread.variance + FIRST_SPREAD_PODS * guess) / total


def _worth(pod: PodTrack, i: int) -> float:
    """Weight of a pod; less than 1 if its level is based on few readings."""
    readings = pod.levels[i].readings
    return 0.0 if not readings else (0.3 if pod.provisional[i] else 1.0) * readings / (readings + 2.0)
