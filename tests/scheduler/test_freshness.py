"""The cached mask of nodes with a fresh report always equals a comparison of all times."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from carico.scheduler.cache.freshness import NEVER, Freshness

ROWS = 5
times = st.integers(0, 40).map(float)
expiries = st.one_of(times, st.just(NEVER))
steps = st.lists(st.tuples(st.integers(0, ROWS - 1), expiries, st.integers(0, 3)), max_size=60)


@given(steps)
def test_kept_answers_equal_a_comparison(steps: list[tuple[int, float, int]]) -> None:
    freshness, expires, now = Freshness(), np.full(ROWS, NEVER), 0.0
    freshness.fit(ROWS)
    for row, until, passed in steps:
        now += passed
        freshness.set(row, until)
        expires[row] = until
        assert freshness.rows(now).tolist() == (expires >= now).tolist()


def test_rows_that_come_later_are_stale_until_they_report() -> None:
    freshness = Freshness()
    freshness.fit(1)
    freshness.set(0, 5.0)
    assert freshness.rows(1.0).tolist() == [True]
    freshness.fit(3)
    assert freshness.rows(1.0).tolist() == [True, False, False, *([False] * (len(freshness.expires) - 3))]
    freshness.set(2, 4.0)
    assert freshness.rows(4.0)[:3].tolist() == [True, False, True]
    assert freshness.rows(4.5)[:3].tolist() == [True, False, False]
