"""A preemption lasts as long as its victims take to end: meanwhile no other pod is evicted for the same pod."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from harness.scheduler.resting import COSTS, World, node


def pod(name: str, cpu: str, priority: int = 0, on: str = "", image: str = "light", **meta: Any) -> dict[str, Any]:
    container = {"name": "c", "image": image, "resources": {"requests": {"cpu": cpu}}}
    spec = {"schedulerName": "carico", "priority": priority, "containers": [container]}
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", **meta},
        "spec": spec | ({"nodeName": on} if on else {}),
        "status": {"phase": "Running" if on else "Pending"},
    }


def create(world: World, made: dict[str, Any]) -> None:
    world.api.change_pod(made["metadata"]["name"], lambda _: made)


@asynccontextmanager
async def full_nodes(count: int) -> AsyncIterator[World]:
    """Nodes of four cores, each with four pods of one core."""
    async with World(on_stale="requests") as world:
        for i in range(count):
            world.api.set_node(f"n{i}", node(f"n{i}", "4"))
            for j in range(4):
                create(world, pod(f"low-{i}-{j}", "1", on=f"n{i}"))
        world.deliver()
        yield world


async def second(world: World, step: int) -> None:
    """Somewhere an unrelated pod comes and ends; everything else takes its course."""
    create(world, pod(f"other-{step}", "0", on="n0"))
    world.api.change_pod(f"other-{step}", lambda _: None)
    world.deliver()
    world.kubelets()
    world.deliver()
    await world.schedule()
    await world.clock.turn(1.0)


@pytest.mark.parametrize("slow", [0.0, 8.0])
def test_no_more_victims_than_the_first_nomination_has(slow: float) -> None:
    async def story() -> None:
        async with full_nodes(6) as world:
            world.api.slow_patches = slow
            create(world, pod("high", "2", priority=1000))
            for step in range(30):
                await second(world, step)
            assert len(world.api.deleted) == 2
            assert len({name.split("-")[1] for name in world.api.deleted}) == 1, "both on one node"
            assert world.api.pods["high"]["spec"].get("nodeName")

    asyncio.run(story())


def ghost(world: World, on: str, cpu: str) -> None:
    """A pod of another scheduler is bound there, and its events cannot be decoded."""
    world.api.undecodable.add("ghost")
    create(world, pod("ghost", cpu, on=on))


@pytest.mark.parametrize("after", [0, 10, 40])
def test_a_node_that_a_pod_of_unknown_content_closes_stays_nominated(after: int) -> None:
    """While its victims end, or when they have ended: the room is there, and killing others makes no more of it."""

    async def story() -> None:
        async with full_nodes(6) as world:
            create(world, pod("high", "2", priority=1000))
            world.deliver()
            await world.schedule()
            there = world.parts.snapshot.nominated["uid-high"].node
            ghost(world, there, "0")
            for step in range(after):
                await second(world, step)
            if not after:
                world.parts.queue.activate("uid-high", world.clock.monotonic())
                await world.schedule()
            assert world.parts.snapshot.nominated["uid-high"].node == there
            world.api.spoil("ghost", False)
            for step in range(20):
                await second(world, 100 + step)
            assert world.api.pods["high"]["spec"].get("nodeName") == there
            assert len(world.api.deleted) == 2
            counted = world.parts.registry.get_sample_value("carico_evictions_total", {"reason": "preemption"})
            assert counted == 2

    asyncio.run(story())


def test_it_preempts_again_at_once_when_that_pod_turns_out_to_take_the_room() -> None:
    async def story() -> None:
        async with full_nodes(1) as world:
            create(world, pod("high", "2", priority=1000))
            world.deliver()
            await world.schedule()
            ghost(world, "n0", "2")
            for step in range(20):
                await second(world, step)
            assert len(world.api.deleted) == 2
            world.api.spoil("ghost", False)
            for step in range(20):
                await second(world, 100 + step)
            assert world.api.pods["high"]["spec"].get("nodeName") == "n0"

    asyncio.run(story())


def test_a_pod_that_could_preempt_only_there_does_so_when_the_node_opens() -> None:
    async def story() -> None:
        async with full_nodes(1) as world:
            ghost(world, "n0", "0")
            create(world, pod("high", "2", priority=1000))
            for step in range(5):
                await second(world, step)
            assert not world.api.deleted
            world.api.spoil("ghost", False)
            for step in range(20):
                await second(world, 100 + step)
            assert world.api.pods["high"]["spec"].get("nodeName") == "n0"
            assert len(world.api.deleted) == 2

    asyncio.run(story())


def test_a_label_that_comes_before_the_patch_does_not_end_the_nomination() -> None:
    async def story() -> None:
        async with full_nodes(2) as world:
            world.api.slow_patches = 3.0
            create(world, pod("high", "2", priority=1000))
            world.deliver()
            await world.schedule()
            labels = {"touched": "1"}
            world.api.change_pod("high", lambda p: p | {"metadata": p["metadata"] | {"labels": labels}})
            world.deliver()
            assert list(world.parts.snapshot.nominated) == ["uid-high"]
            for step in range(20):
                await second(world, step)
            assert len(world.api.deleted) == 2

    asyncio.run(story())


def test_the_preemptor_is_not_tried_while_its_evictions_are_under_way() -> None:
    async def story() -> None:
        async with full_nodes(1) as world:
            world.api.slow_patches = 5.0
            create(world, pod("high", "2", priority=1000))
            world.deliver()
            assert await world.schedule() == 1
            queued = world.parts.queue.get("uid-high")
            assert queued is not None
            assert queued.place == "held"
            world.api.set_node("n9", node("n9", "1"))  # whatever happens
            world.deliver()
            assert await world.schedule() == 0
            await world.clock.turn(20)
            assert queued.place != "held"

    asyncio.run(story())


def test_an_eviction_that_meets_a_busy_api_server_is_sent_again() -> None:
    async def story() -> None:
        async with full_nodes(1) as world:
            world.api.evictions_fail = 5
            create(world, pod("high", "2", priority=1000))
            for step in range(40):
                await second(world, step)
            assert world.api.pods["high"]["spec"].get("nodeName") == "n0"
            assert len(world.api.deleted) == 2

    asyncio.run(story())


def test_evictions_that_fail_for_a_minute_do_not_keep_the_pod_from_another_node() -> None:
    async def story() -> None:
        async with full_nodes(1) as world:
            world.api.evictions_fail = 10**6
            create(world, pod("high", "2", priority=1000))
            for step in range(10):
                await second(world, step)
            queued = world.parts.queue.get("uid-high")
            assert queued is not None
            assert queued.place == "held"
            world.api.set_node("n9", node("n9", "4"))
            for step in range(10, 80):
                await second(world, step)
            assert world.api.pods["high"]["spec"].get("nodeName") == "n9"
            assert not world.api.deleted

    asyncio.run(story())


def test_an_eviction_that_is_refused_for_good_ends_the_nomination() -> None:
    async def story() -> None:
        async with full_nodes(1) as world:
            world.api.evictions_refused = True
            create(world, pod("high", "2", priority=1000))
            world.deliver()
            await world.schedule()
            await world.clock.turn(0.5)
            assert not world.parts.snapshot.nominated
            assert world.parts.queue.counts()["held"] == 0
            world.api.evictions_refused = False
            for step in range(40):
                await second(world, step)
            assert world.api.pods["high"]["spec"].get("nodeName") == "n0"

    asyncio.run(story())


def test_refused_evictions_are_not_followed_by_others_at_once() -> None:
    """One attempt for each back-off: of 1, 2, 4, 8 and then 10 s."""

    async def story() -> None:
        async with full_nodes(4) as world:
            world.api.evictions_refused = True
            create(world, pod("high", "2", priority=1000))
            for step in range(35):
                await second(world, step)
                await world.schedule()
            queued = world.parts.queue.get("uid-high")
            assert queued is not None
            assert 4 <= queued.attempts <= 7
            world.api.evictions_refused = False
            for step in range(35, 60):
                await second(world, step)
            assert world.api.pods["high"]["spec"].get("nodeName")

    asyncio.run(story())


def test_a_pod_of_higher_priority_takes_the_node_over_and_the_other_one_loses_its_nomination() -> None:
    async def story() -> None:
        async with full_nodes(1) as world:
            create(world, pod("high", "4", priority=10))
            world.deliver()
            await world.schedule()
            create(world, pod("higher", "4", priority=1000))
            world.deliver()
            await world.schedule()
            await world.clock.turn(1)
            assert list(world.parts.snapshot.nominated) == ["uid-higher"]
            world.deliver()
            assert world.api.pods["high"]["status"].get("nominatedNodeName", "") == ""
            for step in range(30):
                await second(world, step)
            assert world.api.pods["higher"]["spec"].get("nodeName") == "n0"
            assert len(world.api.deleted) == 4

    asyncio.run(story())


def test_a_pod_whose_nominated_node_is_deleted_is_tried_at_once() -> None:
    async def story() -> None:
        async with full_nodes(2) as world:
            create(world, pod("high", "2", priority=1000))
            for step in range(3):
                await second(world, step)
            queued = world.parts.queue.get("uid-high")
            assert queued is not None
            assert queued.place == "waiting"
            world.api.set_node(world.parts.snapshot.nominated["uid-high"].node, None)
            world.deliver()
            assert queued.place in ("active", "backoff")

    asyncio.run(story())


async def nominated_by_room(world: World) -> str:
    """Two full nodes whose agents report room; returns the one that is nominated for a pod of higher priority."""
    names = ("n0", "n1")
    world.with_room.update(names)
    for name in names:
        world.api.set_node(name, node(name, "4"))
        for j in range(4):
            create(world, pod(f"low-{name}-{j}", "1", on=name))
    for image in COSTS:
        world.aggregate(image, 1.0)
    world.deliver()
    for name in names:
        world.report(name)
    create(world, pod("high", "2", priority=1000))
    world.deliver()
    await world.schedule()
    return world.parts.snapshot.nominated["uid-high"].node


def test_a_node_that_does_not_hold_it_after_all_is_given_up_when_reports_show_it() -> None:
    """Another scheduler's pod uses memory without requesting it; by requests the node would hold the preemptor."""

    async def story() -> None:
        async with World() as world:
            first = await nominated_by_room(world)
            create(world, pod("intruder", "0", priority=2000, on=first, image="fat"))
            await world.rest(60)
            assert world.api.pods["high"]["spec"].get("nodeName") not in (None, first)
            assert len(world.api.deleted) == 4

    asyncio.run(story())


def test_a_node_whose_agent_falls_silent_stays_nominated() -> None:
    """That a report is missing shows nothing: it is no reason to evict pods elsewhere."""

    async def story() -> None:
        async with World() as world:
            first = await nominated_by_room(world)
            (other,) = {"n0", "n1"} - {first}
            world.parts.ledger.mark_disconnected(first)
            world.parts.cluster.capacity_changed()
            for step in range(60):
                world.report(other)
                world.parts.cluster.tick()
                await second(world, step)
            assert len(world.api.deleted) == 2
            assert world.parts.snapshot.nominated["uid-high"].node == first
            await world.rest(10)
            assert world.api.pods["high"]["spec"].get("nodeName") == first
            assert len(world.api.deleted) == 2

    asyncio.run(story())
