"""The filters against filterpy's, to 1e-9."""

from __future__ import annotations

import numpy as np
import pytest
from filterpy.kalman import KalmanFilter  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from carico.estimate.kalman import LineKalman, ScalarKalman

measurements = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 200), st.floats(1e-6, 1)), min_size=1, max_size=30)
variances = st.floats(1e-6, 1)


def oracle(x: list[float], p: np.ndarray, q: np.ndarray) -> KalmanFilter:
    kalman = KalmanFilter(dim_x=len(x), dim_z=1)
    kalman.x = np.array(x, dtype=float).reshape(-1, 1)
    kalman.P, kalman.Q, kalman.F = p.astype(float), q.astype(float), np.eye(len(x))
    return kalman


@given(measurements, variances, variances)
def test_scalar_equals_filterpy(seen: list[tuple[float, int, float]], p: float, q: float) -> None:
    ours = ScalarKalman(0.1, p, q, r=1.0)
    theirs = oracle([0.1], np.array([[p]]), np.array([[q]]))
    for z, n, r in seen:
        ours.predict()
        ours.update(z, float(n), r)
        theirs.predict()
        theirs.update(z, R=r, H=np.array([[float(n)]]))
        assert ours.x == pytest.approx(theirs.x[0, 0], abs=1e-9)
        assert ours.p == pytest.approx(theirs.P[0, 0], abs=1e-9)


@given(measurements, variances, variances)
def test_line_equals_filterpy(seen: list[tuple[float, int, float]], p: float, q: float) -> None:
    ours = LineKalman(b=0.1, c=0.05, pbb=p, pcc=p / 2, qb=q, qc=q / 3)
    theirs = oracle([0.1, 0.05], np.diag([p, p / 2]), np.diag([q, q / 3]))
    for z, n, r in seen:
        ours.predict()
        assert ours.spread(n) >= 0
        ours.update(z, n, r)
        theirs.predict()
        theirs.update(z, R=r, H=np.array([[1.0, n]]))
        assert (ours.b, ours.c) == pytest.approx(theirs.x[:, 0].tolist(), abs=1e-9)
        assert [ours.pbb, ours.pbc, ours.pbc, ours.pcc] == pytest.approx(theirs.P.ravel().tolist(), abs=1e-9)


def test_the_covariance_stays_positive_over_a_day() -> None:
    line = LineKalman(b=0.1, c=0.05, pbb=0.04, pcc=0.01, qb=1e-6, qc=1e-9)
    for i in range(100_000):
        line.predict()
        line.update(0.3, i % 3, r=1e-8)
    assert line.pbb > 0
    assert line.pcc > 0
    assert line.pbb * line.pcc > line.pbc**2
