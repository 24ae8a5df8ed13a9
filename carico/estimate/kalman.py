"""Kalman filters for a random walk with a linear observation: one state, and two.

`ScalarKalman` has a state of one number. The report uses several of them in parallel: without covariance their errors
do not compensate each other, so they do not oscillate. `LineKalman` has the state baseline and slope with their
covariance: a second with n pods observes only b + c·n, and the covariance determines how a later second corrects each
of the two. Plain floats: for two states numpy's call overhead is ten times the arithmetic. The covariance is updated in
Joseph's form, which remains symmetric and positive under rounding.

R. E. Kalman, A New Approach to Linear Filtering and Prediction Problems, https://doi.org/10.1115/1.3662552
"""

from __future__ import annotations


class ScalarKalman:
    """x ← x + noise of variance q; observed as z = h·x + noise of variance r.

    >>> cost = ScalarKalman(x=0.0, p=1.0, q=0.0, r=1.0)
    >>> cost.predict()
    >>> cost.update(1.0, h=1.0)
    >>> cost.x, cost.p
    (0.5, 0.5)
    """

    __slots__ = ("p", "q", "r", "x")

    def __init__(self, x: float, p: float, q: float, r: float) -> None:
        self.x, self.p, self.q, self.r = x, p, q, r

    def predict(self) -> None:
        self.p += self.q

    def update(self, z: float, h: float, r: float | None = None) -> None:
        """Processes one observation; `r` replaces the filter's observation variance."""
        r = self.r if r is None else r
        gain = self.p * h / (h * h * self.p + r)
        self.x += gain * (z - h * self.x)
        kept = 1.0 - gain * h
        self.p = kept * kept * self.p + gain * gain * r


class LineKalman:
    """Baseline b and slope c of z = b + c·n.

    >>> line = LineKalman(b=0.0, c=0.0, pbb=1.0, pcc=1.0, qb=0.0, qc=0.0)
    >>> for n, z in ((0, 0.1), (1, 0.3), (2, 0.5), (3, 0.7)):
    ...     line.predict()
    ...     line.update(z, n, r=1e-6)
    >>> round(line.b, 3), round(line.c, 3)
    (0.1, 0.2)
    """

    __slots__ = ("b", "c", "pbb", "pbc", "pcc", "qb", "qc")

    def __init__(self, b: float, c: float, pbb: float, pcc: float, qb: float, qc: float, pbc: float = 0.0) -> None:
        self.b, self.c = b, c
        self.pbb, self.pbc, self.pcc = pbb, pbc, pcc
        self.qb, self.qc = qb, qc

    def predict(self, steps: float = 1.0) -> None:
        self.pbb += self.qb * steps
        self.pcc += self.qc * steps

    def at(self, n: float) -> float:
        """The prediction for n pods."""
        return self.b + self.c * n

    def spread(self, n: float) -> float:
        """Variance of the prediction, clipped at 0 against rounding."""
        return max(self.pbb + n * (2.0 * self.pbc + n * self.pcc), 0.0)

    def update(self, z: float, n: float, r: float) -> None:
        surprise = z - self.at(n)
        seen_b = self.pbb + n * self.pbc
        seen_c = self.pbc + n * self.pcc
        total = seen_b + n * seen_c + r
        gain_b, gain_c = seen_b / total, seen_c / total
        self.b += gain_b * surprise
        self.c += gain_c * surprise
        self._shrink(gain_b, gain_c, n, r)

    def _shrink(self, gain_b: float, gain_c: float, n: float, r: float) -> None:
        """P ← (I − KH) P (I − KH)ᵀ + K r Kᵀ, written out."""
        a, b = 1.0 - gain_b, -gain_b * n
        c, d = -gain_c, 1.0 - gain_c * n
        bb, bc, cc = self.pbb, self.pbc, self.pcc
        self.pbb = a * a * bb + 2.0 * a * b * bc + b * b * cc + gain_b * gain_b * r
        self.pbc = a * c * bb + (a * d + b * c) * bc + b * d * cc + gain_b * gain_c * r
        self.pcc = c * c * bb + 2.0 * c * d * bc + d * d * cc + gain_c * gain_c * r
