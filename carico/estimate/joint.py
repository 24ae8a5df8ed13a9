"""One resource, one filter for baseline and cost together, and how fast pods come up to their load.

Usage is a line in the pods that show: x = b + c·n. How many of the n pods show depends on how long a pod takes to come
up, so one filter runs per ramp of RAMPS and the one that has foretold recent seconds best speaks.

Three things can break the line, and each has its own remedy. A pod may be unlike the others: with every change of the
count the baseline's variance grows by what pods differ from each other, so the baseline takes the difference up and
the cost stays the mean. The cost itself may change, seen as pod after pod that is off to the same side: then its
variance is opened. Or usage moves while the count does not: two surprises in a row on one side open both variances, by
as much as the surprise was, and most of it goes to whichever of baseline and cost could have caused it.

Some seconds are lower bounds: a saturated one, and one in which the load of counted pods may still be to come. They
can raise the cost, but say nothing when they are lower than expected.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from carico.estimate.kalman import Line
from carico.estimate.ramp import Starts
from carico.estimate.saved import number, numbers, rows

RAMPS = (0.0, 3.0, 6.0, 10.0, 15.0, 20.0)  # s

# In shares of the node, or of the first cost; found by hand with seeds 1000–1009 of bench/synthetic.py, which the
# benchmark does not use.
FIRST_BASELINE, FIRST_BASELINE_VARIANCE = 0.1, 0.2**2
FIRST_COST = 0.5  # ± as much: where nothing is known of pods, and not even the node's size, few are let in at first
BASELINE_WALK = 0.001**2  # per second
COST_WALK = 0.002  # per second, share of the cost
MODEL_ERROR = 0.003**2  # variance; usage is not quite a line in the pods
SURPRISE = 3.0  # standard deviations
BASELINE_SHIFT = 0.03  # usage that something other than pods may add at once
COST_SHIFT = 0.5  # share by which a cost may change at once
MEMORY = 0.02  # weight of a second in a ramp's record: a memory of about a minute
LEAD = 0.1  # nats per second by which a ramp must beat the present one
LEAST_COST = 0.02  # share of the first cost; a cost that is smaller still may change by shares of this
FIRST_UNLIKE = 0.2**2  # variance of single pods' costs, in squared shares of the mean cost
UNLIKE_SHARE = 0.05  # weight of one pod in that variance
DRIFT_SHARE = 0.3  # weight of one pod in the drift of the cost
DRIFT = 4.0  # standard deviations of drift that are a change of the cost
EVIDENCE = 0.25  # share of the first variance of c below which the node has seen for itself …
CERTAIN = 0.25  # … if the deviation is also within this share of c
IDLE, CREEP = 60.0, 0.03  # s without pods after which the cost creeps back up to the first, by this share per second

# What a ramp is saved as.
LINE = ("b", "c", "pbb", "pbc", "pcc")
RECORD = ("unlike", "drift", "before", "record", "last", "showing")


class Ramped:
    """A line under one assumption about the ramp, and its record as a prophet."""

    __slots__ = ("before", "drift", "last", "least", "line", "record", "seconds", "showing", "unlike")

    def __init__(self, seconds: float, first: float) -> None:
        self.seconds = seconds
        self.least = LEAST_COST * first
        self.line = Line(FIRST_BASELINE, first, FIRST_BASELINE_VARIANCE, first**2, qb=BASELINE_WALK, qc=0.0)
        self.unlike = FIRST_UNLIKE  # variance of a single pod's cost, in squared shares of the mean cost
        self.drift = 0.0  # mean deviation of recent pods, in shares of the mean cost
        self.before = 0.0  # deviation of the pod before
        self.record = 0.0  # mean negative log-likelihood of recent seconds, nats
        self.last = 0.0  # the surprise before, in standard deviations
        self.showing = 0.0  # pods in the second before

    def learn(self, z: float, n: float, r: float, steps: float, least: float) -> None:
        """`least` is the surprise below which the second says nothing, because it is only a lower bound."""
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
        if abs(surprise) > SURPRISE and self.last * surprise > 0.0 and abs(self.last) > SURPRISE:
            self._open(off * off - variance, n)
        self.last = surprise
        line.update(z, n, r)
        self._keep_sensible()

    def _keep_sensible(self) -> None:
        """No pod gives resources back, and usage is a ratio. What is taken from the cost goes where it came from."""
        line = self.line
        if line.c < 0.0:
            line.b -= line.c * line.pbc / line.pcc
            line.c = 0.0
        line.b = min(max(line.b, -1.0), 1.0)
        most = max(line.pbb, line.pcc)
        if most > 1.0:
            line.pbb, line.pbc, line.pcc = line.pbb / most, line.pbc / most, line.pcc / most

    def _meet(self, pods: float, off: float, variance: float) -> None:
        """Pods came (> 0) or went (< 0): how unlike are they, and are they all off to the same side?

        Half the squared difference of neighbours is the variance between pods, whatever the cost drifts to.
        """
        cost = max(self.line.c, self.least)
        if abs(pods) < 0.5:  # a moment of a ramp says too little of a pod
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

    def _open(self, variance: float, n: float) -> None:
        """Add so much variance to what the line says of n pods."""
        line = self.line
        by_baseline = BASELINE_SHIFT**2
        by_cost = (COST_SHIFT * max(line.c, self.least)) ** 2
        scale = variance / (by_baseline + n * n * by_cost)
        line.pbb += scale * by_baseline
        line.pcc += scale * by_cost


class Joint:
    """Baseline and cost of one resource.

    >>> fit = Joint()
    >>> for second in range(120):
    ...     pods = second // 10 % 4
    ...     fit.learn(0.1 + 0.2 * pods, noise=1e-6, at=float(second), pods=pods, starts=Starts(), least=-math.inf)
    >>> round(fit.baseline, 2), round(fit.cost, 2)
    (0.1, 0.2)
    """

    def __init__(self, first: float = FIRST_COST) -> None:
        self._first = first  # cost that a pod is expected to have before one was seen
        self._ramps = [Ramped(seconds, first) for seconds in RAMPS]
        self._best = 0
        self._idle = 0.0  # s without pods
        self._at = -math.inf  # s, of the second before

    def learn(self, z: float, noise: float, at: float, pods: int, starts: Starts, least: float) -> None:
        steps = min(max(at - self._at, 0.0), 60.0) if math.isfinite(self._at) else 0.0
        self._at = at
        for ramp in self._ramps:
            showing = pods - starts.missing(at, ramp.seconds)
            ramp.learn(z, showing, noise + MODEL_ERROR, steps, least)
        self._creep(pods, steps)
        best = min(range(len(RAMPS)), key=lambda i: self._ramps[i].record)
        if self._ramps[best].record < self._ramps[self._best].record - LEAD:
            self._best = best

    def _creep(self, pods: int, steps: float) -> None:
        """The next pods may be others: what was learned of light ones must not let a crowd of heavy ones in."""
        self._idle = 0.0 if pods else self._idle + steps
        if self._idle <= IDLE:
            return
        share = 1.0 - math.exp(-CREEP * steps)
        for ramp in self._ramps:
            raised = share * max(self._first - ramp.line.c, 0.0)
            ramp.line.c += raised
            ramp.line.pcc = min(ramp.line.pcc + raised * raised, self._first**2)

    def expect(self, first: float) -> None:
        """What a pod is expected to cost before one was seen, from now on."""
        untouched = self.cost == self._first
        self._first = first
        for ramp in self._ramps:
            ramp.least = LEAST_COST * first
            if untouched:
                ramp.line.c, ramp.line.pcc = first, first**2

    def rescale(self, factor: float) -> None:
        """The node's size changed: the same amount is `factor` times the share that it was."""
        for ramp in self._ramps:
            line = ramp.line
            line.b, line.c = line.b * factor, line.c * factor
            line.pbb, line.pbc, line.pcc = (p * factor * factor for p in (line.pbb, line.pbc, line.pcc))

    @property
    def ramp(self) -> float:
        """s that a pod takes to come up to its load."""
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
        least = LEAST_COST * self._first
        return self.variance < min(EVIDENCE * self._first**2, (CERTAIN * max(self.cost, least)) ** 2)

    def save(self) -> dict[str, object]:
        return {
            "at": [self._at] if math.isfinite(self._at) else [],
            "best": self._best,
            "idle": self._idle,
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
