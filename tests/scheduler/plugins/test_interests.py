"""A pod that waits is tried again when something happened that could have helped it, and only then."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from worlds import World

from carico.kube.objects import Node, Pod
from carico.kube.storage import PersistentVolumeClaim
from carico.scheduler.cache.template import PodInfo
from carico.scheduler.framework.cluster_events import Action, ClusterEvent, node_change, pod_change
from carico.testing import a_node, a_pod

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
    return pod_change(a_pod(name, spec=SPREAD), a_pod(name, spec=SPREAD | {"tolerations": [{"operator": "Exists"}]}))


def helps(plugin: str, waiting: Pod, change: ClusterEvent) -> bool:
    (found,) = [p for p in WORLD.plugins if p.name == plugin]
    return any(interest.could_help(PodInfo(waiting), change) for interest in found.interests)


def node(old: Node | None, new: Node | None) -> ClusterEvent:
    return node_change(old, new)


def gone(pod: Pod) -> ClusterEvent:
    return pod_change(pod, None)


def came(pod: Pod) -> ClusterEvent:
    return pod_change(None, pod)


BIG, SMALL = a_node("n", cpu="8"), a_node("n", cpu="1")
ZONE_1, ZONE_2 = a_node("n", labels={"zone": "1"}), a_node("n", labels={"zone": "2"})
RELABELLED = a_node("n", labels={"zone": "1", "a": "b"})
TAINTED_ZONE_1 = a_node("n", labels={"zone": "1"}, spec=TAINTED)
CHOOSY = a_pod("p", spec={"nodeSelector": {"a": "b"}})
ON_X = a_pod("o", node="n", labels={"app": "x"})
ON_Y = a_pod("o", node="n", labels={"app": "y"})
UNBOUND = a_pod("u", labels={"app": "x"})


@pytest.mark.parametrize(
    ("plugin", "waiting", "change", "expected"),
    [
        ("NodeResourcesFit", a_pod("p", requests={"cpu": "4"}), node(None, BIG), True),
        ("NodeResourcesFit", a_pod("p", requests={"cpu": "4"}), node(None, SMALL), False),
        ("NodeResourcesFit", a_pod("p", requests={"cpu": "4"}), node(SMALL, BIG), True),
        ("NodeResourcesFit", a_pod("p", requests={"cpu": "4"}), node(BIG, a_node("n", cpu="8", memory="1Ti")), False),
        ("TaintToleration", a_pod("p"), node(a_node("n", spec=TAINTED), a_node("n")), True),
        ("TaintToleration", a_pod("p"), node(None, a_node("n", spec=TAINTED)), False),
        ("TaintToleration", a_pod("p"), gone(ON_X), False),
        ("NodeUnschedulable", a_pod("p"), node(a_node("n", spec={"unschedulable": True}), a_node("n")), True),
        (
            "NodeAffinity",
            a_pod("p", spec={"nodeSelector": {"a": "b"}}),
            node(None, a_node("n", labels={"a": "b"})),
            True,
        ),
        ("NodeAffinity", a_pod("p", spec={"nodeSelector": {"a": "b"}}), node(None, a_node("n")), False),
        ("NodePorts", a_pod("p", spec=PORT), gone(a_pod("o", node="n", spec=PORT)), True),
        ("NodePorts", a_pod("p", spec=PORT), gone(ON_X), False),
        ("NodePorts", a_pod("p", spec=TWO_ADDRESSES), gone(a_pod("o", node="n", spec=port_on("10.0.0.1"))), True),
        ("NodePorts", a_pod("p", spec=TWO_ADDRESSES), gone(a_pod("o", node="n", spec=port_on("10.0.0.2"))), True),
        ("NodePorts", a_pod("p", spec=TWO_ADDRESSES), gone(a_pod("o", node="n", spec=port_on("10.0.0.3"))), False),
        ("InterPodAffinity", a_pod("p", spec=ANTI), gone(ON_X), True),
        ("InterPodAffinity", a_pod("p", spec=ANTI), gone(ON_Y), False),
        ("InterPodAffinity", a_pod("p", labels={"app": "x"}), gone(a_pod("o", node="n", spec=ANTI)), True),
        ("PodTopologySpread", a_pod("p", spec=SPREAD), came(ON_X), True),
        ("PodTopologySpread", a_pod("p", spec=SPREAD), came(ON_Y), False),
        ("PodTopologySpread", a_pod("p", spec=SPREAD), tolerates_more("p"), True),
        ("PodTopologySpread", a_pod("p", spec=SPREAD), tolerates_more("other"), False),
        ("Unsupported", a_pod("p", requests=GPU), node(a_node("n"), a_node("n", **GPU)), True),
        ("Unsupported", a_pod("p", requests=GPU), node(None, a_node("n")), False),
        ("Unsupported", a_pod("p", requests=GPU), ClusterEvent("DeviceClass", Action.DELETE), True),
        ("PodTopologySpread", a_pod("p", spec=SPREAD), node(None, a_node("n", labels={"zone": "1"})), True),
        ("PodTopologySpread", a_pod("p", spec=SPREAD), node(None, a_node("n")), False),
        # A relabelled node: only labels count that the verdict about the waiting pod depends on.
        ("PodTopologySpread", a_pod("p", spec=SPREAD), node(ZONE_1, RELABELLED), False),
        ("PodTopologySpread", a_pod("p", spec=SPREAD), node(ZONE_1, ZONE_2), True),
        ("PodTopologySpread", a_pod("p", spec=SPREAD), node(ZONE_1, a_node("n")), True),
        ("PodTopologySpread", a_pod("p", spec=SPREAD), node(ZONE_1, TAINTED_ZONE_1), True),
        ("PodTopologySpread", a_pod("p", spec=SPREAD | {"nodeSelector": {"a": "b"}}), node(ZONE_1, RELABELLED), True),
        ("InterPodAffinity", a_pod("p", spec=ANTI), node(ZONE_1, RELABELLED), False),
        ("InterPodAffinity", a_pod("p", spec=ANTI), node(ZONE_1, ZONE_2), True),
        ("InterPodAffinity", a_pod("p", spec=ANTI), node(None, a_node("n")), True),
        ("NodeDeclaredFeatures", a_pod("p"), node(None, a_node("n")), True),
        ("NodeName", a_pod("p"), node(None, a_node("n")), True),
    ],
)
def test_hints(plugin: str, waiting: Pod, change: ClusterEvent, expected: bool) -> None:
    assert helps(plugin, waiting, change) is expected


def test_a_node_that_leaves_the_domain_of_a_running_pods_term_helps_the_pod_it_refused() -> None:
    """The pod has no terms of its own; which labels matter is known from the terms that refused it."""
    world = World([ZONE_1], [a_pod("o", node="n", spec=ANTI)])
    waiting = a_pod("p", labels={"app": "x"})
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
        assert helps(plugin, a_pod("p", spec=spec), change) is expected


def test_lifted_gates() -> None:
    gated = a_pod("p", spec={"schedulingGates": [{"name": "g"}]})
    assert helps("SchedulingGates", gated, pod_change(gated, a_pod("p")))
    assert not helps(
        "SchedulingGates", gated, pod_change(a_pod("q", spec={"schedulingGates": [{"name": "g"}]}), a_pod("q"))
    )


def test_a_heartbeat_is_no_change() -> None:
    beat = msgspec.structs.replace(BIG, metadata=msgspec.structs.replace(BIG.metadata, resource_version="2"))
    assert node_change(BIG, beat).action is Action.NONE


def test_a_container_that_starts_is_no_resize() -> None:
    """Kubelets fill `resources` of its status then."""

    def running(cpu: str, **status: Any) -> Pod:
        container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
        plain = msgspec.to_builtins(a_pod("p", spec={"nodeName": "n", "containers": [container]}))
        return msgspec.convert(plain | {"status": status}, Pod)

    kept = {"name": "c", "allocatedResources": {"cpu": "1"}, "resources": {"requests": {"cpu": "1"}}}
    bound, started = running("1"), running("1", phase="Running", containerStatuses=[kept])
    assert pod_change(bound, started).action is Action.NONE
    smaller = {**kept, "allocatedResources": {"cpu": "500m"}, "resources": {"requests": {"cpu": "500m"}}}
    assert pod_change(started, running("500m", containerStatuses=[kept])).action is Action.NONE, "not actuated yet"
    resized = pod_change(started, running("500m", containerStatuses=[smaller]))
    assert resized.action is Action.POD_SCALE_DOWN
