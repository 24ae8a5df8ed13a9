"""What goes wrong on real machines: late ticks, counters that step back, sources that fail and recover, hotplug."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from carico.errors import UsageError
from carico.telemetry.sampler import Sampler
from harness.node.machine import Machine

STAT = "cpu  {busy} 0 0 {idle} 0 0 0 0 0 0\ncpu0 0 0 0 0\ncpu1 0 0 0 0\nprocs_running 1\n"
PRESSURE = "some avg10=99.00 avg60=0.00 avg300=0.00 total={total}\n"


@pytest.fixture
def node(machine: Callable[[str], Machine]) -> Any:
    """Two processors with pressure, whose counters the test sets."""
    node: Any = machine("cgroup-v2-host")
    node.set = lambda busy, idle, total: (
        node.write("proc/stat", STAT.format(busy=busy, idle=idle).encode()),
        node.write("proc/pressure/cpu", PRESSURE.format(total=total).encode()),
    )
    node.set(100, 100, 0)
    return node


def values(sampler: Sampler, at: float) -> tuple[float, ...]:
    sample = sampler.read(at)
    assert sample is not None
    return sample.values


def primed(node: Any, **settings: Any) -> Sampler:
    sampler = Sampler(node.settings(**settings))
    assert sampler.read(10.0) is None
    return sampler


def test_a_late_tick_is_one_sample_over_the_longer_interval(node: Any) -> None:
    sampler = primed(node)
    node.set(200, 100 + 60, 350_000)  # 0.8 s late: 160 ticks, 100 of them busy; 350 of 800 ms under pressure
    assert values(sampler, 10.8)[0] == pytest.approx((0.625 + 0.4375) / 2)


@pytest.mark.parametrize("after", [(90, 130, 50), (130, 90, 50), (110, 110, -50)])
def test_a_counter_that_steps_back_is_a_missed_sample(node: Any, after: Any) -> None:
    node.set(100, 100, 1000)
    sampler = primed(node)
    node.set(after[0], after[1], 1000 + after[2])
    assert sampler.read(10.1) is None
    node.set(after[0] + 10, after[1] + 10, 1000 + after[2] + 20_000)
    assert values(sampler, 10.2)[0] == pytest.approx((0.5 + 0.2) / 2), "and the next one is right again"


def test_less_than_a_clock_tick_is_carried_over(node: Any) -> None:
    sampler = primed(node)
    assert sampler.read(10.001) is None
    node.set(110, 110, 0)
    assert sampler.read(10.1) is not None
    assert sampler.raw["util"] == pytest.approx(0.5)


def test_pressure_beyond_the_interval_is_clamped(node: Any) -> None:
    sampler = primed(node)
    node.set(120, 100, 150_000)
    assert values(sampler, 10.1)[0] == 1.0


@pytest.mark.parametrize(("form", "cpu"), [("mean", 0.2), ("utilisation", 0.2), ("pressure", 0.2)])
def test_a_throttled_pod_cannot_drive_cpu_above_utilisation(node: Any, form: Any, cpu: float) -> None:
    sampler = primed(node, cpu=form)
    node.set(104, 116, 99_000)
    assert values(sampler, 10.1)[0] == pytest.approx(cpu)


def test_one_broken_source_leaves_the_others(node: Any, caplog: pytest.LogCaptureFixture) -> None:
    sampler = primed(node)
    node.write("proc/meminfo", b"\xff garbage")
    node.set(110, 110, 0)
    assert values(sampler, 10.1) == pytest.approx((0.25, 0.25)), "memory keeps its last value"
    assert "MemTotal" in (sampler.sources()["meminfo"] or "") or "MemFree" in (sampler.sources()["meminfo"] or "")
    node.write("proc/meminfo", b"MemTotal: 100 kB\nMemAvailable: 10 kB\n")
    node.set(120, 120, 0)
    assert values(sampler, 10.2) == pytest.approx((0.25, 0.9))
    assert [r.message.split(":")[0] for r in caplog.records if "meminfo" in r.message][-2:] == [
        "meminfo is broken",
        "meminfo can be read again",
    ]


def test_pressure_that_appears_later_is_used(node: Any, caplog: pytest.LogCaptureFixture) -> None:
    node.remove("proc/pressure")
    sampler = primed(node)
    node.set(120, 100, 500)
    assert sampler.read(10.1) is None, "the first read of a counter has nothing to compare with"
    node.set(140, 100, 50_500)
    assert values(sampler, 10.2)[0] == pytest.approx((1.0 + 0.5) / 2)
    assert sampler.sources()["pressure_cpu"] is None
    assert len(caplog.records) == 2


def test_without_a_readable_source_there_is_no_sample(node: Any) -> None:
    sampler = primed(node)
    node.remove("proc")
    assert sampler.read(10.1) is None or sampler.sources()["stat"] is None
    blind = Sampler(node.settings())
    assert [blind.read(t) for t in (1.0, 2.0)] == [None, None]
    assert all(blind.sources().values())
    assert blind.size().cores >= 1


def test_processors_come_and_go(machine: Callable[[str], Machine]) -> None:
    node = machine("many-cpus")
    sampler = Sampler(node.settings())
    assert sampler.size().cores == 128
    node.write("proc/stat", STAT.format(busy=1, idle=1).encode())
    assert sampler.size().cores == 2


@pytest.mark.parametrize("dimensions", [(), ("cpu", "cpu"), ("gpu",)])
def test_dimensions_that_make_no_sense(node: Any, dimensions: Any) -> None:
    with pytest.raises(UsageError):
        Sampler(node.settings(dimensions=dimensions))


def test_missing_disk_and_interface_name_what_there_is(machine: Callable[[str], Machine]) -> None:
    node = machine("many-cpus")
    settings = node.settings(dimensions=("cpu", "disk", "network"), disk_device="sdz", network_device="wlan9")
    sampler = Sampler(settings)
    sampler.read(1.0)
    node.at("after")
    assert values(sampler, 2.0) == pytest.approx((0.425, 0, 0))
    assert "nvme0n1" in (sampler.sources()["diskstats"] or "")
    assert "wlan9" in (sampler.sources()["netdev"] or "")


def test_network_without_a_default_route(machine: Callable[[str], Machine]) -> None:
    node = machine("many-cpus")
    node.write("proc/1/net/route", b"Iface\tDestination\n")
    sampler = Sampler(node.settings(dimensions=("cpu", "network")))
    sampler.read(1.0)
    assert "set network_device" in (sampler.sources()["netdev"] or "")
    node.write("proc/1/net/ipv6_route", b"0" * 32 + b" 00 " + b"0" * 32 + b" 00 " + b"f" * 32 + b" 1 2 0 3 bond0\n")
    assert sampler.read(2.0) is None
    assert sampler.sources()["netdev"] is None
