"""Scores by hand: the expected figures are worked out in the comments."""

from __future__ import annotations

import math

import msgspec
import pytest

from carico.kube.objects import ReplicaSet, Service
from carico.testing import make_node, make_pod
from harness.scheduler.worlds import World

SOFT_TAINT = {"taints": [{"key": "old", "value": "", "effect": "PreferNoSchedule"}]}


def test_soft_taints_cost() -> None:
    world = World([make_node("a"), make_node("b", spec=SOFT_TAINT)])
    # the most disliked node gets 0
    assert world.scores(make_pod("p"), "TaintToleration") == {"a": 100, "b": 0}
    tolerant = make_pod("q", spec={"tolerations": [{"key": "old", "operator": "Exists"}]})
    assert world.scores(tolerant, "TaintToleration") == {}


def test_preferred_node_affinity_adds_weights() -> None:
    def preference(weight: int, key: str) -> object:
        return {"weight": weight, "preference": {"matchExpressions": [{"key": key, "operator": "Exists"}]}}

    nodes = [make_node("none"), make_node("one", labels={"x": ""}), make_node("both", labels={"x": "", "y": ""})]
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [preference(10, "x"), preference(30, "y")]}
    pod = make_pod("p", spec={"affinity": {"nodeAffinity": preferred}})
    # 0, 10 and 40 of at most 40
    assert World(nodes).scores(pod, "NodeAffinity") == {"none": 0, "one": 25, "both": 100}


def test_company_is_liked_and_disliked() -> None:
    def weighted(weight: int, app: str) -> object:
        term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": app}}}
        return {"weight": weight, "podAffinityTerm": term}

    nodes = [make_node(zone, labels={"zone": zone}) for zone in "xyz"]
    pods = [make_pod("w", node="x", labels={"app": "web"}), make_pod("d", node="y", labels={"app": "db"})]
    affinity = {
        "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [weighted(50, "web")]},
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [weighted(50, "db")]},
    }
    # x +50, y −50, z 0, stretched over 0 … 100
    scores = World(nodes, pods).scores(make_pod("p", spec={"affinity": affinity}), "InterPodAffinity")
    assert scores == {"x": 100, "y": 0, "z": 50}


def test_running_pods_have_preferences_too() -> None:
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "new"}}}
    wish = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]}
    nodes = [make_node(zone, labels={"zone": zone}) for zone in "xy"]
    world = World(nodes, [make_pod("w", node="y", spec={"affinity": {"podAffinity": wish}})])
    assert world.scores(make_pod("p", labels={"app": "new"}), "InterPodAffinity") == {"x": 0, "y": 100}
    assert world.scores(make_pod("q", labels={"app": "other"}), "InterPodAffinity") == {}


ZONE = "topology.kubernetes.io/zone"


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


def test_images_that_are_there_already() -> None:
    megabyte = 1024 * 1024
    have = make_node("have")
    image = {"names": ["example.com/work:1"], "sizeBytes": 1000 * megabyte}
    plain = msgspec.to_builtins(have)
    plain["status"]["images"] = [image]
    world = World([msgspec.convert(plain, type(have)), make_node("lack")])
    # half of the nodes have it: 500 MB of at most 1000 MB, above the threshold of 23 MB
    expected = round(100 * (500 - 23) / (1000 - 23), 1)
    assert world.scores(make_pod("p"), "ImageLocality") == {"have": expected, "lack": 0}
    world.snapshot.set_node(have)  # the kubelet has cleaned up
    assert world.scores(make_pod("p"), "ImageLocality") == {}
