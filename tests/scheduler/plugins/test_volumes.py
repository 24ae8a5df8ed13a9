"""Claims on their way: which nodes serve them, what is assumed, what is written, and when a pod may be bound."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from carico.kube.meta import KubeObject
from carico.kube.objects import Pod
from carico.kube.storage import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from carico.scheduler.cache.template import PodInfo
from carico.scheduler.framework.contract import OK, Code, Cycle, Status
from carico.scheduler.framework.in_flight import WaitingPods
from carico.scheduler.plugins.volume.volume_binding import VolumeBinding
from carico.testing import ManualClock, make_node, make_pod
from harness.scheduler.worlds import World

NODES = [make_node("a", labels={"zone": "1"}), make_node("b", labels={"zone": "2"})]


def storage_class(provisioner: str = "kubernetes.io/no-provisioner", **more: Any) -> StorageClass:
    plain = {"metadata": {"name": "c"}, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer", **more}
    return msgspec.convert(plain, StorageClass)


def claim(name: str = "data", size: str = "1Gi", bound: str = "", **meta: Any) -> PersistentVolumeClaim:
    notes = {"pv.kubernetes.io/bind-completed": "yes"} if bound else {}
    spec: dict[str, Any] = {
        "storageClassName": "c",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": size}},
        "volumeName": bound,
    }
    known = {"name": name, "namespace": "default", "uid": name, "resourceVersion": "7", "annotations": notes}
    plain = {"metadata": known | meta, "spec": spec, "status": {"phase": "Bound" if bound else "Pending"}}
    return msgspec.convert(plain, PersistentVolumeClaim)


def volume(name: str, zone: str = "", size: str = "1Gi", labels: Any = None, **spec: Any) -> PersistentVolume:
    known: dict[str, Any] = {
        "capacity": {"storage": size},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "c",
    }
    if zone:
        expression = {"key": "zone", "operator": "In", "values": [zone]}
        known["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
    meta = {"name": name, "resourceVersion": "3", "labels": labels or {}}
    return msgspec.convert({"metadata": meta, "spec": known | spec, "status": {"phase": "Available"}}, PersistentVolume)


def user(*claims: str, name: str = "p", **more: Any) -> Pod:
    volumes = [{"name": c, "persistentVolumeClaim": {"claimName": c}} for c in claims]
    return make_pod(name, spec={"volumes": volumes}, **more)


def test_a_cluster_without_nodes() -> None:
    found = World([], things=[storage_class(), claim()]).judge(user("data"))
    assert found.message() == "0/0 nodes are available."


def test_a_bound_volume_must_be_reachable() -> None:
    world = World(NODES, things=[storage_class(), claim(bound="v"), volume("v", zone="2")])
    assert world.feasible(user("data")) == {"b"}


def test_zones_by_label_old_and_new() -> None:
    nodes = [make_node(z, labels={"topology.kubernetes.io/zone": z}) for z in "xyz"]
    old = volume("v", labels={"failure-domain.beta.kubernetes.io/zone": "x__y"})
    assert World([*nodes, make_node("n")], things=[claim(bound="v"), old]).feasible(user("data")) == {"x", "y", "n"}


def test_a_claim_waits_for_a_node_with_a_volume() -> None:
    things = [storage_class(), claim(size="2Gi"), volume("small", zone="1"), volume("large", zone="2", size="3Gi")]
    assert World(NODES, things=things).feasible(user("data")) == {"b"}


def test_a_volume_whose_size_cannot_be_read_does_not_hide_the_others() -> None:
    things = [storage_class(), claim(), volume("bad", "east", size="plenty"), volume("good", "west")]
    world = World([make_node("e", labels={"zone": "east"}), make_node("w", labels={"zone": "west"})], things=things)
    assert world.feasible(user("data")) == {"w"}


def test_two_claims_do_not_get_the_same_volume() -> None:
    things = [storage_class(), claim("one"), claim("two", "2Gi"), volume("v", size="3Gi")]
    assert World(NODES, things=things).feasible(user("one")) == {"a", "b"}
    assert World(NODES, things=things).feasible(user("one", "two")) == set()
    assert World(NODES, things=[*things, volume("w", zone="1", size="4Gi")]).feasible(user("one", "two")) == {"a"}


def test_provisioning_only_where_the_class_allows() -> None:
    topology = [{"matchLabelExpressions": [{"key": "zone", "values": ["1"]}]}]
    dynamic = storage_class("disk.example.com", allowedTopologies=topology)
    assert World(NODES, things=[dynamic, claim()]).feasible(user("data")) == {"a"}


@pytest.mark.parametrize(
    ("things", "words"),
    [
        ([], 'persistentvolumeclaim "data" not found'),
        ([claim()], "unbound immediate PersistentVolumeClaims"),
        ([claim(bound="v", deletionTimestamp="2026-01-01T00:00:00Z"), volume("v")], "is being deleted"),
    ],
)
def test_the_reason_names_the_problem(things: list[KubeObject], words: str) -> None:
    found = World(NODES, things=things).judge(user("data"))
    assert words in found.message()
    assert found.status.code is Code.UNRESOLVABLE


def test_attach_limits_count_volumes_once() -> None:
    limits = {"metadata": {"name": "a"}, "spec": {"drivers": [{"name": "d", "allocatable": {"count": 1}}]}}
    csi: dict[str, Any] = {"csi": {"driver": "d", "volumeHandle": "h"}}
    things = [
        msgspec.convert(limits, CSINode),
        claim("one", bound="v"),
        claim("two", bound="w"),
        volume("v", **csi),
        volume("w", csi={"driver": "d", "volumeHandle": "other"}),
    ]
    world = World(NODES, [user("one", name="r", node="")], things)
    world.add(msgspec.structs.replace(user("one", name="s"), spec=_on("a", user("one", name="s"))))
    assert world.feasible(user("two")) == {"b"}
    assert world.feasible(user("one", name="t")) == {"a", "b"}  # the same volume again takes no more room


def _on(node: str, pod: Pod) -> Any:
    return msgspec.structs.replace(pod.spec, node_name=node)


class Api:
    """Records the requests to the API server."""

    def __init__(self) -> None:
        self.patches: list[tuple[str, Any]] = []

    async def call(self, method: str, path: str, body: bytes = b"", content_type: str = "") -> bytes:
        assert (method, content_type) == ("PATCH", "application/merge-patch+json")
        self.patches.append((path, json.loads(body)))
        return b"{}"


def placed(world: World, pod: Pod, node: str) -> tuple[VolumeBinding, Cycle, Api, ManualClock]:
    api, clock = Api(), ManualClock()
    waiting = WaitingPods(clock)
    plugin, cycle = VolumeBinding(api, clock, waiting), Cycle(PodInfo(pod), world.snapshot)
    waiting.enter(cycle.pod, node)
    assert plugin.pre_filter(cycle) == OK
    assert plugin.reserve(cycle, node) == OK
    return plugin, cycle, api, clock


async def pre_bind(plugin: VolumeBinding, cycle: Cycle, node: str, clock: ManualClock, happen: Any) -> Status:
    task = asyncio.create_task(plugin.pre_bind(cycle, node))
    await clock.turn(0.05)
    assert not task.done()
    happen()
    await clock.turn(1)
    return await task


def test_a_volume_is_claimed_and_the_pod_waits_for_the_controller() -> None:
    world = World(NODES, things=[storage_class(), claim(), claim("rival"), volume("v", zone="1")])
    plugin, cycle, api, clock = placed(world, user("data"), "a")
    # assumed: no other pod gets it
    assert world.feasible(user("rival", name="q")) == set()

    def controller() -> None:
        world.snapshot.put(claim(bound="v", resourceVersion="8"))

    assert asyncio.run(pre_bind(plugin, cycle, "a", clock, controller)) == OK
    ((path, body),) = api.patches
    assert path == "/api/v1/persistentvolumes/v"
    assert body["spec"]["claimRef"]["uid"] == "data"
    assert body["metadata"] == {"annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}, "resourceVersion": "3"}


def test_taking_it_back_frees_the_volume() -> None:
    world = World(NODES, things=[storage_class(), claim(), claim("rival"), volume("v", zone="1")])
    plugin, cycle, _, _ = placed(world, user("data"), "a")
    plugin.unreserve(cycle, "a")
    plugin.unreserve(cycle, "a")
    assert world.feasible(user("rival", name="q")) == {"a"}


def test_taking_it_back_leaves_what_another_pod_assumed_of_the_same_claim() -> None:
    world = World(NODES, things=[storage_class("disk.example.com"), claim()])
    first, first_cycle, _, _ = placed(world, user("data"), "a")
    second, second_cycle, _, _ = placed(world, user("data", name="q"), "a")
    first.unreserve(first_cycle, "a")
    assert world.feasible(user("data", name="r")) == {"a"}  # the node that the second one chose
    second.unreserve(second_cycle, "a")
    assert world.feasible(user("data", name="r")) == {"a", "b"}


def test_an_older_watch_event_does_not_undo_an_assumption() -> None:
    world = World(NODES, things=[storage_class(), claim(), claim("rival"), volume("v")])
    placed(world, user("data"), "a")
    world.snapshot.put(volume("v"))
    assert world.feasible(user("rival", name="q")) == set()


def test_a_provisioner_gets_the_node_and_may_fail() -> None:
    world = World(NODES, things=[storage_class("disk.example.com"), claim()])
    plugin, cycle, api, clock = placed(world, user("data"), "b")

    def gives_up() -> None:
        world.snapshot.put(claim(resourceVersion="9"))

    failed = asyncio.run(pre_bind(plugin, cycle, "b", clock, gives_up))
    assert failed.code is Code.ERROR
    assert "provisioning of default/data failed" in failed.message
    ((path, body),) = api.patches
    assert path == "/api/v1/namespaces/default/persistentvolumeclaims/data"
    assert body["metadata"]["annotations"] == {"volume.kubernetes.io/selected-node": "b"}


def test_patience_ends() -> None:
    world = World(NODES, things=[storage_class("disk.example.com"), claim()])
    plugin, cycle, _, clock = placed(world, user("data"), "b")

    async def wait() -> Status:
        task = asyncio.create_task(plugin.pre_bind(cycle, "b"))
        await clock.turn(601)
        return await task

    assert "not bound after 600 s" in asyncio.run(wait()).message
