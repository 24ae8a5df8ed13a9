"""Random storage: classes, volumes with and without affinity, claims in every state, drivers with limits."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from carico.testing.random_cluster.nodes import REGION, ZONE, ZONES, Object

DRIVERS = ("disk.example.com", "net.example.com")
MODES = (["ReadWriteOnce"], ["ReadWriteMany"], ["ReadWriteOnce", "ReadOnlyMany"])


@dataclass
class Storage:
    """Everything to create, in this order; statuses are written afterwards."""

    classes: list[Object] = field(default_factory=list)
    drivers: list[Object] = field(default_factory=list)
    csi_nodes: list[Object] = field(default_factory=list)
    capacities: list[Object] = field(default_factory=list)
    volumes: list[Object] = field(default_factory=list)
    claims: list[Object] = field(default_factory=list)
    attachments: list[Object] = field(default_factory=list)
    sizes: set[int] = field(default_factory=set)  # no two volumes, and no two claims, are of one size

    def size(self, rng: Random, low: int, high: int) -> str:
        """Kube-scheduler goes through volumes in random order: equal sizes would make its answer random as well."""
        while True:
            size = rng.randint(low, high)
            if size not in self.sizes:
                self.sizes.add(size)
                return f"{size}Mi"


def storage(rng: Random, prefix: str, nodes: list[Object], namespace: str) -> Storage:
    made = Storage()
    made.drivers = [_driver(prefix, name, capacity=name == DRIVERS[1]) for name in DRIVERS]
    made.classes = [_class(rng, prefix, number) for number in range(6)]
    for node in nodes:
        if rng.random() < 0.7:
            made.csi_nodes.append(_csi_node(rng, prefix, node["metadata"]["name"]))
    made.capacities = [_capacity(rng, prefix, number) for number in range(4)]
    for number in range(12):
        _bound_pair(rng, made, prefix, number, namespace)
    for number in range(10):
        made.volumes.append(_free_volume(rng, made, prefix, number, namespace))
    for number in range(14):
        made.claims.append(_open_claim(rng, made, prefix, number, namespace, nodes))
    made.attachments = [_attachment(rng, prefix, number, made, nodes) for number in range(6)]
    return made


def _driver(prefix: str, name: str, capacity: bool) -> Object:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": f"{prefix}.{name}"},
        "spec": {"storageCapacity": capacity},
    }


def _class(rng: Random, prefix: str, number: int) -> Object:
    provisioner = (f"{prefix}.{DRIVERS[0]}", f"{prefix}.{DRIVERS[1]}", "kubernetes.io/no-provisioner")[number % 3]
    made: Object = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": f"{prefix}-class-{number}"},
        "provisioner": provisioner,
        "volumeBindingMode": "Immediate" if number == 3 else "WaitForFirstConsumer",
    }
    if number in (1, 4) and rng.random() < 0.7:
        values = rng.sample(ZONES, rng.randint(1, 2))
        made["allowedTopologies"] = [{"matchLabelExpressions": [{"key": ZONE, "values": values}]}]
    return made


def _csi_node(rng: Random, prefix: str, node: str) -> Object:
    drivers = []
    for name in rng.sample(DRIVERS, rng.randint(0, 2)):
        driver: Object = {"name": f"{prefix}.{name}", "nodeID": node, "topologyKeys": []}
        if rng.random() < 0.8:
            driver["allocatable"] = {"count": rng.randint(1, 3)}
        drivers.append(driver)
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": node},
        "spec": {"drivers": drivers},
    }


def _capacity(rng: Random, prefix: str, number: int) -> Object:
    capacity: Object = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIStorageCapacity",
        "metadata": {"name": f"{prefix}-capacity-{number}", "namespace": "default"},
        "storageClassName": f"{prefix}-class-{rng.choice((1, 4))}",
        "capacity": rng.choice(("100Mi", "10Gi")),
    }
    if rng.random() < 0.8:
        capacity["nodeTopology"] = {"matchLabels": {ZONE: rng.choice(ZONES)}}
    if rng.random() < 0.3:
        capacity["maximumVolumeSize"] = rng.choice(("50Mi", "5Gi"))
    return capacity


def _affinity(rng: Random) -> Object:
    if rng.random() < 0.35:
        return {}
    key, values = rng.choice(
        ((ZONE, rng.sample(ZONES, rng.randint(1, 2))), ("disk", ["ssd"]), ("rack", [f"r{rng.randrange(6)}", "r0"]))
    )
    operator = rng.choice(("In", "In", "NotIn"))
    term = {"matchExpressions": [{"key": key, "operator": operator, "values": values}]}
    return {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}


def _source(rng: Random, prefix: str, name: str) -> Object:
    if rng.random() < 0.7:
        return {"csi": {"driver": f"{prefix}.{rng.choice(DRIVERS)}", "volumeHandle": name}}
    return {"nfs": {"server": "127.0.0.1", "path": "/x"}}


def _zone_labels(rng: Random) -> dict[str, str]:
    if rng.random() < 0.6:
        return {}
    key = rng.choice((ZONE, "failure-domain.beta.kubernetes.io/zone", REGION))
    if key == REGION:
        return {key: "north"}
    return {key: rng.choice(("a", "b", "a__b"))}


def _volume(rng: Random, prefix: str, name: str, class_name: str, size: str) -> Object:
    modes = rng.choice(MODES)
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": _zone_labels(rng)},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": modes,
            "storageClassName": class_name,
            "persistentVolumeReclaimPolicy": "Retain",
            **({"volumeMode": "Block"} if rng.random() < 0.1 else {}),
            **_affinity(rng),
            **_source(rng, prefix, name),
        },
    }


def _bound_pair(rng: Random, made: Storage, prefix: str, number: int, namespace: str) -> None:
    """A claim bound to a volume; now and then the volume has vanished, or the claim is for a single pod."""
    class_name, size = f"{prefix}-class-{rng.randrange(6)}", made.size(rng, 1, 3000)
    volume = _volume(rng, prefix, f"{prefix}-bound-{number}", class_name, size)
    if rng.random() < 0.3:
        volume["spec"]["accessModes"] = ["ReadWriteOncePod"]
    name = f"bound-{number}"
    volume["spec"]["claimRef"] = {"namespace": namespace, "name": name, "kind": "PersistentVolumeClaim"}
    volume["status"] = {"phase": "Bound"}
    claim = _claim(name, namespace, class_name, size, volume["spec"]["accessModes"])
    claim["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    claim["spec"]["volumeName"] = volume["metadata"]["name"]
    claim["status"] = {"phase": "Lost" if rng.random() < 0.08 else "Bound"}
    if rng.random() < 0.93:
        made.volumes.append(volume)
    made.claims.append(claim)


def _free_volume(rng: Random, made: Storage, prefix: str, number: int, namespace: str) -> Object:
    class_name = f"{prefix}-class-{rng.choice((0, 2, 5))}"
    volume = _volume(rng, prefix, f"{prefix}-free-{number}", class_name, made.size(rng, 500, 4000))
    volume["metadata"]["labels"]["tier"] = rng.choice(("gold", "iron"))
    volume["status"] = {"phase": rng.choice(("Available", "Available", "Available", "Released"))}
    if rng.random() < 0.15:
        claim = rng.randrange(14)
        volume["spec"]["claimRef"] = {"namespace": namespace, "name": f"open-{claim}", "kind": "PersistentVolumeClaim"}
    return volume


def _open_claim(rng: Random, made: Storage, prefix: str, number: int, namespace: str, nodes: list[Object]) -> Object:
    class_name = f"{prefix}-class-{rng.randrange(6)}"
    claim = _claim(f"open-{number}", namespace, class_name, made.size(rng, 1, 2500), rng.choice(MODES))
    if rng.random() < 0.2:
        claim["spec"]["selector"] = {"matchLabels": {"tier": "gold"}}
    if rng.random() < 0.15:
        selected = rng.choice(nodes)["metadata"]["name"]
        claim["metadata"]["annotations"] = {"volume.kubernetes.io/selected-node": selected}
    claim["status"] = {"phase": "Pending"}
    return claim


def _claim(name: str, namespace: str, class_name: str, size: str, modes: list[str]) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "storageClassName": class_name,
            "accessModes": modes,
            "resources": {"requests": {"storage": size}},
        },
    }


def _attachment(rng: Random, prefix: str, number: int, made: Storage, nodes: list[Object]) -> Object:
    volume: Any = rng.choice(made.volumes)
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": {"name": f"{prefix}-attachment-{number}"},
        "spec": {
            "attacher": f"{prefix}.{rng.choice(DRIVERS)}",
            "nodeName": rng.choice(nodes)["metadata"]["name"],
            "source": {"persistentVolumeName": volume["metadata"]["name"]},
        },
    }
