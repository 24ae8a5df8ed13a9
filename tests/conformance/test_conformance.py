"""Carico and kube-scheduler agree on every feasible node of every random pod.

The seed is fixed and printed; another one, or more pods: `python -m harness.conformance --help`.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from carico.testing.random_cluster.cluster import make
from harness.cluster.ports import free_port
from harness.conformance import bound, compare
from harness.conformance.plane import Plane
from harness.scheduler.fleet import SchedulerProcess

pytestmark = [pytest.mark.cluster, pytest.mark.needs("go")]

SEED = 1000
PODS = 2000
PER_WORLD = 100
BOUND = 200
# No agents report here: Pod-Capacity is as if it were without limit.
UNLIMITED = ("--on-stale", "requests", "--startup-limit", "10000", "--startup-limit-idle", "10000")
# Every one of these must have made a difference somewhere, or the generator tests nothing of it.
FILTERS = {
    "InterPodAffinity",
    "NodeAffinity",
    "NodeDeclaredFeatures",
    "NodePorts",
    "NodeResourcesFit",
    "NodeUnschedulable",
    "NodeVolumeLimits",
    "PodTopologySpread",
    "TaintToleration",
    "VolumeBinding",
    "VolumeRestrictions",
    "VolumeZone",
}


@pytest.fixture(scope="module")
def plane() -> Iterator[Plane]:
    with Plane() as running:
        compare.prepare(running.api)
        yield running


@pytest.mark.timeout(1800)
def test_the_feasible_sets_are_equal(plane: Plane) -> None:
    total, seed = compare.Result(), SEED
    while total.pods < PODS:
        world = make(seed, PER_WORLD)
        compare.write(plane, world)
        total.add(compare.run(plane, world, world.waiting))
        compare.erase(plane.api, world)
        seed += 1
    print(f"{total.pods} pods, seeds {SEED} to {seed - 1}; decisive: {dict(total.decisive)}")
    assert not total.differences, total.differences[:3]
    assert total.feasible_somewhere > PODS / 3
    assert set(total.decisive) >= FILTERS


@pytest.mark.timeout(1800)
def test_pods_are_bound_where_kube_scheduler_would(plane: Plane) -> None:
    total, seed = bound.Bound(), 5000
    lease = ("--leader-elect-resource-namespace", "default", "--leader-elect-resource-name", "carico")
    process = SchedulerProcess(plane.kubeconfig, free_port(), *lease, *UNLIMITED)
    try:
        while total.bound < BOUND:
            world = make(seed, PER_WORLD)
            compare.write(plane, world)
            found = bound.run(plane, world, bound.bindable(world))
            compare.erase(plane.api, world)
            total.bound, total.refused, seed = total.bound + found.bound, total.refused + found.refused, seed + 1
            assert not found.wrong, found.wrong[:3]
    finally:
        process.stop(signal.SIGKILL)
    print(f"{total.bound} pods bound, {total.refused} fit nowhere, seeds 5000 to {seed - 1}")
