"""Raw values of whole machines, each computed by hand from the texts in tests/fixtures (Δ = after − before)."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

import pytest

from carico.telemetry.sampler import Sampler
from carico.types import NodeSize
from harness.node.machine import Machine

ALL = ("cpu", "memory", "memory_pressure", "io_pressure", "disk", "network")


def sample(machine: Machine, seconds: float = 1.0, **settings: Any) -> Any:
    """The sampler after it has seen both instants, and its sample."""
    sampler = Sampler(machine.settings(**settings))
    assert sampler.read(100.0) is None, "the first read has nothing to compare with"
    machine.at("after")
    return sampler, sampler.read(100.0 + seconds)


def test_no_psi_takes_the_run_queue(machine: Callable[[str], Machine], caplog: pytest.LogCaptureFixture) -> None:
    # Δ user 240, nice 20, system 60, idle 60, iowait 20: 320 of 400 ticks are busy.
    # 7 running less the reader on 4 processors: 2 wait, 2/4. MemAvailable 6/8.
    sampler, got = sample(machine("no-psi"))
    assert sampler.raw == pytest.approx({"util": 0.8, "psi": 0.5, "mem": 0.25})
    assert got.values == pytest.approx(((0.8 + 0.5) / 2, 0.25))
    assert "does not exist" in sampler.sources()["pressure_cpu"]
    assert sampler.sources()["stat"] is None
    assert [r.message for r in caplog.records] == [f"pressure_cpu is not here: {sampler.sources()['pressure_cpu']}"], (
        "one warning, though two reads failed"
    )


def test_memory_of_the_report(machine: Callable[[str], Machine]) -> None:
    # 1 − (MemFree 3.0 + Buffers 0.5 + Cached 2.7)/8.0
    assert sample(machine("no-psi"), memory="free")[1].values[1] == pytest.approx(0.225)


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.EINVAL])
def test_psi_switched_off(machine: Callable[[str], Machine], monkeypatch: pytest.MonkeyPatch, code: Any) -> None:
    # Δ user 50, system 10, idle 100, steal 40: 100 of 200 busy. Only the reader runs. MemAvailable 1/4.
    pread = os.pread

    def refuse(fd: Any, size: Any, offset: Any) -> Any:
        if "pressure" in os.readlink(f"/proc/self/fd/{fd}"):
            raise OSError(code, os.strerror(code))
        return pread(fd, size, offset)

    monkeypatch.setattr(os, "pread", refuse)
    sampler, got = sample(machine("psi-disabled"))
    assert got.values == pytest.approx((0.25, 0.75))
    assert "switched off" in sampler.sources()["pressure_cpu"]


def test_many_processors_and_all_dimensions(machine: Callable[[str], Machine]) -> None:
    # Δ user 6400 (guest 3200 is inside it), system 640, idle 5760: 7040 of 12800. Pressure 300000 µs in 1 s.
    # Disks 250, 600 and (a partition) 590 ms of 1000; loop0 is no disk.
    # bond0 sent 50e6 of 125e6 bytes and received 12.5e6.
    sampler, got = sample(machine("many-cpus"), dimensions=ALL)
    assert got.values == pytest.approx(((0.55 + 0.3) / 2, 0.25, 0.0, 0.05, 0.6, 0.4))
    assert sampler.size() == NodeSize(cores=128, memory_bytes=528_000_000 * 1024)
    assert set(sampler.sources().values()) == {None}


def test_one_disk_and_one_interface(machine: Callable[[str], Machine]) -> None:
    both: dict[str, Any] = {"dimensions": ("disk", "network"), "disk_device": "nvme0n1", "network_device": "lo"}
    assert sample(machine("many-cpus"), **both)[1].values == pytest.approx((0.25, 0.0))


def test_cgroup_v2_host(machine: Callable[[str], Machine]) -> None:
    # 2 s: Δ user 720, system 80, idle 800. Pressure 800000 µs in 2 s.
    sampler, got = sample(machine("cgroup-v2-host"), seconds=2.0)
    assert sampler.raw == pytest.approx({"util": 0.5, "psi": 0.4, "mem": 0.25})
    assert got.values == pytest.approx((0.45, 0.25))


def test_cgroup_v2_limits(machine: Callable[[str], Machine]) -> None:
    # work.scope: quota 1 core: used 1.5 s of 2, throttled 0.6 s of 2; its slice: 4 cores, used 3 s of 8.
    # Memory: (700 − 100)/1024 MiB in the scope; (1024 − 100)/2048 in the slice.
    sampler, got = sample(machine("cgroup-v2-host"), seconds=2.0, own_limits=True)
    assert sampler.raw == pytest.approx({"util": 0.75, "psi": 0.3, "mem": 600 / 1024})
    assert got.values == pytest.approx(((0.75 + 0.3) / 2, 600 / 1024))
    assert sampler.size() == NodeSize(cores=1.0, memory_bytes=2**30)
    assert set(sampler.sources()) == {"cgroup_cpu", "cgroup_throttled", "cgroup_memory"}


def test_container_sees_the_machine_and_its_limits(machine: Callable[[str], Machine]) -> None:
    # Δ user 180, system 20, idle 160, steal 40: 240 of 400. Pressure 0.4.
    # Quota 1.5 cores: used 1.2 s, throttled 0.3 s. Memory (410 − 26)/512 MiB.
    _, whole = sample(machine("container-v1"))
    assert whole.values == pytest.approx(((0.6 + 0.4) / 2, 0.5))
    sampler, own = sample(machine("container-v1"), own_limits=True)
    assert own.values == pytest.approx(((0.8 + 0.2) / 2, 0.75))
    assert sampler.size() == NodeSize(cores=1.5, memory_bytes=512 * 2**20)


def test_old_kernel(machine: Callable[[str], Machine], caplog: pytest.LogCaptureFixture) -> None:
    # 2.6.32, one processor: Δ user 10, system 5, idle 30, iowait 5: 15 of 50. 3 running: queue 1, gated to 0.3.
    # No MemAvailable: 1 − (200 + 100 + 300)/1000.
    _, got = sample(machine("old-kernel"))
    assert got.values == pytest.approx((0.3, 0.4))
    assert sum("MemAvailable" in r.message for r in caplog.records) == 1


def test_own_limits_without_a_limit_are_the_machine(machine: Callable[[str], Machine]) -> None:
    assert sample(machine("no-psi"), own_limits=True)[1] == sample(machine("no-psi"))[1]
