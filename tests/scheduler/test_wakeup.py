"""Which nodes are annotated for pods that kube-scheduler could not place, and how often."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np

from carico.scheduler.extender.wakeup import ANNOTATION, FORGET, MOST, ExtenderWakeup
from harness.kube.scripted import Desk, bad, good, one_after_the_other


class Stage(Desk):
    def __init__(self) -> None:
        super().__init__()
        self.wakeup = ExtenderWakeup(self.client, self.writer, self.clock)

    def free(self, node: str, pods: float) -> None:
        self.wakeup.changed(node, None if pods == -math.inf else np.array([pods]))

    def refused(self, uid: str, need: float) -> None:
        self.wakeup.refused(uid, lambda: np.array([need]))

    def annotated(self) -> list[str]:
        """Nodes since the last look."""
        sent, self.api.sent = self.api.sent, []
        assert all(ANNOTATION in one.body["metadata"]["annotations"] for one in sent)
        return [one.path.rpartition("/")[2] for one in sent]


def play(scenario: Callable[[Stage], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        stage = Stage()
        async with stage.at_work(stage.wakeup.run()):
            await scenario(stage)

    asyncio.run(whole())


def test_a_node_is_annotated_once_for_what_it_has() -> None:
    async def scenario(stage: Stage) -> None:
        stage.free("a", 0.5)
        stage.free("other", 9.0)  # it rejected the pod for another reason than capacity
        stage.refused("p", 2.0)
        for free in (1.0, 1.9, 2.1):
            stage.free("a", free)
            await stage.clock.turn(5)
        assert stage.annotated() == ["a"]
        stage.refused("p", 2.0)  # again
        for free in (2.3, 2.0, 7.0):
            stage.free("a", free)
            stage.free("other", 9.0 + free)
            await stage.clock.turn(5)
        assert stage.annotated() == []
        for free in (1.0, 2.0):
            stage.free("a", free)
        await stage.clock.turn(5)
        assert stage.annotated() == ["a"], "it fell and rose between two rounds"
        stage.refused("larger", 4.0)
        stage.free("a", 4.0)
        await stage.clock.turn(5)
        assert stage.annotated() == ["a"]

    play(scenario)


def test_a_node_that_rises_while_no_pod_waits_is_left_alone() -> None:
    async def scenario(stage: Stage) -> None:
        stage.free("a", 5.0)
        stage.refused("p", 2.0)
        stage.wakeup.placed("p")
        stage.free("a", 0.0)
        stage.free("a", 5.0)
        stage.refused("q", 2.0)
        stage.free("a", 5.5)
        await stage.clock.turn(5)
        assert stage.annotated() == []
        await stage.clock.turn(FORGET)
        stage.free("a", 0.0)
        stage.free("a", 5.0)
        await stage.clock.turn(5)
        assert stage.annotated() == [], "a pod that was rejected so long ago no longer waits"

    play(scenario)


def test_pods_that_are_refused_while_no_node_reports_are_forgotten() -> None:
    async def scenario(stage: Stage) -> None:
        for i in range(50):
            stage.refused(f"p{i}", 2.0)
            await stage.clock.turn(FORGET / 10)
        assert len(stage.wakeup._refused) <= 11
        stage.free("a", 5.0)
        await stage.clock.turn(5)
        assert stage.annotated() == ["a"]

    play(scenario)


def test_a_node_that_reports_again_is_annotated_again() -> None:
    async def scenario(stage: Stage) -> None:
        stage.refused("p", 2.0)
        stage.free("a", 5.0)
        await stage.clock.turn(5)
        stage.free("a", -math.inf)
        stage.free("a", 5.0)
        await stage.clock.turn(5)
        assert stage.annotated() == ["a", "a"]
        stage.free("a", -math.inf)
        assert not stage.wakeup._has
        assert not stage.wakeup._low

    play(scenario)


def test_so_many_nodes_a_second_and_none_forgotten() -> None:
    async def scenario(stage: Stage) -> None:
        stage.refused("p", 1.0)
        for i in range(25):
            stage.free(f"n{i}", 1.0)
        await stage.clock.turn(0.5)
        assert len(stage.annotated()) == MOST
        await stage.clock.turn(1.0)
        assert len(stage.annotated()) == MOST
        await stage.clock.turn(1.0)
        assert len(stage.annotated()) == 5

    play(scenario)


def test_an_annotation_that_fails_is_tried_again_by_any_replica() -> None:
    async def scenario(stage: Stage) -> None:
        stage.leads = False
        stage.api.answer = one_after_the_other(bad(429, 3.0), bad(500), good)
        stage.refused("p", 1.0)
        stage.free("a", 1.0)
        await stage.clock.turn(10)
        assert stage.annotated() == ["a", "a", "a"]
        stage.api.answer = bad(500)
        stage.free("a", 0.0)
        stage.free("a", 1.0)
        await stage.clock.turn(5)
        assert stage.annotated()
        stage.wakeup.placed("p")
        await stage.clock.turn(60)
        assert stage.annotated() == [], "no pod waits any more"

    play(scenario)
