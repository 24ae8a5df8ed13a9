"""The gate: a pod that its own cpu limit holds back waits, and the kernel counts that as the machine's pressure."""

from __future__ import annotations

from pathlib import Path

import pytest

from carico.settings import TelemetrySettings
from carico.telemetry.sampler import Sampler

CORES = 2
TICK = 0.1  # s


class Machine:
    """Two processors; each tick the test sets what was used, what waited, and how many tasks want to run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "pressure").mkdir()
        self._busy = self._idle = self._waited = 0.0
        self._now = 0.0
        self._write(1)
        self.sampler = Sampler(TelemetrySettings(proc_root=folder, dimensions=("cpu",)))
        self.sampler.read(0.0)

    def _write(self, running: int) -> None:
        ticks = f"{round(self._busy * 100)} 0 0 {round(self._idle * 100)} 0 0 0 0 0 0"
        lines = [f"cpu  {ticks}", *(f"cpu{i} 0 0 0 0" for i in range(CORES)), f"procs_running {running}", ""]
        (self._folder / "stat").write_text("\n".join(lines))
        (self._folder / "pressure/cpu").write_text(f"some avg10=0.00 total={round(self._waited * 1e6)}\n")

    def seconds(self, count: int, utilisation: float, pressure: float, runnable: int) -> float:
        """cpu at the end."""
        cpu = 0.0
        for _ in range(count * 10):
            self._now += TICK
            self._busy += utilisation * CORES * TICK
            self._idle += (1 - utilisation) * CORES * TICK
            self._waited += pressure * TICK
            self._write(runnable + 1)  # and the reader
            sample = self.sampler.read(self._now)
            assert sample is not None
            cpu = sample.values[0]
        return cpu


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_throttled_pod_on_a_half_idle_node_does_not_double_cpu(machine: Machine) -> None:
    assert machine.seconds(2, utilisation=0.4, pressure=0.8, runnable=1) == pytest.approx(0.4, abs=0.02), "as it was"
    machine.sampler.throttled = 0.8
    assert machine.seconds(2, utilisation=0.4, pressure=0.8, runnable=1) == pytest.approx(0.2, abs=0.02)


def test_pressure_that_throttling_does_not_explain_stays(machine: Machine) -> None:
    machine.sampler.throttled = 0.3
    assert machine.seconds(2, utilisation=0.6, pressure=0.5, runnable=2) == pytest.approx((0.6 + 0.2) / 2, abs=0.02)


def test_on_a_machine_that_is_short_a_throttled_pod_hides_nothing(machine: Machine) -> None:
    """Four busy threads on two processors, and one that is throttled nearly all the time."""
    machine.sampler.throttled = 0.9
    assert machine.seconds(4, utilisation=1.0, pressure=1.0, runnable=4) == pytest.approx(1.0, abs=0.03)


def test_without_throttled_pods_the_run_queue_changes_nothing(machine: Machine) -> None:
    assert machine.seconds(2, utilisation=0.8, pressure=0.2, runnable=7) == pytest.approx(0.5, abs=0.02)


def test_stretch_is_the_mean_of_tasks_per_processor_without_the_reader(machine: Machine) -> None:
    machine.sampler.stretch()
    machine.seconds(1, utilisation=1.0, pressure=1.0, runnable=8)
    assert machine.sampler.stretch() == pytest.approx(4.0)
    machine.seconds(1, utilisation=1.0, pressure=1.0, runnable=8)
    machine.seconds(1, utilisation=1.0, pressure=0.0, runnable=2)
    assert machine.sampler.stretch() == pytest.approx(2.5)
    machine.seconds(1, utilisation=0.2, pressure=0.0, runnable=0)
    assert machine.sampler.stretch() == 1.0
    assert machine.sampler.stretch() == 1.0, "nothing was sampled since"
