"""One resource, one filter for baseline and cost together, and the time that pods take to reach their load.

Usage is linear in the pods whose load is visible: x = b + c·n. How many of the n pods are visible depends on how long a
pod takes to reach its load. One filter runs per ramp hypothesis of RAMPS, and the one with the best likelihood over
recent seconds provides the answer.

The line can break in three ways, each with its own correction. A pod may differ from the others: with every change of
the count the baseline's variance grows by the variance between pods, so the baseline absorbs the difference and the
cost remains the mean. The cost itself may change, visible as consecutive pods that deviate to the same side: then its
variance is increased. Or usage changes while the count does not: two large residuals in a row with the same sign
increase both variances, by the squared residual, divided according to which of baseline and cost could have caused it.

Some seconds are lower bounds: a saturated one, and one in which the load of counted pods may not be visible yet. They
can raise the cost, but are ignored when they are lower than predicted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from carico.estimate.kalman import LineKalman
from carico.estimate.ramp import RampTracker
from carico.estimate.saved import number, numbers, rows

RAMPS = (0.0, 3.0, 6.0, 10.0, 15.0, 20.0)  # s

# In shares of the node, or of the first cost; found by hand with seeds 1000–1009 of the synthetic node, which the
# benchmark does not use.
FIRST_BASELINE, FIRST_BASELINE_VARIANCE = 0.1, 0.2**2
FIRST_COST = 0.5  # prior if neither pods nor the node's size are known: few pods are admitted at first
FIRST_COST_VARIANCE = 0.5**2  # of the node, whatever the first guess: an unknown pod may fill half of it
BASELINE_WALK = 0.001**2  # per second
COST_WALK = 0.002  # per second, share of the cost
MODEL_ERROR = 0.003**2  # variance; usage is not exactly linear in the pods
SURPRISE = 3.0  # standard deviations
SHOCK = 10.0  # standard deviations upwards that need no second residual in a row
BASELINE_SHIFT = 0.03  # usage that something other than pods may add at once
COST_SHIFT = 0.5  # share by which a cost may change at once
MEMORY = 0.02  # weight of a second in a ramp's record: a memory of about a minute
JUDGED = 20.0  # s with pods before ramp hypotheses are compared
LEAD = 0.1  # nats per second by which a ramp must be better than the current one
LEAST_COST = 0.02  # share of the first cost; lower bound of the cost that changes are a share of
FIRST_UNLIKE = 0.2**2  # variance of single pods' costs, in squared shares of the mean cost
UNLIKE_SHARE = 0.05  # weight of one pod in that variance
DRIFT_SHARE = 0.3  # weight of one pod in the drift of the cost
DRIFT = 4.0  # standard deviations of drift that are a change of the cost
EVIDENCE = 0.25  # share of the prior variance of c below which the cost counts as known from own evidence …
CERTAIN = 0.25  # … if the deviation is also within this share of c
IDLE, CREEP = 60.0, 0.03  # s without pods after which the state returns to the prior, and its rate per second

# The fields that are saved of a ramp.
LINE = ("b", "c", "pbb", "pbc", "pcc")
RECORD = ("unlike", "drift", "before", "record", "last", "showing")


class RampHypothesis:
    """A line under one ramp hypothesis, and its likelihood."""

    __slots__ = ("before", "drift", "last", "least", "line", "record", "seconds", "showing", "unlike")

    def __init__(self, seconds: float, first: float) -> None:
        self.seconds = seconds
        self.least = LEAST_COST * first
        self.line = LineKalman(
            FIRST_BASELINE, first, FIRST_BASELINE_VARIANCE, FIRST_COST_VARIANCE, qb=BASELINE_WALK, qc=0.0
        )
        self.unlike = FIRST_UNLIKE  # variance of a single pod's cost, in squared shares of the mean cost
        self.drift = 0.0  # mean deviation of recent pods, in shares of the mean cost
        self.before = 0.0  # deviation of the previous pod
        self.record = 0.0  # mean negative log-likelihood of recent seconds, nats
        self.last = 0.0  # the previous residual, in standard deviations
        self.showing = 0.0  # visible pods in the previous second

    def learn(self, z: float, n: float, r: float, steps: float, least: float) -> None:
        """`least` is the residual, in standard deviations, below which the second is ignored as a mere lower bound."""
        line = self.line
        line.qc = (COST_WALK * max(line.c, self.least)) ** 2
        line.predict(steps)
        changed, off = n - self.showing, z - line.at(n)
        unlike = abs(changed) * max(line.c, self.least) ** 2 * self.unlike
        if off < least * math.sqrt(line.spread(n) + r + unlike):
            self.last = 0.0
            return
        self.showing = n
        if changed:
            self._meet(changed, off, line.spread(n) + r)
            line.pbb += unlike
        variance = line.spread(n) + r
        surprise = off / math.sqrt(variance)
        self._judge(surprise, variance)
        again = abs(surprise) > SURPRISE and self.last * surprise > 0.0 and abs(self.last) > SURPRISE
        if again or surprise > SHOCK:
            self._open(off * off - variance, n, upwards=off > 0.0)
        self.last = surprise
        line.update(z, n, r)
        self._keep_sensible()

    def _keep_sensible(self) -> None:
        """Bounds the state: the cost is not negative, usage is a ratio. A clipped cost corrects b by the covariance."""
        line = self.line
        if line.c < 0.0:
            line.b -= line.c * line.pbc / line.pcc
            line.c = 0.0
        line.b = min(max(line.b, -1.0), 1.0)
        most = max(line.pbb, line.pcc)
        if most > 1.0:
            line.pbb, line.pbc, line.pcc = line.pbb / most, line.pbc / most, line.pcc / most

    def _meet(self, pods: float, off: float, variance: float) -> None:
        """Pods started (> 0) or stopped (< 0): updates the variance between pods and the drift of their cost.

        Half the squared difference of consecutive pods estimates the variance between pods independently of a drift.
        """
        cost = max(self.line.c, self.least)
        if abs(pods) < 0.5:  # one second of a ramp has too little information about a pod
            return
        noise = variance / (pods * cost) ** 2
        off = min(max(off / (pods * cost), -2.0), 2.0)
        seen = min(max((off - self.before) ** 2 / 2.0 - noise, 0.0), 0.1 + 4.0 * self.unlike)
        self.before = off
        self.unlike += UNLIKE_SHARE * (seen - self.unlike)
        self.drift += DRIFT_SHARE * (off - self.drift)
        if self.drift**2 > DRIFT**2 * DRIFT_SHARE / (2.0 - DRIFT_SHARE) * (self.unlike + noise):
            self.line.pcc += (self.drift * cost) ** 2
            self.drift = 0.0

    def _judge(self, surprise: float, variance: float) -> None:
        nats = 0.5 * min(surprise * surprise, 16.0) + 0.5 * math.log(variance)
        self.record += MEMORY * (nats - self.record)

    def _open(self, variance: float, n: float, *, upwards: bool) -> None:
        """Adds `variance` to the prediction for n pods. An increase is attributed rather to the pods' cost."""
        line = self.line
        by_baseline = BASELINE_SHIFT**2
        by_cost = (COST_SHIFT * max(line.c, self.least)) ** 2
        if upwards and n >= 1.0:
            by_cost = max(by_cost, variance / (2.0 * n) ** 2)
        scale = variance / (by_baseline + n * n * by_cost)
        line.pbb += scale * by_baseline
        line.pcc += scale * by_cost


class Joint:
    """Baseline and cost of one resource.

    >>> fit = Joint()
    >>> for second in range(120):
    ...     pods = second // 10 % 4
    ...     fit.learn(0.1 + 0.2 * pods, noise=1e-6, at=float(second), pods=pods, starts=RampTracker(), least=-math.inf)
    >>> round(fit.baseline, 2), round(fit.cost, 2)
    (0.1, 0.2)
    """

    def __init__(self, first: float = FIRST_COST) -> None:
        self._first = first  # prior of the cost
        self._ramps = [RampHypothesis(seconds, first) for seconds in RAMPS]
        self._best = 0
        self._idle = 0.0  # s without pods
        self._judged = 0.0  # s with pods
        self._at = -math.inf  # s, of the previous second

    def learn(self, z: float, noise: float, at: float, pods: float, starts: RampTracker, least: float) -> None:
        steps = min(max(at - self._at, 0.0), 60.0) if math.isfinite(self._at) else 0.0
        self._at = at
        for ramp in self._ramps:
            showing = pods - starts.missing(at, ramp.seconds)
            ramp.learn(z, showing, noise + MODEL_ERROR, steps, least)
        self._creep(pods, steps)
        self._judged += steps if pods else 0.0
        if self._judged < JUDGED:
            return
        known = [i for i, ramp in enumerate(self._ramps) if self._is_known(ramp.line)] or [self._best]
        best = min(known, key=lambda i: self._ramps[i].record)
        if self._ramps[best].record < self._ramps[self._best].record - LEAD:
            self._best = best

    def _creep(self, pods: float, steps: float) -> None:
        """Without pods, moves a low cost back to the prior: the next pods may be of another, more expensive kind."""
        self._idle = 0.0 if pods else self._idle + steps
        if self._idle <= IDLE:
            return
        share = 1.0 - math.exp(-CREEP * steps)
        for ramp in self._ramps:
            ramp.line.c += share * max(self._first - ramp.line.c, 0.0)
            ramp.line.pcc += share * max(FIRST_COST_VARIANCE - ramp.line.pcc, 0.0)

    def expect(self, first: float) -> None:
        """Sets the prior of the cost."""
        untouched = self.cost == self._first
        self._first = first
        for ramp in self._ramps:
            ramp.least = LEAST_COST * first
            if untouched:
                ramp.line.c = first

    def rescale(self, factor: float) -> None:
        """The node's size changed: multiplies all shares of the node by `factor`."""
        for ramp in self._ramps:
            line = ramp.line
            line.b, line.c = line.b * factor, line.c * factor
            line.pbb, line.pbc, line.pcc = (p * factor * factor for p in (line.pbb, line.pbc, line.pcc))

    @property
    def ramp(self) -> float:
        """s that a pod takes to reach its load."""
        return self._ramps[self._best].seconds

    @property
    def baseline(self) -> float:
        return self._ramps[self._best].line.b

    @property
    def cost(self) -> float:
        return self._ramps[self._best].line.c

    @property
    def variance(self) -> float:
        return self._ramps[self._best].line.pcc

    @property
    def known(self) -> bool:
        return self._is_known(self._ramps[self._best].line)

    def _is_known(self, line: LineKalman) -> bool:
        cost = max(line.c, LEAST_COST * self._first)
        return line.pcc < min(EVIDENCE * FIRST_COST_VARIANCE, (CERTAIN * cost) ** 2)

    def save(self) -> dict[str, object]:
        return {
            "at": [self._at] if math.isfinite(self._at) else [],
            "best": self._best,
            "idle": self._idle,
            "judged": self._judged,
            "ramps": [
                [getattr(ramp.line, name) for name in LINE] + [getattr(ramp, name) for name in RECORD]
                for ramp in self._ramps
            ],
        }

    def restore(self, state: Mapping[str, object]) -> None:
        at = numbers(state, "at", 1, empty=True)
        self._at = at[0] if at else -math.inf
        self._best = int(number(state, "best", least=0, most=len(RAMPS) - 1))
        self._idle = number(state, "idle", least=0.0)
        self._judged = number(state, "judged", least=0.0)
        saved = rows(state, "ramps", len(LINE) + len(RECORD), len(RAMPS), least=-1e6, most=1e6)
        if len(saved) != len(RAMPS):
            raise ValueError(f"saved state: {len(saved)} ramps, not {len(RAMPS)}; delete the state file to start fresh")
        for ramp, row in zip(self._ramps, saved, strict=True):
            _, c, pbb, pbc, pcc, unlike, *_ = row
            if min(c, pbb, pcc, unlike) < 0.0 or pbc * pbc > pbb * pcc + 1e-12:
                raise ValueError(
                    "saved state: 'ramps' holds impossible variances; delete the state file to start fresh"
                )
            for name, value in zip(LINE, row, strict=False):
                setattr(ramp.line, name, value)
            for name, value in zip(RECORD, row[len(LINE) :], strict=True):
                setattr(ramp, name, value)
