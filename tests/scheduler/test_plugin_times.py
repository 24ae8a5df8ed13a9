"""How long plugins take: which cycles are measured, under which labels, and that measuring changes no decision."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.utils import floatToGoString

from carico.scheduler.framework.contract import OK, PermitWait, error, unresolvable, unschedulable
from carico.scheduler.framework.plugin_times import BOUNDS, SHARE, PluginTimes
from carico.testing import make_pod
from harness.scheduler.offline import World

NAMES = [*map(floatToGoString, BOUNDS), "+Inf"]
NAME = "scheduler_plugin_execution_duration_seconds"


def counts(registry: CollectorRegistry) -> dict[tuple[str, str, str], float]:
    samples = [s for family in registry.collect() if family.name == NAME for s in family.samples]
    return {
        (s.labels["plugin"], s.labels["extension_point"], s.labels["status"]): s.value
        for s in samples
        if s.name == f"{NAME}_count"
    }


def played(share: float) -> tuple[list[str], dict[tuple[str, str, str], float]]:
    """Where ten pods of one template go on three nodes with room for nine, and what was measured."""
    world = World({"a": 3.0, "b": 3.0, "c": 3.0})
    world.parts.metrics.plugin_times.share = share
    for i in range(10):
        world.see(make_pod(f"p{i}"))
    placed = []
    for _ in range(10):
        _, decision = world.attempt()
        placed.append(decision.node)
    return placed, counts(world.parts.registry)


def test_a_measured_cycle_has_every_plugin_that_ran() -> None:
    placed, found = played(share=1.0)
    assert placed.count("") == 1
    assert found["Capacity", "Filter", "Success"] == 10
    assert found["VolumeBinding", "Reserve", "Success"] == 9
    assert {point for _, point, _ in found} == {"PreFilter", "Filter", "PostFilter", "PreScore", "Score", "Reserve"}
    assert sum(n for (_, point, status), n in found.items() if (point, status) == ("PostFilter", "Unschedulable")) == 1
    assert any(status == "Skip" for _, _, status in found), "pre-filters that have nothing to say of these pods"


def test_cycles_that_are_not_measured_note_nothing_and_decide_the_same() -> None:
    measured, _ = played(share=1.0)
    placed, found = played(share=0.0)
    assert placed == measured
    assert found == {}


def test_a_tenth_of_the_cycles_is_measured_as_in_kube_scheduler() -> None:
    assert SHARE == 0.1
    times = PluginTimes()
    measured = sum(times.sample() is times for _ in range(20_000))
    assert 1_600 < measured < 2_400  # nine standard deviations


def test_the_buckets_are_kube_schedulers() -> None:
    assert (NAMES[0], NAMES[-1], len(BOUNDS)) == ("1e-05", "+Inf", 20)
    assert BOUNDS[-1] == pytest.approx(0.022168, rel=1e-4)


def test_buckets_are_cumulative_and_their_sum_is_the_time() -> None:
    times, registry = PluginTimes(), CollectorRegistry()
    registry.register(times)
    for seconds in (0.00001, 0.00002, 1.0):
        times.note(("P", "Filter", "Success"), seconds)
    labels = {"plugin": "P", "extension_point": "Filter", "status": "Success"}
    buckets = [registry.get_sample_value(f"{NAME}_bucket", {**labels, "le": le}) for le in NAMES]
    assert buckets == [1, 1, *[2] * 18, 3]
    assert registry.get_sample_value(f"{NAME}_sum", labels) == pytest.approx(1.00003)


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (OK, "Success"),
        (unschedulable("no"), "Unschedulable"),
        (unresolvable("no"), "UnschedulableAndUnresolvable"),
        (error("broken"), "Error"),
        (PermitWait(1.0), "Wait"),
        (None, "Unschedulable"),
        ((), "Unschedulable"),
    ],
)
def test_statuses_are_kube_schedulers(answer: object, status: str) -> None:
    times, registry = PluginTimes(), CollectorRegistry()
    registry.register(times)

    async def later() -> object:
        return answer

    assert times.call("Permit", "P", lambda: answer) is answer
    assert asyncio.run(times.wait("PreBind", "P", later())) is answer
    assert counts(registry) == {("P", "Permit", status): 1, ("P", "PreBind", status): 1}


def test_a_plugin_that_raises_is_noted_as_an_error() -> None:
    times, registry = PluginTimes(), CollectorRegistry()
    registry.register(times)

    def broken() -> None:
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError):
        times.call("Filter", "P", broken)
    assert counts(registry) == {("P", "Filter", "Error"): 1}
