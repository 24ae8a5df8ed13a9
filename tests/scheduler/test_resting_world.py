"""A simulated cluster at rest: no pod that fits waits, none was evicted to no effect, and the ledger is consistent.

What decisions look like in a world that stands still is tested elsewhere. Here everything moves: pods, nodes, reports
and evictions come in any order, watches lag, bindings fail.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.scheduler.resting import COSTS, World, node

NODES = ("n0", "n1", "n2")
FAULTS = ("refused", "overloaded", "taken", "broken", "answer lost")

names = st.integers(0, 14).map(lambda i: f"p{i}")
IMAGES = st.sampled_from(sorted(COSTS))
FACTORS = st.sampled_from((0.5, 1.0, 1.0, 3.0))  # by which a class is measured wrongly
POD = st.tuples(
    st.just("pod"),
    names,
    st.sampled_from(("100m", "1", "2", "3")),
    st.sampled_from((0, 0, 10, 100)),
    st.sampled_from((None, None, "0.25", "2", "many")),
    st.sampled_from(("plain", "plain", "port", "apart", "spread", "only n0")),
    IMAGES,
)
SCHEDULE = st.tuples(st.just("schedule"))
OTHERS = st.one_of(
    st.tuples(st.just("node"), st.sampled_from(NODES), st.sampled_from(("2", "4", "4"))),
    st.tuples(st.just("node gone"), st.sampled_from(NODES)),
    st.tuples(st.just("cordon"), st.sampled_from(NODES), st.booleans()),
    st.tuples(st.just("delete"), names),
    st.tuples(st.just("end"), names),
    st.tuples(st.just("label"), names),
    st.tuples(st.just("units"), names, st.sampled_from(("0.5", "1", "3"))),
    st.tuples(st.just("stuck"), names),
    st.tuples(st.just("undecodable"), names, st.booleans()),
    st.tuples(st.just("foreign"), names, st.sampled_from(NODES), st.sampled_from(("100m", "2")), st.booleans()),
    st.tuples(st.just("fault"), st.sampled_from(FAULTS)),
    st.tuples(st.just("evictions fail"), st.integers(1, 4)),
    st.tuples(st.just("report"), st.sampled_from(NODES)),
    st.tuples(st.just("agent"), st.sampled_from(NODES), st.booleans()),
    st.tuples(st.just("measures"), IMAGES, FACTORS),
    st.tuples(st.just("aggregator"), IMAGES, st.one_of(st.none(), FACTORS)),
    st.tuples(st.just("deliver"), st.integers(1, 10)),
    st.tuples(st.just("kubelets")),
    st.tuples(st.just("second"), st.sampled_from((0.2, 1.0, 7.0))),
)
# `one_of` takes equal strategies for one: what is to come more often is drawn apart.
STEPS = st.sampled_from((POD, POD, POD, SCHEDULE, *[OTHERS] * 6)).flatmap(lambda steps: steps)

HOSTNAME = "kubernetes.io/hostname"
APP = {"matchLabels": {"app": "a"}}
SPECS: dict[str, dict[str, Any]] = {
    "plain": {},
    "port": {"port": 80},
    "apart": {
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": HOSTNAME, "labelSelector": APP}]
            }
        }
    },
    "spread": {
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": HOSTNAME, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": APP}
        ]
    },
    "only n0": {"nodeSelector": {HOSTNAME: "n0"}},
}


def plain_pod(
    name: str, serial: int, cpu: str, priority: int, units: str | None, sort: str, image: str
) -> dict[str, Any]:
    spec = dict(SPECS[sort])
    container: dict[str, Any] = {"name": "c", "image": image, "resources": {"requests": {"cpu": cpu}}}
    if port := spec.pop("port", None):
        container["ports"] = [{"hostPort": port, "containerPort": port}]
    notes = {} if units is None else {"carico.dev/units": units}
    labels = {"app": "a"} if sort in ("apart", "spread") else {}
    meta = {"name": name, "namespace": "default", "uid": f"{name}-{serial}", "labels": labels, "annotations": notes}
    return {
        "metadata": meta,
        "spec": {"schedulerName": "carico", "priority": priority, "containers": [container], **spec},
        "status": {"phase": "Pending"},
    }


async def take(world: World, step: tuple[Any, ...], serial: int) -> None:
    api = world.api
    match step:
        case "pod", name, *rest:
            if name not in api.pods:
                api.change_pod(name, lambda _: plain_pod(name, serial, *rest))
        case "node", name, cpu:
            api.set_node(name, node(name, cpu))
        case "node gone", name:
            api.set_node(name, None)
        case "cordon", name, shut:
            if name in api.nodes:
                cpu = api.nodes[name].status.allocatable["cpu"]
                api.set_node(name, node(name, cpu, unschedulable=True) if shut else node(name, cpu))
        case "delete", name:
            api.delete(name)
        case "end", name:
            if name in api.pods and api.pods[name]["spec"].get("nodeName"):
                api.change_pod(name, lambda _: None)
        case "label", name:
            if name in api.pods:
                api.change_pod(name, lambda p: p | {"metadata": p["metadata"] | {"labels": {"app": "a"}}})
        case "units", name, units:
            if name in api.pods and not api.pods[name]["spec"].get("nodeName"):
                notes = {"carico.dev/units": units}
                api.change_pod(name, lambda p: p | {"metadata": p["metadata"] | {"annotations": notes}})
        case "undecodable", name, yes:
            api.spoil(name, yes)
        case "foreign", name, there, cpu, yes:
            if name not in api.pods and there in api.nodes:
                api.undecodable.add(name) if yes else api.undecodable.discard(name)
                made = plain_pod(name, serial, cpu, 0, None, "plain", "light")
                made["spec"] |= {"nodeName": there, "schedulerName": "another"}
                api.change_pod(name, lambda _: made)
        case "stuck", name:
            world.stuck.add(name)
        case "fault", fault:
            api.faults.append(fault)
        case "evictions fail", times:
            api.evictions_fail += times
        case "report", name:
            world.report(name)
        case "agent", name, new:
            world.with_room.add(name) if new else world.with_room.discard(name)
        case "measures", image, factor:
            world.measures[image] = factor
        case "aggregator", image, factor:
            world.aggregate(image, factor)
        case "deliver", most:
            world.deliver(most)
        case ("kubelets",):
            world.kubelets()
        case ("schedule",):
            await world.schedule()
        case "second", seconds:
            world.parts.cluster.tick()
            await world.clock.turn(seconds)


async def drive(steps: list[tuple[Any, ...]], agents: str, **changes: Any) -> None:
    async with World(**changes) as world:
        world.with_room.update({"old": NODES[:0], "mixed": NODES[:1], "new": NODES}[agents])
        for name in NODES:
            world.api.set_node(name, node(name))
        world.deliver()
        for name in NODES:
            world.report(name)
        for serial, step in enumerate(steps):
            await take(world, step, serial)
        if not world.api.nodes:
            world.api.set_node(NODES[0], node(NODES[0]))
        await world.rest()
        world.check()
        for factor in (3.0, 0.4):  # pods that wait for what their class seems to cost fit at last; nothing else happens
            for image in COSTS:
                world.aggregate(image, factor)
            await world.rest(30)
            world.check()


WORLDS = (
    st.lists(STEPS, min_size=30, max_size=80),
    st.sampled_from(("filter", "requests", "ignore")),
    st.sampled_from((0.5, 1.0)),
    st.sampled_from(("old", "mixed", "new", "new")),
)


@settings(max_examples=100, suppress_health_check=list(HealthCheck))
@given(*WORLDS)
def test_a_world_at_rest_has_no_pod_that_waits_for_nothing(
    steps: list[tuple[Any, ...]], on_stale: str, threshold: float, agents: str
) -> None:
    asyncio.run(drive(steps, agents, on_stale=on_stale, threshold=threshold))


@pytest.mark.long
@pytest.mark.timeout(3600)
@settings(max_examples=2000, derandomize=False, suppress_health_check=list(HealthCheck))
@given(*WORLDS)
def test_many_other_worlds_at_rest(steps: list[tuple[Any, ...]], on_stale: str, threshold: float, agents: str) -> None:
    asyncio.run(drive(steps, agents, on_stale=on_stale, threshold=threshold))
