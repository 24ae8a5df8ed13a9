"""The rules of `carico run` without a process: who may start, who has to give way."""

from __future__ import annotations

from carico.run.admission import RunAdmission, RunBounds
from carico.run.memory import MemoryGuard
from carico.testing import make_estimate
from carico.types import Estimate

MB = 1e6


def estimate(pods: int, fit: float, usage: float) -> Estimate:
    return make_estimate(usage=(usage,), baseline_ratio=(0.0,), cost_ratio=(0.25,), pods=pods, pod_capacity=fit)


def started(admission: RunAdmission, running: int = 0) -> int:
    while admission.may_start(running):
        running += 1
    return running


def test_what_started_since_the_estimate_uses_it_up() -> None:
    admission = RunAdmission(cores=8, bounds=RunBounds())
    admission.estimated(estimate(pods=4, fit=2.7, usage=0.5), utilisation=0.95)
    assert started(admission, 4) == 6


def test_one_always_runs_and_bounds_hold() -> None:
    assert started(RunAdmission(1, RunBounds())) == 1
    busy = RunAdmission(2, RunBounds(least=3, most=5))
    busy.estimated(estimate(pods=1, fit=0.0, usage=1.0), utilisation=1.0)
    assert started(busy) == 3
    idle = RunAdmission(64, RunBounds(most=5))
    idle.estimated(estimate(pods=5, fit=100.0, usage=0.1), utilisation=0.1)
    assert started(idle) == 5


def test_a_full_machine_takes_no_more_and_an_idle_one_takes_one_more() -> None:
    admission = RunAdmission(2, RunBounds())
    admission.estimated(estimate(pods=4, fit=3.0, usage=1.0), utilisation=1.0)
    assert started(admission, 4) == 4
    admission.estimated(estimate(pods=4, fit=0.0, usage=0.4), utilisation=0.6)
    assert started(admission, 4) == 5


def test_places_at_most_double_between_two_estimates() -> None:
    admission = RunAdmission(64, RunBounds())
    admission.estimated(estimate(pods=4, fit=1000.0, usage=0.01), utilisation=0.01)
    assert started(admission, 4) == 8


def test_ended_tasks_tell_what_the_next_will_want() -> None:
    admission = RunAdmission(4, RunBounds())
    admission.queue(runnable=8)  # a busy task gets half a processor
    for _ in range(20):
        admission.ended(cpu=0.5, seconds=1.0)
    assert abs(admission.wanted - 1.0) < 1e-9
    assert abs(admission.prior().mean[0] - 1 / 8) < 1e-9
    for _ in range(100):
        admission.ended(cpu=0.0, seconds=1.0)
    assert admission.wanted < 0.01


def small_and_large() -> MemoryGuard:
    memory = MemoryGuard(1000 * MB)
    for i in range(9):
        memory.ended(i, 300 * MB if i % 3 == 0 else 30 * MB)
    return memory


def test_memory_that_running_tasks_will_take_is_theirs() -> None:
    memory = MemoryGuard(1000 * MB)
    for i in range(10):
        memory.ended(i, 300 * MB)
    memory.look(1.0, used=100 * MB, held={20: 10 * MB})
    assert memory.fits(1)  # 100 + 290 + 300
    memory.look(1.1, used=100 * MB, held={20: 10 * MB, 21: 10 * MB})
    assert not memory.fits(2)  # 100 + 580 + 300
    memory.look(2.0, used=650 * MB, held={20: 300 * MB, 21: 300 * MB})
    assert not memory.fits(2)


def test_a_task_that_has_passed_the_mean_is_a_large_one() -> None:
    memory = small_and_large()
    memory.look(1.0, used=60 * MB, held={20: 30 * MB})
    little = memory.expected(1)
    memory.look(1.1, used=230 * MB, held={20: 200 * MB})
    assert abs(memory.expected(1) - 100 * MB) < 1
    assert little < 100 * MB


def test_before_the_first_end_tasks_are_expected_to_double() -> None:
    memory = MemoryGuard(1000 * MB)
    memory.look(1.0, used=250 * MB, held={1: 200 * MB})
    assert memory.fits(1)  # 250 + 200 + 400
    memory.look(1.1, used=350 * MB, held={1: 300 * MB})
    assert not memory.fits(1)


def test_a_task_that_is_known_to_be_large_waits_for_room() -> None:
    memory = small_and_large()
    memory.look(1.0, used=350 * MB, held={20: 300 * MB})
    assert memory.fits(1)
    assert not memory.fits(1, least=600 * MB)


def test_a_steep_rise_is_tight_long_before_the_limit() -> None:
    memory = MemoryGuard(1000 * MB)
    memory.look(1.0, used=300 * MB, held={})
    memory.look(1.1, used=500 * MB, held={})  # 2 GB/s
    assert memory.tight
    assert not memory.short
    memory.look(1.2, used=505 * MB, held={})
    assert not memory.tight
    memory.look(1.3, used=960 * MB, held={})
    assert memory.short


def test_no_task_is_held_back_for_more_than_the_worst_case() -> None:
    memory = small_and_large()
    memory.look(1.0, used=50 * MB, held={20: 30 * MB})
    assert memory.fits(1)  # 50 + 270 + 300, whatever the spread of the peaks is
    memory.look(1.1, used=700 * MB, held={20: 30 * MB})
    assert not memory.fits(1)
