"""How a simulated machine shares its cores, and what its kernel would report."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carico.sim.sharing import share

GROUPS = st.lists(
    st.tuples(st.integers(0, 12), st.floats(0, 1), st.one_of(st.just(np.inf), st.floats(0.05, 8))),
    min_size=1,
    max_size=20,
)


@given(GROUPS, st.floats(0.5, 64))
def test_no_core_idles_while_a_thread_that_may_run_waits(groups: list[tuple[int, float, float]], cores: float) -> None:
    whole, part, limit = (np.array(column, dtype=np.float64) for column in zip(*groups, strict=True))
    shares = share(whole, part, limit, cores)
    wanted = float(np.minimum(whole + part, limit).sum())
    assert shares.usage.sum() == pytest.approx(min(wanted, cores), rel=1e-6)
    assert (shares.usage <= limit + 1e-9).all()
    assert (shares.usage <= whole + part + 1e-9).all()
    assert shares.stretch >= 1.0
    assert ((shares.some >= 0) & (shares.some <= 1)).all()
    assert ((shares.throttled >= 0) & (shares.throttled < 1)).all()


def test_busy_threads_are_alike() -> None:
    shares = share(np.array([1.0, 3.0]), np.zeros(2), np.full(2, np.inf), cores=2.0)
    assert shares.usage.tolist() == pytest.approx([0.5, 1.5])


@pytest.mark.parametrize(("pods", "threads"), [(8, 1), (1, 4), (1, 8), (4, 2), (2, 8)])
def test_usage_times_stretch_is_what_busy_threads_want(pods: int, threads: int) -> None:
    """On two cores, as measured on a real kernel."""
    shares = share(np.full(pods, float(threads)), np.zeros(pods), np.full(pods, np.inf), cores=2.0)
    assert shares.usage.sum() * shares.stretch == pytest.approx(pods * threads)


def test_pressure_counts_one_waiting_thread_of_a_group_at_most() -> None:
    """4 busy threads of one group on 2 cores: usage and `some` make 0.74 of the node, not 1.00."""
    shares = share(np.array([4.0]), np.zeros(1), np.array([np.inf]), cores=2.0)
    assert (shares.usage[0] + shares.some[0]) / 4 == pytest.approx(0.735, abs=0.005)


def test_threads_that_sleep_seem_to_need_more_on_a_full_node() -> None:
    """10 threads of 30 % duty on 2 cores have a run queue of 5.3, of 4 that make the node full; they want 3."""
    shares = share(np.zeros(10), np.full(10, 0.3), np.full(10, np.inf), cores=2.0)
    assert shares.usage.sum() * shares.stretch == pytest.approx(16 / 3, rel=1e-6)


def test_a_limit_is_throttled_time_and_no_wait() -> None:
    shares = share(np.array([4.0]), np.zeros(1), np.array([1.0]), cores=8.0)
    assert shares.usage.tolist() == [1.0]
    assert shares.throttled.tolist() == [0.75]
    assert shares.some.tolist() == [0.75]
    assert shares.stretch == 1.0
