"""PodTopologySpread: filters and scores by the plugin's own rule; tests/conformance compares with kube-scheduler."""

from __future__ import annotations

import math

import msgspec
import pytest

from carico.kube.objects import ReplicaSet, Service
from carico.scheduler.cache.template import PodInfo
from carico.scheduler.framework.contract import Cycle
from carico.testing import make_node, make_pod
from harness.scheduler.worlds import World


def spread(**more: object) -> dict[str, object]:
    base = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    return {"topologySpreadConstraints": [base | {"labelSelector": {"matchLabels": {"app": "web"}}} | more]}


ZONE = "topology.kubernetes.io/zone"


def test_spreading_fills_the_emptiest_zone_first() -> None:
    nodes = [make_node("a", labels={"zone": "1"}), make_node("b", labels={"zone": "2"}), make_node("lost")]
    world = World(nodes, [make_pod("r", node="a", labels={"app": "web"})])
    assert world.feasible(make_pod("p", labels={"app": "web"}, spec=spread())) == {"b"}
    # it does not count itself: one more than nothing is within the skew everywhere
    assert world.feasible(make_pod("q", spec=spread())) == {"a", "b"}
    # three zones are wanted and only two are there: the missing one counts as empty
    assert world.feasible(make_pod("s", labels={"app": "web"}, spec=spread(minDomains=3))) == {"b"}


def test_spreading_forgets_pods_that_leave() -> None:
    nodes = [make_node("a", labels={"zone": "1"}), make_node("b", labels={"zone": "2"})]
    leaving = make_pod("r", node="a", labels={"app": "web"}, metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    world = World(nodes, [leaving])
    assert world.feasible(make_pod("p", labels={"app": "web"}, spec=spread())) == {"a", "b"}


def test_spreading_counts_hypothetical_pods_like_real_ones() -> None:
    """Pods that are being deleted are not counted, and neither are any by an empty selector."""
    leaving = make_pod("l", node="x", labels={"app": "web"}, metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    nodes = [make_node(zone, labels={"zone": zone}) for zone in "xy"]
    world = World(nodes, [leaving, make_pod("w", node="x", labels={"app": "web"})])
    row = world.snapshot.rows.number["x"]
    for name, selector, feasible in (("p", {"matchLabels": {"app": "web"}}, {"y"}), ("q", {}, {"x", "y"})):
        pod = make_pod(name, labels={"app": "web"}, spec=spread(labelSelector=selector))
        assert world.feasible(pod) == feasible
        cycle = Cycle(PodInfo(pod), world.snapshot)
        world.filters.run(cycle)
        with world.filters.pretending(cycle, row, remove=[PodInfo(leaving)]):
            assert world.filters.fits(cycle, row) == ("x" in feasible)
        with world.filters.pretending(cycle, row, add=[PodInfo(make_pod("n", labels={"app": "web"}))]):
            assert world.filters.fits(cycle, row) == ("x" in feasible)


def test_soft_spreading_prefers_the_emptier_zone() -> None:
    nodes = [make_node("a", labels={ZONE: "1"}), make_node("b", labels={ZONE: "2"}), make_node("lost")]
    pods = [make_pod(f"w{i}", node="a", labels={"app": "web"}) for i in range(4)]
    constraint = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    scores = World(nodes, pods).scores(
        make_pod("p", spec={"topologySpreadConstraints": [constraint]}), "PodTopologySpread"
    )
    # two zones weigh ln 4: a is crowded by round(4 ln 4) = 6, b by 0: 100·(6+0−6)/6 and 100·(6+0−0)/6
    assert round(4 * math.log(4)) == 6
    assert scores == {"a": 0, "b": 100, "lost": 0}


def test_pods_of_a_workload_are_spread_without_asking() -> None:
    nodes = [make_node("a", labels={ZONE: "1"}), make_node("b", labels={ZONE: "2"})]
    labels = {"app": "web"}
    pods = [make_pod(f"w{i}", node="a", labels=labels) for i in range(3)]
    owner = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}]
    replica_set = msgspec.convert(
        {"metadata": {"name": "r", "namespace": "default"}, "spec": {"selector": {"matchLabels": labels}}}, ReplicaSet
    )
    service = msgspec.convert(
        {"metadata": {"name": "s", "namespace": "default"}, "spec": {"selector": labels}}, Service
    )
    for obj, more in ((replica_set, {"ownerReferences": owner}), (service, {})):
        scores = World(nodes, pods, [obj]).scores(make_pod("p", labels=labels, metadata=more), "PodTopologySpread")
        # per host 3 ln 4 + 2 and per zone 3 ln 4 + 4 make 14 on a, 6 on b: 100·(14+6−14)/14 and 100
        assert scores == {"a": pytest.approx(42.9), "b": 100}
    assert World(nodes, pods).scores(make_pod("p", labels=labels), "PodTopologySpread") == {}
