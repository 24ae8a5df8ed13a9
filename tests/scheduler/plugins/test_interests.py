"""A pod that waits is tried again when something happened that could have helped it, and only then."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from carico.kube.objects import Node, Pod
from carico.kube.storage import PersistentVolumeClaim
from carico.scheduler.cache.template import PodInfo
from carico.scheduler.framework.cluster_events import Action, ClusterEvent, node_change, pod_change
from carico.testing import make_node, make_pod
from harness.scheduler.worlds import World

WORLD = World([])
TAINTED = {"taints": [{"key": "x", "value": "", "effect": "NoSchedule"}]}
PORT = {"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}]}
ANTI = {
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}}
            ]
        }
    }
}
SPREAD = {
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "x"}},
        }
    ]
}


GPU = {"example.com/gpu": "1"}


def port_on(*addresses: str) -> dict[str, Any]:
    ports = [{"containerPort": 80, "hostPort": 80, "hostIP": address} for address in addresses]
    return {"containers": [{"name": "c", "ports": ports}]}


TWO_ADDRESSES = port_on("10.0.0.1", "10.0.0.2")


def tolerates_more(name: str) -> ClusterEvent:
    """Which nodes count for spreading may depend on what the pod tolerates."""
    return pod_change(
        make_pod(name, spec=SPREAD), make_pod(name, spec=SPREAD | {"tolerations": [{"operator": "Exists"}]})
    )


def helps(plugin: str, waiting: Pod, change: ClusterEvent) -> bool:
    (found,) = [p for p in WORLD.plugins if p.name == plugin]
    return any(interest.could_help(PodInfo(waiting), change) for interest in found.interests)


def node(old: Node | None, new: Node | None) -> ClusterEvent:
    return node_change(old, new)


def gone(pod: Pod) -> ClusterEvent:
    return pod_change(pod, None)


def came(pod: Pod) -> ClusterEvent:
    return pod_change(None, pod)


BIG, SMALL = make_node("n", cpu="8"), make_node("n", cpu="1")
ZONE_1, ZONE_2 = make_node("n", labels={"zone": "1"}), make_node("n", labels={"zone": "2"})
RELABELLED = make_node("n", labels={"zone": "1", "a": "b"})
TAINTED_ZONE_1 = make_node("n", labels={"zone": "1"}, spec=TAINTED)
TWO = make_pod("p", spec=TWO_ADDRESSES)
CHOOSY = make_pod("p", nodeSelector={"a": "b"})
ON_X = make_pod("o", node="n", labels={"app": "x"})
ON_Y = make_pod("o", node="n", labels={"app": "y"})
UNBOUND = make_pod("u", labels={"app": "x"})


@pytest.mark.parametrize(
    ("plugin", "waiting", "change", "expected"),
    [
        ("NodeResourcesFit", make_pod("p", cpu="4"), node(None, BIG), True),
        ("NodeResourcesFit", make_pod("p", cpu="4"), node(None, SMALL), False),
        ("NodeResourcesFit", make_pod("p", cpu="4"), node(SMALL, BIG), True),
        (
            "NodeResourcesFit",
            make_pod("p", cpu="4"),
            node(BIG, make_node("n", cpu="8", memory="1Ti")),
            False,
        ),
        ("TaintToleration", make_pod("p"), node(make_node("n", spec=TAINTED), make_node("n")), True),
        ("TaintToleration", make_pod("p"), node(None, make_node("n", spec=TAINTED)), False),
        ("TaintToleration", make_pod("p"), gone(ON_X), False),
        ("NodeUnschedulable", make_pod("p"), node(make_node("n", spec={"unschedulable": True}), make_node("n")), True),
        (
            "NodeAffinity",
            make_pod("p", nodeSelector={"a": "b"}),
            node(None, make_node("n", labels={"a": "b"})),
            True,
        ),
        ("NodeAffinity", make_pod("p", nodeSelector={"a": "b"}), node(None, make_node("n")), False),
        ("NodePorts", make_pod("p", spec=PORT), gone(make_pod("o", node="n", spec=PORT)), True),
        ("NodePorts", make_pod("p", spec=PORT), gone(ON_X), False),
        ("NodePorts", TWO, gone(make_pod("o", node="n", spec=port_on("10.0.0.1"))), True),
        ("NodePorts", TWO, gone(make_pod("o", node="n", spec=port_on("10.0.0.2"))), True),
        (
            "NodePorts",
            TWO,
            gone(make_pod("o", node="n", spec=port_on("10.0.0.3"))),
            False,
        ),
        ("InterPodAffinity", make_pod("p", spec=ANTI), gone(ON_X), True),
        ("InterPodAffinity", make_pod("p", spec=ANTI), gone(ON_Y), False),
        ("InterPodAffinity", make_pod("p", labels={"app": "x"}), gone(make_pod("o", node="n", spec=ANTI)), True),
        ("PodTopologySpread", make_pod("p", spec=SPREAD), came(ON_X), True),
        ("PodTopologySpread", make_pod("p", spec=SPREAD), came(ON_Y), False),
        ("PodTopologySpread", make_pod("p", spec=SPREAD), tolerates_more("p"), True),
        ("PodTopologySpread", make_pod("p", spec=SPREAD), tolerates_more("other"), False),
        ("Unsupported", make_pod("p", requests=GPU), node(make_node("n"), make_node("n", **GPU)), True),
        ("Unsupported", make_pod("p", requests=GPU), node(None, make_node("n")), False),
        ("Unsupported", make_pod("p", requests=GPU), ClusterEvent("DeviceClass", Action.DELETE), True),
        ("PodTopologySpread", make_pod("p", spec=SPREAD), node(None, make_node("n", labels={"zone": "1"})), True),
        ("PodTopologySpread", make_pod("p", spec=SPREAD), node(None, make_node("n")), False),
        # A relabelled node: only labels count that the verdict about the waiting pod depends on.
        ("PodTopologySpread", make_pod("p", spec=SPREAD), node(ZONE_1, RELABELLED), False),
        ("PodTopologySpread", make_pod("p", spec=SPREAD), node(ZONE_1, ZONE_2), True),
        ("PodTopologySpread", make_pod("p", spec=SPREAD), node(ZONE_1, make_node("n")), True),
        ("PodTopologySpread", make_pod("p", spec=SPREAD), node(ZONE_1, TAINTED_ZONE_1), True),
        (
            "PodTopologySpread",
            make_pod("p", spec=SPREAD, nodeSelector={"a": "b"}),
            node(ZONE_1, RELABELLED),
            True,
        ),
        ("InterPodAffinity", make_pod("p", spec=ANTI), node(ZONE_1, RELABELLED), False),
        ("InterPodAffinity", make_pod("p", spec=ANTI), node(ZONE_1, ZONE_2), True),
        ("InterPodAffinity", make_pod("p", spec=ANTI), node(None, make_node("n")), True),
        ("NodeDeclaredFeatures", make_pod("p"), node(None, make_node("n")), True),
        ("NodeName", make_pod("p"), node(None, make_node("n")), True),
    ],
)
def test_hints(plugin: str, waiting: Pod, change: ClusterEvent, expected: bool) -> None:
    assert helps(plugin, waiting, change) is expected


def test_a_node_that_leaves_the_domain_of_a_running_pods_term_helps_the_pod_it_refused() -> None:
    """The pod has no terms of its own; which labels matter is known from the terms that refused it."""
    world = World([ZONE_1], [make_pod("o", node="n", spec=ANTI)])
    waiting = make_pod("p", labels={"app": "x"})
    (plugin,) = [p for p in world.plugins if p.name == "InterPodAffinity"]
    assert not world.feasible(waiting)
    moved, relabelled = node(ZONE_1, ZONE_2), node(ZONE_1, RELABELLED)
    assert [any(i.could_help(PodInfo(waiting), c) for i in plugin.interests) for c in (moved, relabelled)] == [
        True,
        False,
    ]


def claim(name: str) -> Any:
    return msgspec.convert({"metadata": {"name": name, "namespace": "default"}}, PersistentVolumeClaim)


@pytest.mark.parametrize("plugin", ["VolumeBinding", "VolumeZone", "VolumeRestrictions", "NodeVolumeLimits"])
def test_the_pods_own_claim_matters_and_no_other(plugin: str) -> None:
    spec = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "mine"}}]}
    for name, expected in (("mine", True), ("other", False)):
        change = ClusterEvent("PersistentVolumeClaim", Action.ADD, None, claim(name))
        assert helps(plugin, make_pod("p", spec=spec), change) is expected


def test_lifted_gates() -> None:
    gated = make_pod("p", spec={"schedulingGates": [{"name": "g"}]})
    assert helps("SchedulingGates", gated, pod_change(gated, make_pod("p")))
    assert not helps(
        "SchedulingGates", gated, pod_change(make_pod("q", spec={"schedulingGates": [{"name": "g"}]}), make_pod("q"))
    )


def test_a_heartbeat_is_no_change() -> None:
    beat = msgspec.structs.replace(BIG, metadata=msgspec.structs.replace(BIG.metadata, resource_version="2"))
    assert node_change(BIG, beat).action is Action.NONE


def test_a_container_that_starts_is_no_resize() -> None:
    """Kubelets fill `resources` of its status then."""

    def running(cpu: str, **status: Any) -> Pod:
        container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
        plain = msgspec.to_builtins(make_pod("p", spec={"nodeName": "n", "containers": [container]}))
        return msgspec.convert(plain | {"status": status}, Pod)

    kept = {"name": "c", "allocatedResources": {"cpu": "1"}, "resources": {"requests": {"cpu": "1"}}}
    bound, started = running("1"), running("1", phase="Running", containerStatuses=[kept])
    assert pod_change(bound, started).action is Action.NONE
    smaller = {**kept, "allocatedResources": {"cpu": "500m"}, "resources": {"requests": {"cpu": "500m"}}}
    assert pod_change(started, running("500m", containerStatuses=[kept])).action is Action.NONE, "not actuated yet"
    resized = pod_change(started, running("500m", containerStatuses=[smaller]))
    assert resized.action is Action.POD_SCALE_DOWN
