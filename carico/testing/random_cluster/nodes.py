"""Random nodes: labels with gaps, taints, cordons, and little room, so that every filter has something to refuse."""

from __future__ import annotations

from random import Random
from typing import Any

Object = dict[str, Any]

ZONES = ("a", "b", "c")
HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
TAINT_KEYS = ("dedicated", "gpu", "spot")
TAINT_VALUES = ("", "x", "y")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
DISKS = ("ssd", "hdd", "")
GPU = "example.com/gpu"
PLENTY = {"cpu": "64", "memory": "256Gi", "pods": "110", "ephemeral-storage": "1Ti"}
FEATURES = ("UserNamespacesHostNetworkSupport", "RestartAllContainersOnContainerExits")


def node(rng: Random, name: str, roomy: bool) -> Object:
    """In a `roomy` cluster requests and taints refuse little, so that the other filters decide."""
    spared = roomy and rng.random() < 0.8
    spec: Object = {"taints": [] if spared else taints(rng)}
    if rng.random() < 0.06:
        spec["unschedulable"] = True
    offered = room(rng) | (PLENTY if roomy else {})
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels(rng, name)},
        "spec": spec,
        "status": {"allocatable": offered, "capacity": {}, "declaredFeatures": features(rng)},
    }


def labels(rng: Random, name: str) -> dict[str, str]:
    found = {}
    if rng.random() < 0.95:
        found[HOSTNAME] = name
    if rng.random() < 0.9:
        found[ZONE] = rng.choice(ZONES)
    if rng.random() < 0.7:
        found[REGION] = rng.choice(("north", "south"))
    if rng.random() < 0.8:
        found["disk"] = rng.choice(DISKS)
    if rng.random() < 0.8:
        found["cores"] = rng.choice(("2", "4", "8", "16", "0x4", "many"))
    if rng.random() < 0.5:
        found["rack"] = f"r{rng.randrange(6)}"
    return found


def taints(rng: Random) -> list[Object]:
    if rng.random() < 0.65:
        return []
    keys = rng.sample(TAINT_KEYS, rng.randint(1, 2))
    return [{"key": key, "value": rng.choice(TAINT_VALUES), "effect": rng.choice(EFFECTS)} for key in keys]


def room(rng: Random) -> dict[str, str]:
    amounts = {
        "cpu": rng.choice(("1", "2", "3500m", "8")),
        "memory": rng.choice(("1Gi", "2G", "4Gi", "1500M")),
        "pods": str(rng.choice((3, 6, 12, 40))),
    }
    if rng.random() < 0.8:
        amounts["ephemeral-storage"] = rng.choice(("1Gi", "10Gi"))
    if rng.random() < 0.4:
        amounts[GPU] = str(rng.randint(0, 4))
    if rng.random() < 0.3:
        amounts["hugepages-2Mi"] = rng.choice(("4Mi", "64Mi"))
    return amounts


def features(rng: Random) -> list[str]:
    return sorted(rng.sample(FEATURES, rng.randint(0, len(FEATURES))))
