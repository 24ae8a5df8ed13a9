"""The resting world of test_resting_world.py with volumes, scheduling gates, budgets, zones and two profiles.

One profile has no Capacity. Claims wait for their first consumer; provisioners fail, hang, choose a node that cannot
use the volume, or bind a claim and unbind it before a watch delivers either.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.scheduler.resting import node
from harness.scheduler.resting_storage import HOSTNAME, ZONE, StorageWorld

NODES = ("n0", "n1", "n2")
FAULTS = ("refused", "overloaded", "taken", "broken", "answer lost")
PROFILES: dict[str, Any] = {"carico": {}, "plain": {"disable": ["Capacity"]}}
APP = {"matchLabels": {"app": "a"}}

names = st.integers(0, 9).map(lambda i: f"p{i}")
claims = st.sampled_from(("c0", "c1", "c2", "c3"))
CLASSES = st.sampled_from(("local", "dynamic", "dynamic", "zonal", "now"))
zones = st.sampled_from(("z0", "z1"))
POD = st.tuples(
    st.just("pod"),
    names,
    st.sampled_from(("100m", "2", "3")),
    st.sampled_from((0, 0, 10, 100)),
    st.lists(claims, max_size=2, unique=True).map(tuple),
    st.sampled_from(tuple(PROFILES)),
    st.sampled_from(("plain", "plain", "gated", "zones", "with", "apart")),
)
CLAIM = st.tuples(st.just("claim"), claims, CLASSES)
SCHEDULE = st.tuples(st.just("schedule"))
OTHERS = st.one_of(
    st.tuples(st.just("claim gone"), claims),
    st.tuples(st.just("volume"), st.integers(0, 2), st.sampled_from(NODES)),
    st.tuples(st.just("volume"), st.integers(3, 4), zones),
    st.tuples(st.just("volume gone"), st.integers(0, 4)),
    st.tuples(st.just("provisioner"), st.sampled_from(("works", "fails", "hangs", "goes wrong"))),
    st.tuples(st.just("volumes refuse"), st.integers(1, 3)),
    st.tuples(st.just("bind and unbind"), claims),
    st.tuples(st.just("unbind"), claims),
    st.tuples(st.just("class"), st.sampled_from(((), ("z0",), ("z1",)))),
    st.tuples(st.just("class gone"), st.sampled_from(("local", "dynamic"))),
    st.tuples(st.just("class back"), st.sampled_from(("local", "dynamic"))),
    st.tuples(st.just("budget"), st.integers(0, 2)),
    st.tuples(st.just("ungate"), names),
    st.tuples(st.just("label"), names),
    st.tuples(st.just("node"), st.sampled_from(NODES), st.sampled_from(("2", "4")), zones),
    st.tuples(st.just("node gone"), st.sampled_from(NODES)),
    st.tuples(st.just("delete"), names),
    st.tuples(st.just("end"), names),
    st.tuples(st.just("fault"), st.sampled_from(FAULTS)),
    st.tuples(st.just("slow"), st.sampled_from((0.0, 0.0, 3.0))),
    st.tuples(st.just("evictions fail"), st.integers(1, 3)),
    st.tuples(st.just("report"), st.sampled_from(NODES)),
    st.tuples(st.just("deliver"), st.integers(1, 10)),
    st.tuples(st.just("kubelets")),
    st.tuples(st.just("wall clock"), st.sampled_from((-7200.0, 7200.0))),
    st.tuples(st.just("second"), st.sampled_from((0.2, 1.0, 7.0, 40.0))),
)
# `one_of` takes equal strategies for one: what is to come more often is drawn apart.
STEPS = st.sampled_from((POD, POD, POD, CLAIM, SCHEDULE, SCHEDULE, *[OTHERS] * 6)).flatmap(lambda steps: steps)

WITH = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": ZONE, "labelSelector": APP}]}
SPREAD = [{"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": APP}]
SPECS: dict[str, dict[str, Any]] = {
    "plain": {},
    "gated": {"schedulingGates": [{"name": "example.com/gate"}]},
    "zones": {"topologySpreadConstraints": SPREAD},
    # It evicts no pod: a pod that arrives elsewhere in the zone can make its eviction of a companion possible, and as
    # in kube-scheduler no event wakes it for that.
    "with": {"affinity": {"podAffinity": WITH}, "preemptionPolicy": "Never"},
    "apart": {"affinity": {"podAntiAffinity": WITH}},
}


def plain_pod(
    name: str, serial: int, cpu: str, priority: int, used: tuple[str, ...], profile: str, sort: str
) -> dict[str, Any]:
    volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in used]
    labels = {"app": "a"} if sort in ("zones", "with", "apart") else {}
    spec = {
        "schedulerName": profile,
        "priority": priority,
        "containers": [{"name": "c", "image": "light", "resources": {"requests": {"cpu": cpu}}}],
        "volumes": volumes,
    }
    meta = {"name": name, "namespace": "default", "uid": f"{name}-{serial}", "labels": labels, "annotations": {}}
    return {"metadata": meta, "spec": spec | SPECS[sort], "status": {"phase": "Pending"}}


def without_gates(pod: dict[str, Any]) -> dict[str, Any]:
    return pod | {"spec": {key: value for key, value in pod["spec"].items() if key != "schedulingGates"}}


async def take(world: StorageWorld, step: tuple[Any, ...], serial: int) -> None:
    api = world.api
    match step:
        case "pod", name, *rest:
            if name not in api.pods:
                api.change_pod(name, lambda _: plain_pod(name, serial, *rest))
        case "claim", name, storage_class:
            api.make_claim(name, serial, storage_class)
        case "claim gone", name:
            api.delete_claim(name)
        case "volume", number, place:
            api.make_volume(f"v{number}", serial, "local", HOSTNAME if place in NODES else ZONE, place)
        case "volume gone", number:
            volume = api.things.get(("PersistentVolume", f"v{number}"))
            if volume is not None and not volume["spec"].get("claimRef"):
                api.put("PersistentVolume", f"v{number}", None)
        case "provisioner", how:
            api.provisioner = how
        case "volumes refuse", times:
            api.volumes_refuse += times
        case "bind and unbind", name:
            api.controllers()
            api.unbind_claim(name)
        case "unbind", name:
            api.unbind_claim(name)
        case "class", allowed:
            api.make_class("zonal", allowed)
        case "class gone", name:
            api.put("StorageClass", name, None)
        case "class back", name:
            api.make_class(name)
        case "budget", allowed:
            api.make_budget(allowed)
        case "ungate", name:
            if name in api.pods:
                api.change_pod(name, without_gates)
        case "label", name:
            if name in api.pods:
                api.change_pod(name, lambda p: p | {"metadata": p["metadata"] | {"labels": {"app": "a"}}})
        case "node", name, cpu, zone:
            api.set_node(name, node(name, cpu, labels={ZONE: zone}))
        case "node gone", name:
            api.set_node(name, None)
        case "nominated node gone", name:
            api.set_node(world.parts.snapshot.nominated[api.pods[name]["metadata"]["uid"]].node, None)
        case "delete", name:
            api.delete(name)
        case "end", name:
            if name in api.pods and api.pods[name]["spec"].get("nodeName"):
                api.change_pod(name, lambda _: None)
        case "fault", fault:
            api.faults.append(fault)
        case "slow", seconds:
            api.slow_patches = seconds
        case "evictions fail", times:
            api.evictions_fail += times
        case "report", name:
            world.report(name)
        case "deliver", most:
            world.deliver(most)
        case ("kubelets",):
            world.kubelets()
        case ("schedule",):
            await world.schedule()
        case "wall clock", seconds:
            world.clock.step_wall(seconds)
        case "second", seconds:
            world.parts.cluster.tick()
            await world.clock.turn(seconds)


async def drive(steps: list[tuple[Any, ...]], **changes: Any) -> None:
    async with StorageWorld(profiles=PROFILES, **changes) as world:
        for number, name in enumerate(NODES):
            world.api.set_node(name, node(name, labels={ZONE: f"z{number % 2}"}))
        world.deliver()
        for name in NODES:
            world.report(name)
        for serial, step in enumerate(steps):
            await take(world, step, serial)
        world.api.slow_patches = 0.0
        if not world.api.nodes:
            world.api.set_node(NODES[0], node(NODES[0]))
        await world.rest()
        world.check()


WORLDS = (st.lists(STEPS, min_size=30, max_size=80), st.sampled_from(("filter", "requests", "ignore")))


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(*WORLDS)
def test_a_world_with_volumes_at_rest(steps: list[tuple[Any, ...]], on_stale: str) -> None:
    asyncio.run(drive(steps, on_stale=on_stale))


@pytest.mark.long
@pytest.mark.timeout(3600)
@settings(max_examples=1500, derandomize=False, suppress_health_check=list(HealthCheck))
@given(*WORLDS)
def test_many_other_worlds_with_volumes_at_rest(steps: list[tuple[Any, ...]], on_stale: str) -> None:
    asyncio.run(drive(steps, on_stale=on_stale))


def test_a_volume_that_was_assumed_for_a_pod_that_is_gone_serves_the_next_one() -> None:
    """The first pod is deleted while its choice is being written, and the API server rejects the write."""
    steps: list[tuple[Any, ...]] = [
        ("volume", 0, "n0"),
        ("claim", "c0", "local"),
        ("claim", "c1", "local"),
        ("slow", 3.0),
        ("volumes refuse", 1),
        ("pod", "p0", "100m", 10, ("c0",), "carico", "plain"),
        ("pod", "p1", "100m", 0, ("c1",), "carico", "plain"),
        ("deliver", 10),
        ("schedule",),
        ("delete", "p0"),
        ("deliver", 10),
        ("second", 7.0),
    ]
    asyncio.run(drive(steps, on_stale="filter"))


def test_a_pod_evicts_others_that_took_a_part_of_the_room_it_waited_for() -> None:
    """The node is full with pods that it may not evict; a small one of lower priority comes, then one of those ends."""
    steps: list[tuple[Any, ...]] = [
        ("node gone", "n1"),
        ("node gone", "n2"),
        ("pod", "p0", "3", 100, (), "carico", "plain"),
        ("deliver", 10),
        ("schedule",),
        ("pod", "p1", "4", 100, (), "carico", "plain"),
        ("pod", "p2", "100m", 0, (), "carico", "plain"),
        ("deliver", 10),
        ("schedule",),
        ("end", "p0"),
    ]
    asyncio.run(drive(steps, on_stale="requests"))


def test_a_pod_whose_nominated_node_is_deleted_evicts_others_elsewhere() -> None:
    steps: list[tuple[Any, ...]] = [
        ("node gone", "n2"),
        ("pod", "p0", "3", 0, (), "carico", "plain"),
        ("pod", "p1", "3", 0, (), "carico", "plain"),
        ("deliver", 10),
        ("schedule",),
        ("deliver", 10),
        ("pod", "p2", "3", 10, (), "carico", "plain"),
        ("deliver", 10),
        ("schedule",),
        ("second", 1.0),
        ("schedule",),
        ("nominated node gone", "p2"),
    ]
    asyncio.run(drive(steps, on_stale="requests"))


def test_a_pod_whose_binding_was_rejected_says_so_in_its_condition() -> None:
    async def scenario() -> None:
        async with StorageWorld(profiles=PROFILES) as world:
            world.api.set_node("n0", node("n0"))
            world.deliver()
            world.report("n0")
            world.api.faults.append("refused")
            world.api.change_pod("p", lambda _: plain_pod("p", 1, "1", 0, (), "carico", "plain"))
            world.deliver()
            await world.schedule()
            await world.clock.turn(0.5)
            (said,) = world.api.pods["p"]["status"]["conditions"]
            assert (said["type"], said["status"], said["reason"]) == ("PodScheduled", "False", "SchedulerError")
            assert "a webhook says no" in said["message"]

    asyncio.run(scenario())
