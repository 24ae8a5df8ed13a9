"""The simulated API server of resting.py, with claims and volumes, and the controllers that bind them."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from carico.errors import ApiError
from carico.kube.meta import KubeObject
from carico.kube.objects import PodDisruptionBudget
from carico.kube.storage import (
    BIND_COMPLETED,
    NO_PROVISIONER,
    SELECTED_NODE,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from carico.scheduler.cache.object_store import KINDS
from carico.scheduler.cache.template import PodInfo
from carico.scheduler.framework.contract import Nomination
from carico.testing import ManualClock
from harness.kube.network import Asked
from harness.scheduler.resting import Api, World

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
PATHS = {"persistentvolumes": "PersistentVolume", "persistentvolumeclaims": "PersistentVolumeClaim"}
CLASSES = {"local": NO_PROVISIONER, "dynamic": "disk.example.com", "zonal": "disk.example.com", "now": "d.example.com"}


class StorageApi(Api):
    """Also stores claims, volumes, storage classes and PodDisruptionBudgets."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.things: dict[tuple[str, str], dict[str, Any]] = {}  # by kind and name
        self.provisioner = "works"  # fails, hangs, goes wrong: makes volumes that no node reaches
        self.volumes_refuse = 0  # requests that are answered with an error

    async def answer(self, asked: Asked) -> bytes:
        collection, _, name = asked.path.rpartition("/")
        kind = PATHS.get(collection.rpartition("/")[2])
        if kind is None:
            return await super().answer(asked)
        await self.clock.sleep(self.slow_patches)
        if self.volumes_refuse:
            self.volumes_refuse -= 1
            raise ApiError(503, "ServiceUnavailable", "etcd is away")
        patch, obj = asked.body, self.things.get((kind, name))
        if obj is None:
            raise ApiError(404, "NotFound", f"{kind} {name!r} not found")
        if patch["metadata"].pop("resourceVersion") != obj["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", "the object has been modified")
        self.put(kind, name, _merged(obj, patch))
        return b"{}"

    def put(self, kind: str, name: str, obj: dict[str, Any] | None) -> None:
        old = self.things.get((kind, name))
        if obj is None:
            self.things.pop((kind, name), None)
        else:
            self._version += 1
            meta = obj["metadata"] | {"resourceVersion": str(self._version)}
            obj = self.things[kind, name] = json.loads(json.dumps(obj | {"metadata": meta}))
        if old is not None or obj is not None:
            self.news.append(("obj", _decoded(kind, old), _decoded(kind, obj)))

    def of_kind(self, kind: str) -> dict[str, dict[str, Any]]:
        return {name: obj for (one, name), obj in list(self.things.items()) if one == kind}

    # --- what tests make ---

    def make_class(self, name: str, zones: tuple[str, ...] = ()) -> None:
        mode = "Immediate" if name == "now" else "WaitForFirstConsumer"
        terms = [{"matchLabelExpressions": [{"key": ZONE, "values": list(zones)}]}] if zones else []
        meta = {"name": name, "uid": f"class {name}"}
        obj = {"metadata": meta, "provisioner": CLASSES[name], "volumeBindingMode": mode, "allowedTopologies": terms}
        self.put("StorageClass", name, obj)

    def make_claim(self, name: str, serial: int, storage_class: str) -> None:
        if ("PersistentVolumeClaim", name) in self.things:
            return
        meta = {"name": name, "namespace": "default", "uid": f"{name}-{serial}", "annotations": {}}
        spec = {
            "storageClassName": storage_class,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        }
        self.put("PersistentVolumeClaim", name, {"metadata": meta, "spec": spec, "status": {"phase": "Pending"}})

    def make_volume(self, name: str, serial: int, storage_class: str, key: str, value: str) -> None:
        if ("PersistentVolume", name) in self.things:
            return
        terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}]
        spec = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
        }
        meta = {"name": name, "uid": f"{name}-{serial}", "annotations": {}}
        self.put("PersistentVolume", name, {"metadata": meta, "spec": spec, "status": {"phase": "Available"}})

    def make_budget(self, allowed: int) -> None:
        obj = {
            "metadata": {"name": "budget", "namespace": "default", "uid": "budget"},
            "spec": {"selector": {"matchLabels": {"app": "a"}}},
            "status": {"disruptionsAllowed": allowed},
        }
        self.put("PodDisruptionBudget", "budget", obj)

    def delete_claim(self, name: str) -> None:
        """Claims of pods on nodes are protected; volumes that were made for a claim go with it."""
        claim = self.things.get(("PersistentVolumeClaim", name))
        used = any(pod["spec"].get("nodeName") and name in _claims(pod) for pod in self.pods.values())
        if claim is None or used:
            return
        self.put("PersistentVolumeClaim", name, None)
        for volume in self.of_kind("PersistentVolume"):
            if volume == f"made-{claim['metadata']['uid']}":
                self.put("PersistentVolume", volume, None)

    # --- the controllers ---

    def controllers(self) -> None:
        """One pass of the volume controller and the provisioner."""
        for name, claim in self.of_kind("PersistentVolumeClaim").items():
            if BIND_COMPLETED not in claim["metadata"]["annotations"]:
                self._serve(name, claim)
        uids = {claim["metadata"]["uid"] for claim in self.of_kind("PersistentVolumeClaim").values()}
        for name, volume in self.of_kind("PersistentVolume").items():
            ref = volume["spec"].get("claimRef")
            if ref and ref["uid"] not in uids:  # an administrator makes the volume available again
                spec = {key: value for key, value in volume["spec"].items() if key != "claimRef"}
                self.put("PersistentVolume", name, volume | {"spec": spec, "status": {"phase": "Available"}})

    def _serve(self, name: str, claim: dict[str, Any]) -> None:
        uid, storage_class = claim["metadata"]["uid"], claim["spec"]["storageClassName"]
        for volume, obj in self.of_kind("PersistentVolume").items():
            if (obj["spec"].get("claimRef") or {}).get("uid") == uid:
                self.bind_claim(name, volume)
                return
        node = claim["metadata"]["annotations"].get(SELECTED_NODE)
        if storage_class == "local" or self.provisioner == "hangs" or (node is None and storage_class != "now"):
            return
        if self.provisioner == "fails" or (node is not None and node not in self.nodes):
            self.unbind_claim(name)
            return
        volume = f"made-{uid}"
        if node is None:
            self.make_volume(volume, 0, storage_class, HOSTNAME, "n0")
        elif self.provisioner == "goes wrong":
            self.make_volume(volume, 0, storage_class, ZONE, "nowhere")
        else:
            self.make_volume(volume, 0, storage_class, HOSTNAME, node)
        self.bind_claim(name, volume)

    def bind_claim(self, name: str, volume: str) -> None:
        claim, obj = self.things["PersistentVolumeClaim", name], self.things["PersistentVolume", volume]
        ref = {"name": name, "namespace": "default", "uid": claim["metadata"]["uid"]}
        bound = _merged(obj, {"spec": {"claimRef": ref}, "status": {"phase": "Bound"}})
        self.put("PersistentVolume", volume, bound)
        notes = {"annotations": {BIND_COMPLETED: "yes"}}
        done = {"metadata": notes, "spec": {"volumeName": volume}, "status": {"phase": "Bound"}}
        self.put("PersistentVolumeClaim", name, _merged(claim, done))

    def unbind_claim(self, name: str) -> None:
        """The provisioner gives up: the claim may be scheduled to another node."""
        claim = self.things.get(("PersistentVolumeClaim", name))
        if claim is None or any(p["spec"].get("nodeName") and name in _claims(p) for p in self.pods.values()):
            return
        if volume := claim["spec"].get("volumeName"):
            self.put("PersistentVolume", volume, None)
        spec = {key: value for key, value in claim["spec"].items() if key != "volumeName"}
        meta = claim["metadata"] | {"annotations": {}}
        self.put(
            "PersistentVolumeClaim", name, claim | {"metadata": meta, "spec": spec, "status": {"phase": "Pending"}}
        )


class StorageWorld(World):
    api: StorageApi

    def __init__(self, **settings: Any) -> None:
        super().__init__(StorageApi, **settings)
        for name in CLASSES:
            self.api.make_class(name)

    def kubelets(self) -> None:
        super().kubelets()
        self.api.controllers()

    async def rest(self, seconds: int = 120) -> None:
        self.api.provisioner, self.api.volumes_refuse = "works", 0
        await super().rest(seconds)

    def check(self) -> None:
        super().check()
        self._the_store_is_that_of_the_api_server()
        assert not len(self.parts.waiting), "pods stay in flight"
        assert not self.parts.queue._wake_ups.promised
        assert not self.parts.slots.busy

    def _judge(self, preemptor: PodInfo, nomination: Nomination) -> None:
        if not preemptor.volumes:  # else cpu alone does not determine whether the node would hold it
            super()._judge(preemptor, nomination)

    def _the_store_is_that_of_the_api_server(self) -> None:
        store = self.parts.snapshot.store
        assert not store._assumed, store._assumed
        for kind in ("PersistentVolume", "PersistentVolumeClaim", "StorageClass", "PodDisruptionBudget"):
            stored = {obj.name: obj for obj in store._tables[kind].values()}
            assert stored == {name: _decoded(kind, obj) for name, obj in self.api.of_kind(kind).items()}


def _decoded(kind: str, obj: dict[str, Any] | None) -> Any:
    known: tuple[type[KubeObject], ...] = (PersistentVolume, PersistentVolumeClaim, StorageClass, PodDisruptionBudget)
    assert KINDS[kind] in known
    return None if obj is None else msgspec.convert(obj, KINDS[kind])


def _claims(pod: dict[str, Any]) -> list[str]:
    return [v["persistentVolumeClaim"]["claimName"] for v in pod["spec"].get("volumes", ())]


def _merged(old: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    new = dict(old)
    for key, value in patch.items():
        kept = new.get(key)
        new[key] = _merged(kept, value) if isinstance(value, dict) and isinstance(kept, dict) else value
    return new
