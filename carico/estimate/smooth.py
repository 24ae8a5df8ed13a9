"""Smoothing: the current usage without the spikes of container starts, but with real changes.

Two smoothers. `DynamicEma` is an exponential moving average: a recent deviation is probably a spike of about 200 ms and
is followed slowly, one that has lasted over 300 ms is real and is followed fast. `ChangeAware` uses the runtime's
events of pod starts and stops: samples at these times are left out, and the mean restarts with the first clean sample
after the count changed. A step without an event is detected by comparing the last half second with the mean. It also
estimates the noise of single samples, which the filters use as the observation variance. Without any events, or while
churn does not end, `ChangeAware` returns the exponential moving average.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from carico.estimate.saved import numbers, rows, section
from carico.estimate.stage import Stage
from carico.types import PodCount

Values = tuple[float, ...]

# Author's constants for 10 Hz: slow and fast, upwards and downwards, and the samples after which a deviation is old.
UP_SLOW, UP_FAST = 0.09, 0.333
DOWN_SLOW, DOWN_FAST = 0.0625, 0.2
OLD_AFTER = 4
CONSTANTS_HZ = 10.0  # sampling rate of these constants

WINDOW_SECONDS = 2.0  # the mean's maximum memory
HOLD_SECONDS = 0.3  # left out after a change of the count: the spike outlasts the runtime's last event by 200 ms
STEP_SECONDS = 0.5  # a deviation that lasted this long is a step, not a spike
STEP_SIGMAS = (
    5.0  # deviation of the last half second that is a step; Gaussian noise alone reaches it less than once a day
)
BLIND_SECONDS = 10.0  # churn that lasts longer is treated as a fault of the runtime's events
NOISE_SHARE = 0.02  # weight of a new sample in the noise's variance: a memory of 5 s at 10 Hz
FIRST_NOISE = 0.02**2  # variance, of cpu on an idle machine at 10 Hz
LEAST_NOISE = 1e-4**2  # variance; memory changes little, but it is never known exactly


class Smoother(Stage, Protocol):
    """`update` is called once per sample; the attributes are then valid for that sample."""

    usage: Values
    noise: Values  # variance of a single sample
    clean: bool  # this sample was used
    fresh: bool  # `usage` includes samples with the current pod count

    def update(self, values: Values, pods: PodCount) -> None: ...


class DynamicEma:
    """y ← y + α (x − y), with α by direction and age of the deviation, counted per dimension.

    >>> ema = DynamicEma(1)
    >>> for x in (0.0, 1.0, 1.0, 1.0, 1.0):
    ...     ema.follow((x,))
    >>> round(ema.usage[0], 6)  # three slow steps, then a fast one
    0.497368
    """

    def __init__(self, size: int, rate_hz: float = CONSTANTS_HZ) -> None:
        self._up = at_rate(UP_SLOW, rate_hz), at_rate(UP_FAST, rate_hz)
        self._down = at_rate(DOWN_SLOW, rate_hz), at_rate(DOWN_FAST, rate_hz)
        self._old_after = max(1, round(OLD_AFTER * rate_hz / CONSTANTS_HZ))
        self.usage: Values = ()
        self.noise: Values = (FIRST_NOISE,) * size
        self.clean = True
        self.fresh = True
        self._size = size
        self._last: Values = ()
        self._ages = [0] * size  # samples on one side of y: positive above, negative below

    def update(self, values: Values, pods: PodCount) -> None:
        self.follow(values)
        self.noise = self._noise_after(values)
        self.clean = not pods.churn

    def follow(self, values: Values) -> None:
        if not self.usage:
            self.usage = values
            return
        self.usage = tuple(map(self._step, range(self._size), self.usage, values))

    def _step(self, i: int, y: float, x: float) -> float:
        age = self._ages[i]
        if x >= y:
            age = age + 1 if age > 0 else 1
            alpha = self._up[age >= self._old_after]
        else:
            age = age - 1 if age < 0 else -1
            alpha = self._down[-age >= self._old_after]
        self._ages[i] = age
        return y + alpha * (x - y)

    def _noise_after(self, values: Values) -> Values:
        last, self._last = self._last, values
        return tuple(map(noise_step, self.noise, values, last)) if last else self.noise

    def save(self) -> dict[str, object]:
        return {"usage": self.usage, "noise": self.noise, "last": self._last, "ages": list(self._ages)}

    def restore(self, state: Mapping[str, object]) -> None:
        self.usage = numbers(state, "usage", self._size, least=0.0, most=1.0, empty=True)
        self.noise = numbers(state, "noise", self._size, least=0.0, most=1.0)
        self._last = numbers(state, "last", self._size, least=0.0, most=1.0, empty=True)
        self._ages = [int(age) for age in numbers(state, "ages", self._size)]


def at_rate(share: float, rate_hz: float) -> float:
    """The weight of a sample that gives the same decay per second at this rate as `share` at ten samples a second.

    >>> at_rate(0.09, 10.0), round(at_rate(0.19, 20.0), 3)
    (0.09, 0.1)
    """
    return share if rate_hz == CONSTANTS_HZ else 1.0 - (1.0 - share) ** (CONSTANTS_HZ / rate_hz)


def noise_step(noise: float, x: float, before: float) -> float:
    """Half the squared difference of consecutive samples estimates the variance at any level; outliers are clipped."""
    half = min(0.5 * (x - before) ** 2, 9.0 * noise)
    return max(noise + NOISE_SHARE * (half - noise), LEAST_NOISE)


class ChangeAware:
    """The mean of the clean samples since the pod count last changed, with a memory that grows to two seconds.

    >>> smoother = ChangeAware(1, rate_hz=10)
    >>> for _ in range(10):
    ...     smoother.update((0.2,), PodCount(1, False, 0))
    >>> smoother.update((0.9,), PodCount(1, True, 0))  # a spike, announced by the runtime
    >>> round(smoother.usage[0], 6), smoother.fresh
    (0.2, True)
    >>> smoother.update((0.4,), PodCount(2, False, 0))  # a second pod
    >>> smoother.fresh
    False
    >>> for _ in range(3):
    ...     smoother.update((0.3,), PodCount(2, False, 0))
    >>> round(smoother.usage[0], 6), smoother.fresh
    (0.3, True)
    """

    def __init__(self, size: int, rate_hz: float) -> None:
        self.usage: Values = ()
        self.noise: Values = (FIRST_NOISE,) * size
        self.clean = False
        self.fresh = False
        self._size = size
        self._ema = DynamicEma(size, rate_hz)
        self._window = max(1, round(WINDOW_SECONDS * rate_hz))
        self._hold_for = round(HOLD_SECONDS * rate_hz)
        self._step_after = max(2, round(STEP_SECONDS * rate_hz))
        self._blind_after = round(BLIND_SECONDS * rate_hz)
        self._hold = 0  # samples still to leave out
        self._unclean = 0  # samples left out in a row
        self._count = 0.0  # clean samples in the mean, up to the window
        self._pods = -1  # -1: no sample yet
        self._saw_event = False  # an event of the runtime has been received
        self._last: Values = ()
        self._recent: list[Values] = []  # clean samples of the last half second

    def update(self, values: Values, pods: PodCount) -> None:
        self._ema.follow(values)
        self._take_count(pods)
        self.clean = not pods.churn and self._hold == 0
        self._hold = max(0, self._hold - 1)
        if self.clean:
            self._take(values)
        else:
            self._skip()
        if not self._saw_event or self._unclean > self._blind_after:
            self.usage = self._ema.usage
            self.fresh = True

    def _take_count(self, pods: PodCount) -> None:
        """A change of the count restarts the mean."""
        if pods.running != self._pods:
            self._saw_event = self._saw_event or self._pods >= 0
            self._hold = self._hold_for if self._pods >= 0 else 0
            self._pods = pods.running
            self._forget()
        self._saw_event = self._saw_event or pods.churn

    def _forget(self) -> None:
        self.fresh = False
        self._count = 0.0
        self._recent.clear()

    def _skip(self) -> None:
        self._unclean += 1
        self._last = ()
        if not self.usage:
            self.usage = self._ema.usage

    def _take(self, values: Values) -> None:
        self._unclean = 0
        if self._last:
            self.noise = tuple(map(noise_step, self.noise, values, self._last))
        self._last = values
        self._count = min(self._count + 1.0, self._window)
        share = 1.0 / self._count
        before = self.usage if self._count > 1.0 else values
        self.usage = tuple([y + share * (x - y) for x, y in zip(values, before, strict=True)])
        self.fresh = True
        self._recent.append(values)
        if len(self._recent) > self._step_after:
            del self._recent[0]
            self._watch_for_step()

    def _watch_for_step(self) -> None:
        """Usage changed without a change of the pod count: restarts the mean with the samples after the step."""
        size = len(self._recent)
        for i, (y, noise) in enumerate(zip(self.usage, self.noise, strict=True)):
            off = sum([values[i] for values in self._recent]) / size - y
            if off * off * size > STEP_SIGMAS * STEP_SIGMAS * noise and self._count > size:
                self.usage = tuple([sum(column) / size for column in zip(*self._recent, strict=True)])
                self._count = float(size)
                return

    def save(self) -> dict[str, object]:
        return {
            "usage": self.usage,
            "noise": self.noise,
            "last": self._last,
            "recent": [list(values) for values in self._recent],
            "counters": [self._hold, self._unclean, self._count, self._pods, self._saw_event, self.clean, self.fresh],
            "ema": self._ema.save(),
        }

    def restore(self, state: Mapping[str, object]) -> None:
        self.usage = numbers(state, "usage", self._size, least=0.0, most=1.0, empty=True)
        self.noise = numbers(state, "noise", self._size, least=0.0, most=1.0)
        self._last = numbers(state, "last", self._size, least=0.0, most=1.0, empty=True)
        self._recent = rows(state, "recent", self._size, self._step_after)
        hold, unclean, count, pods, saw_event, clean, fresh = numbers(state, "counters", 7, least=-1.0)
        self._hold, self._unclean, self._pods = int(hold), int(unclean), int(pods)
        self._count = min(count, self._window)
        self._saw_event, self.clean, self.fresh = bool(saw_event), bool(clean), bool(fresh)
        self._ema.restore(section(state, "ema"))
