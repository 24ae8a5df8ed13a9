"""What pods demand, from counters that the test sets, and who is read when."""

# mypy: disable-error-code="comparison-overlap"
# Tuples are compared with those of pytest.approx.

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from carico.runtime.demand import cpu_demand, memory_demand
from carico.runtime.meter import SILENCE, STEADY_FOR, YOUNG, PodMeter
from carico.runtime.pods import WorkloadPod
from carico.types import ClassKey, MeasuredPod, PodCounters

WEB = ClassKey("team-a", "team-a/web", "1")
NOTHING = PodCounters(0.0, 0.0, 0.0, 0.0, 0.0, None, None)
BUDGET = 0.001  # s


class World:
    """Pods with rates that the test sets, a clock, and a timer that each reading moves on."""

    def __init__(self, dimensions: tuple[str, ...] = ("cpu", "memory"), reading_takes: float = 0.0) -> None:
        self.now = 100.0
        self.stretch = 1.0
        self.pods: dict[str, WorkloadPod] = {}
        self.counters: dict[str, PodCounters] = {}
        self.reads: list[str] = []
        self._spent = 0.0
        self._takes = reading_takes
        self.meter = PodMeter(
            lambda: self.pods, self, lambda: self.stretch, dimensions, BUDGET, timer=lambda: self._spent
        )

    name = "test"

    def read(self, uid: str, cgroup: str | None) -> tuple[float, PodCounters] | None:
        self.reads.append(uid)
        self._spent += self._takes
        return (self.now, self.counters[uid]) if cgroup and uid in self.counters else None

    def keep(self, uids: Collection[str]) -> None:
        self.kept = set(uids)

    def add(
        self, uid: str, started: float | None = None, cgroup: str | None = "/kubepods/pod", **levels: float
    ) -> None:
        at = self.now if started is None else started
        self.pods = {**self.pods, uid: WorkloadPod(uid, WEB, at, True, cgroup)}
        self.counters[uid] = NOTHING._replace(**levels)

    def second(self, seconds: float = 1.0, /, **rates: tuple[float, ...]) -> dict[str, MeasuredPod]:
        """Passes time in which each pod named uses (cores, waiting, throttled), and measures."""
        self.now += seconds
        for uid, (usage, *rest) in rates.items():
            some, throttled = [*rest, 0.0, 0.0][:2]
            before = self.counters[uid]
            self.counters[uid] = before._replace(
                usage_seconds=before.usage_seconds + usage * seconds,
                some_seconds=None if before.some_seconds is None else before.some_seconds + some * seconds,
                throttled_seconds=before.throttled_seconds + throttled * seconds,
            )
        self.reads = []
        return {pod.uid: pod for pod in self.meter.measure(self.now)}


def test_a_pod_that_has_just_started_is_measured_from_its_start_on() -> None:
    """One that lives for two seconds is gone before it could be read twice."""
    world = World()
    world.add("a", memory_working_set=5e6)
    measured = world.second(a=(0.5,))["a"]
    assert measured == ("a", WEB, 1.0, True, pytest.approx((0.5, 5e6)), pytest.approx((0.5, 5e6)), True, True)


def test_time_before_the_first_container_is_no_part_of_the_first_reading() -> None:
    world = World()
    world.pods = {"a": WorkloadPod("a", WEB, None, False, "/kubepods/pod")}
    world.counters["a"] = NOTHING
    world.second(a=(0.0,))
    world.pods = {"a": WorkloadPod("a", WEB, world.now + 0.6, True, "/kubepods/pod")}
    demand = world.second(a=(0.4,))["a"].demand
    assert demand is not None
    assert demand[0] == pytest.approx(1.0), "0.4 s of processor time in the 0.4 s since its start"


def test_a_pod_that_ran_before_has_no_demand_before_its_second_reading() -> None:
    world = World()
    world.add("a", started=world.now - 300.0, memory_working_set=5e6)
    first = world.second(a=(0.5,))["a"]
    assert (first.demand, first.use, first.fresh) == (None, None, False)
    assert world.second(a=(0.5,))["a"].demand == pytest.approx((0.5, 5e6))


def test_busy_threads_past_saturation_are_measured_by_the_stretch() -> None:
    """Eight busy threads of one pod on two processors: `some` is at most 1, the stretch is 4."""
    world = World()
    world.add("a")
    world.stretch = 4.0
    world.second(a=(2.0, 1.0))
    pod = world.second(a=(2.0, 1.0))["a"]
    assert pod.demand is not None
    assert pod.use is not None
    assert (pod.demand[0], pod.use[0], pod.exact) == (pytest.approx(8.0), pytest.approx(2.0), False)


def test_the_stretch_is_the_mean_of_the_seconds_between_two_readings() -> None:
    world = World(reading_takes=2 * BUDGET)
    for uid in "ab":
        world.add(uid, started=world.now - 1000)
    world.second()
    world.now += 2 * YOUNG
    for _ in range(4):
        world.second(a=(1.0, 1.0), b=(1.0, 1.0))
    turns = []
    for stretch in (1.0, 3.0, 1.0, 3.0):
        world.stretch = stretch
        measured = world.second(a=(1.0, 1.0), b=(1.0, 1.0))
        turns += [pod.demand[0] for pod in measured.values() if pod.fresh and pod.demand]
    assert turns[2:] == pytest.approx([2.0, 2.0]), "one second of 1 and one of 3"


def test_a_limit_bounds_demand_and_throttled_time_is_no_wait() -> None:
    assert cpu_demand(0.2, some=0.8, throttled=0.75, stretch=1.0, limit=0.2) == (0.2, True)
    assert cpu_demand(0.2, some=0.8, throttled=0.8, stretch=1.0, limit=None) == (pytest.approx(0.2), True)
    assert cpu_demand(0.3, some=0.6, throttled=0.0, stretch=2.0, limit=0.5) == (0.5, False)


def test_neighbours_of_less_weight_do_not_raise_a_pods_demand() -> None:
    """One busy thread that nearly always runs, on a node where four others wait for what it leaves."""
    assert cpu_demand(0.98, some=0.02, throttled=0.0, stretch=2.5, limit=None) == (pytest.approx(1.065, abs=0.01), True)


def test_a_thread_that_moves_between_processors_waits_longer_than_its_pressure() -> None:
    """Seen on two busy processors: it waited 0.82 of the time, and `some` was 0.42."""
    assert cpu_demand(0.18, some=0.42, throttled=0.0, stretch=5.95, limit=None) == (
        pytest.approx(1.07, abs=0.01),
        False,
    )


def test_little_wait_leaves_demand_exact_whatever_the_node_does() -> None:
    assert cpu_demand(0.5, some=0.03, throttled=0.0, stretch=1.0, limit=None).exact
    assert not cpu_demand(0.5, some=0.3, throttled=0.0, stretch=1.0, limit=None).exact


def test_on_few_processors_the_noise_of_the_stretch_hardly_raises_a_pods_demand() -> None:
    """A busy thread that waited 0.047 of the time, as the kernel recorded, while the stretch was 0.19."""
    assert cpu_demand(0.954, some=0.032, throttled=0.0, stretch=1.2, limit=None, cores=2).cores == pytest.approx(
        1.0, abs=0.03
    )


def test_without_pressure_of_its_own_the_stretch_alone_is_used() -> None:
    world = World()
    world.add("a")
    world.counters["a"] = NOTHING._replace(some_seconds=None)
    world.stretch = 2.0
    world.second(a=(1.0,))
    pod = world.second(a=(1.0, 0.9))["a"]
    assert pod.demand is not None
    assert pod.demand[0] == pytest.approx(2.0)


def test_memory_is_the_working_set_with_swap_up_to_the_limit() -> None:
    assert memory_demand(NOTHING._replace(memory_working_set=10.0, swap=5.0)) == 15.0
    assert memory_demand(NOTHING._replace(memory_working_set=10.0, swap=5.0, memory_limit=12.0)) == 12.0


@pytest.mark.parametrize(
    ("dimensions", "expected"),
    [(("memory", "cpu"), (5e6, 0.5)), (("cpu",), (0.5,)), (("cpu", "io_pressure", "memory"), (0.5, 5e6))],
)
def test_demand_is_in_the_order_of_the_dimensions_that_pods_account_for(dimensions: Any, expected: Any) -> None:
    world = World(dimensions)
    world.add("a", memory_working_set=5e6)
    world.second(a=(0.5,))
    assert world.second(a=(0.5,))["a"].demand == pytest.approx(expected)


def test_young_pods_are_read_every_second_and_others_take_turns() -> None:
    world = World(reading_takes=BUDGET)
    for i in range(6):
        world.add(f"old{i}", started=0.0)
    world.now += YOUNG + 1  # also since they were first seen
    world.second()
    world.now += YOUNG + 1
    world.add("young")
    turns = []
    for _ in range(3):
        world.second()
        assert "young" in world.reads
        assert len(world.reads) <= 3, "bounded by time"
        turns += [uid for uid in world.reads if uid != "young"]
    assert sorted(turns) == [f"old{i}" for i in range(6)], "each once before any twice"


def test_at_least_one_pod_has_its_turn_however_slow_the_kernel_is() -> None:
    world = World(reading_takes=100 * BUDGET)
    for uid in "abc":
        world.add(uid, started=0.0)
    world.second()
    world.now += YOUNG
    turns = [tuple(world.reads) for _ in range(3) if world.second()]
    assert sorted(turns) == [("a",), ("b",), ("c",)]


def test_a_pod_that_hardly_changes_is_read_every_fourth_second_and_at_once_again_when_it_changes() -> None:
    world = World()
    world.add("steady", started=0.0)
    world.add("moving", started=0.0)
    demand = [1.0, 3.0]
    for second in range(int(STEADY_FOR)):
        world.second(steady=(0.5,), moving=(demand[second % 2],))
        assert second < YOUNG or world.reads == ["steady", "moving"], "a pod that bursts may be quiet for a while"
    for second in range(2):
        world.second(steady=(0.5,), moving=(demand[second % 2],))
    seen = []
    for second in range(8):
        measured = world.second(steady=(0.5,), moving=(demand[second % 2],))
        seen.append(("steady" in world.reads, "moving" in world.reads))
    assert [moving for _, moving in seen] == [True] * 8
    assert sum(steady for steady, _ in seen) == 2
    assert measured["steady"].demand == pytest.approx((0.5, 0.0))
    changed = [world.second(steady=(2.0,), moving=(1.0,))["steady"] for _ in range(6)]
    assert [pod.fresh for pod in changed[4:]] == [True, True], "read every second again once it changes"
    assert changed[-1].demand is not None
    assert changed[-1].demand[0] == pytest.approx(2.0)


def test_a_pod_whose_processes_have_ended_does_not_run_before_the_runtime_reports_it() -> None:
    """Its last readings would be taken for a pod that demands nothing."""
    world = World()
    world.add("a", memory_working_set=8e6)
    for _ in range(3):
        world.second(a=(1.0,))
    world.counters["a"] = world.counters["a"]._replace(memory_working_set=4e5)
    ending = world.second(a=(0.3,))["a"]
    assert (ending.running, ending.fresh, ending.demand) == (True, False, pytest.approx((1.0, 8e6)))
    ended = [world.second(a=(0.0,))["a"] for _ in range(3)]
    assert [(pod.running, pod.fresh) for pod in ended] == [(False, False)] * 3
    restarted = world.second(a=(0.5,))["a"]
    assert (restarted.running, restarted.fresh) == (True, True)


def test_a_pod_that_frees_its_memory_and_goes_on_is_measured_after_one_reading() -> None:
    world = World()
    world.add("a", memory_working_set=8e8)
    for _ in range(3):
        world.second(a=(0.5,))
    world.counters["a"] = world.counters["a"]._replace(memory_working_set=4e7)
    freed = [world.second(a=(0.01,))["a"] for _ in range(3)]
    assert [(pod.running, pod.fresh) for pod in freed] == [(True, False), (True, True), (True, True)]
    assert freed[2].demand == pytest.approx((0.01, 4e7))


def test_a_pod_that_never_starts_stops_counting_as_young() -> None:
    world = World()
    world.pods = {"stuck": WorkloadPod("stuck", WEB, None, False, "/kubepods/pod")}
    world.counters["stuck"] = NOTHING
    pod = world.second()["stuck"]
    assert (pod.age, pod.running) == (0.0, False)
    world.now += 2 * YOUNG
    assert world.second()["stuck"].age == 0.0


def test_a_cgroup_that_vanishes_is_ordinary() -> None:
    world = World()
    world.add("a")
    world.second(a=(0.5,))
    world.second(a=(0.5,))
    del world.counters["a"]
    assert world.second()["a"].demand is None
    world.add("a")
    world.second(a=(0.5,))
    assert world.second(a=(0.5,))["a"].demand is not None


def test_counters_that_step_back_are_a_new_group() -> None:
    world = World()
    world.add("a")
    world.second(a=(0.5,))
    world.second(a=(0.5,))
    world.counters["a"] = NOTHING
    stepped = world.second()["a"]
    assert (stepped.fresh, stepped.demand) == (False, pytest.approx((0.5, 0.0))), "the last figures stand"
    assert world.second(a=(0.25,))["a"].demand == pytest.approx((0.25, 0.0))


def test_pods_that_are_gone_are_forgotten() -> None:
    world = World()
    world.add("a")
    world.add("b")
    world.second()
    world.pods = {"b": world.pods["b"]}
    assert list(world.second()) == ["b"]
    assert world.kept == {"b"}


def test_throttled_time_of_all_pods_is_summed_for_the_gate() -> None:
    world = World()
    world.add("a")
    world.add("b")
    world.second()
    world.second(a=(0.2, 0.8, 3.0), b=(0.1, 0.5, 0.25))
    assert world.meter.throttled == pytest.approx(0.8 + 0.25), "no more than the pod waited at all"


def test_where_no_pod_can_be_read_there_is_no_accounting() -> None:
    world = World()
    world.add("a", cgroup=None)
    world.second()
    assert world.meter.problem(world.now) is None, "too early to say"
    world.second(SILENCE + 1)
    assert world.meter.problem(world.now) == "no pod can be measured by test"
    world.add("b")
    world.second()
    assert world.meter.problem(world.now) is None
