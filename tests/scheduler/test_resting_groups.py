"""A simulated cluster at rest, with gangs, holds and plans that are tried and undone.

No gang waits that would fit as a whole, its pods have the same place in the queue, and the ledger is that of a restart.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from carico.kube.objects import Pod
from carico.scheduler.plugins import registry
from harness.scheduler.example_plugins import EXAMPLES, GANG, SIZE
from harness.scheduler.resting import World, node

NODES = ("n0", "n1", "n2")
FAULTS = ("refused", "overloaded", "taken", "broken", "answer lost")
NAMES = st.integers(0, 9).map(lambda i: f"p{i}")
POD = st.tuples(
    st.just("pod"), NAMES, st.sampled_from(("", "g1", "g1", "g2")), st.sampled_from(("100m", "1", "2", "3")),
    st.sampled_from(("light", "heavy", "fat")),
)  # fmt: skip
OTHERS = st.one_of(
    st.tuples(st.just("delete"), NAMES),
    st.tuples(st.just("leave"), NAMES),
    st.tuples(st.just("node"), st.sampled_from(NODES), st.sampled_from(("2", "4"))),
    st.tuples(st.just("node gone"), st.sampled_from(NODES)),
    st.tuples(st.just("hold"), st.sampled_from(("h1", "h2")), st.sampled_from(NODES), st.sampled_from((5.0, 500.0))),
    st.tuples(st.just("release"), st.sampled_from(("h1", "h2"))),
    st.tuples(st.just("try"), st.sampled_from(NODES)),
    st.tuples(st.just("fault"), st.sampled_from(FAULTS)),
    st.tuples(st.just("report"), st.sampled_from(NODES)),
    st.tuples(st.just("deliver"), st.integers(1, 10)),
    st.tuples(st.just("kubelets")),
    st.tuples(st.just("second"), st.sampled_from((0.2, 1.0, 7.0))),
)
STEPS = st.sampled_from((POD, POD, st.tuples(st.just("schedule")), *[OTHERS] * 4)).flatmap(lambda steps: steps)


def plain(name: str, serial: int, gang: str, cpu: str, image: str) -> dict[str, Any]:
    labels = {GANG: gang, SIZE: "3" if gang == "g1" else "2"} if gang else {}
    container = {"name": "c", "image": image, "resources": {"requests": {"cpu": cpu}}}
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"{name}-{serial}", "labels": labels},
        "spec": {"schedulerName": "carico", "containers": [container]},
        "status": {"phase": "Pending"},
    }


async def take(world: World, step: tuple[Any, ...], serial: int) -> None:
    cluster, now = world.parts.cluster, world.clock.monotonic()
    match step:
        case "pod", name, gang, cpu, image:
            if name not in world.api.pods:
                world.api.change_pod(name, lambda _: plain(name, serial, gang, cpu, image))
        case "delete", name:
            world.api.delete(name)
        case "leave", name:
            if name in world.api.pods:
                world.api.change_pod(name, lambda pod: pod | {"metadata": pod["metadata"] | {"labels": {}}})
        case "node", name, cpu:
            world.api.set_node(name, node(name, cpu))
        case "node gone", name:
            world.api.set_node(name, None)
        case "hold", name, where, seconds:
            like = world.parts.snapshot.templates.info(_pod(serial))
            if where in world.parts.snapshot.rows.number:
                cluster.hold(name, where, like, seconds)
        case "release", name:
            cluster.release_hold(name)
        case "try", where:
            _try(world, where, serial, now)
        case "fault", fault:
            world.api.faults.append(fault)
        case "report", name:
            world.report(name)
        case "deliver", most:
            world.deliver(most)
        case ("kubelets",):
            world.kubelets()
        case ("schedule",):
            await world.schedule()
        case "second", seconds:
            cluster.tick()
            await world.clock.turn(seconds)


def _pod(serial: int) -> Any:
    return msgspec.convert(plain("tried", serial, "", "1", "light"), Pod)


def _try(world: World, where: str, serial: int, now: float) -> None:
    """A plan that is not committed: every pod on the node is somewhere else, and another one is there."""
    parts = world.parts
    row = parts.snapshot.rows.number.get(where)
    if row is None or row >= len(parts.snapshot) or not parts.snapshot.present[row]:
        return
    before, counts = parts.ledger.left.copy(), parts.queue.counts()
    with parts.cluster.trial() as trial:
        for uid in list(parts.snapshot.on[row]):
            trial.remove(uid)
        trial.place(parts.snapshot.templates.info(_pod(serial)), where)
    assert np.array_equal(parts.ledger.left, before)
    assert parts.queue.counts() == counts
    assert now == world.clock.monotonic()


async def drive(steps: list[tuple[Any, ...]], agents: tuple[str, ...]) -> None:
    async with World(profiles={"carico": {"enable": ["Gang"]}}) as world:
        world.with_room.update(agents)
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


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.BUILT_IN, "Gang", EXAMPLES["Gang"])


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(STEPS, min_size=20, max_size=60), st.sampled_from(((), NODES[:1], NODES)))
def test_a_world_at_rest_has_no_gang_that_waits_for_nothing(steps: list[tuple[Any, ...]], agents: Any) -> None:
    asyncio.run(drive(steps, agents))
