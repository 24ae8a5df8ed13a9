"""The simulated machine keeps its books: what pods are charged for is what the machine used, and truth is truth."""

from __future__ import annotations

import numpy as np
import pytest

from carico.sim.machine import OVERHEAD, Hardware, Machine
from carico.sim.workload import SimPod, WorkPhase, bursting, growing, rotated, steady
from carico.types import ClassKey

GIB = float(1 << 30)
NO_LIMIT = float("inf")


def machine(cores: float = 4, seed: int = 1) -> Machine:
    return Machine(Hardware(cores, 64 * GIB), np.random.default_rng(seed))


def test_what_pods_and_system_are_charged_for_is_what_the_machine_used() -> None:
    here, used = machine(), 0.0
    rng = np.random.default_rng(2)
    for i in range(200):
        now = i / 10
        if i % 20 == 0:
            here.add(f"pod {i}", (0.0, 0.0), NO_LIMIT if i % 40 else 1.0, now)
            here.enter(f"pod {i}", WorkPhase(50.0, float(rng.uniform(0, 4)), GIB, ramp=bool(i % 60)), (0.0, 0.0), now)
        here.advance(now)
        used += 0.1 * float(here.shares().usage.sum())
    now = 20.0
    charged = sum(here.counters(f"pod {i}", now).usage for i in range(0, 200, 20)) + here.system_usage()
    assert charged == pytest.approx(used, rel=0.01)


def test_a_busy_thread_adds_the_same_on_both_sides_of_saturation() -> None:
    here = machine(cores=4)
    seen = []
    for i in range(7):
        here.add(str(i), (1.0, 0.0), NO_LIMIT, 0.0)
        here.enter(str(i), WorkPhase(100.0, 1.0, GIB), (0.0, 0.0), 0.0)
        readings = [here.read(0.0) for _ in range(500)]
        seen.append(float(np.mean([(one.utilisation + one.pressure) / 2 for one in readings])))
        assert readings[0].runnable == pytest.approx(0.4 + (1 + OVERHEAD) * (i + 1))
    assert np.diff(seen).tolist() == pytest.approx([(1 + OVERHEAD) / 8] * 6, abs=0.006)
    assert here.demand(0.0)[0] == pytest.approx(seen[-1], abs=0.01)


def test_the_truth_is_the_most_that_is_still_to_come() -> None:
    here = machine()
    here.add("heap", (0.2, 8 * GIB), NO_LIMIT, 0.0)
    assert here.demand(0.0)[1] == pytest.approx(0.12)
    assert here.expected(0.0)[1] == pytest.approx(0.12 + 8 / 64)
    here.enter("heap", WorkPhase(10.0, 0.2, 8 * GIB, ramp=True), (0.2, 8 * GIB), 0.0)
    here.advance(5.0)
    assert here.demand(5.0)[1] == pytest.approx(0.12 + 4 / 64)
    here.remove("heap", 6.0)
    assert here.expected(6.0)[1] == pytest.approx(0.12)


def test_a_pod_that_is_gone_leaves_its_row_clean() -> None:
    here = machine()
    for i in range(50):
        here.add(str(i), (1.0, GIB), 0.5, 0.0)
        here.enter(str(i), WorkPhase(1.0, 2.0, GIB), (0.0, 0.0), 0.0)
    for i in range(50):
        here.remove(str(i), 1.0)
    here.add("new", (0.0, 0.0), NO_LIMIT, 2.0)
    assert here.counters("new", 3.0) == (0.0, 0.0, 0.0, 0.0)
    assert here.demand(3.0) == pytest.approx((0.05, 0.12))


def test_programs_say_what_pods_demand() -> None:
    times = np.arange(0.0, 12.0, 1.0)
    pod = _pod(growing(10.0, 0.5, (1.0, 5.0), over=4.0))
    assert pod.demand(1.0, times)[:, 1].tolist() == pytest.approx([0, 1, 1, 2, 3, 4, 5, 5, 5, 5, 5, 0])
    assert (pod.life, pod.peak) == (10.0, (0.5, 5.0))
    cycle = bursting(40.0, (0.0, 2.0), 1.0, on=5, off=15)
    assert sum(phase.seconds for phase in rotated(cycle, 7.5)) == 40.0
    assert rotated(cycle, 7.5)[0] == WorkPhase(12.5, 0.0, 1.0)
    assert _pod(steady(1.0, 3.0, 1.0), cpu_limit=0.5).peak == (0.5, 1.0)


def _pod(phases: tuple[WorkPhase, ...], cpu_limit: float = NO_LIMIT) -> SimPod:
    return SimPod("pod", ClassKey("team", "team/a"), phases, 0.0, cpu_limit)
