"""Evictions against both API servers: the reason, the precondition, the dry run, disruption budgets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from carico.errors import ApiError
from carico.kube import pod_writes, pods
from carico.kube.binding import Binding, BindResult
from carico.kube.client import MERGE_PATCH
from carico.kube.eviction import EvictionResult, evict
from carico.kube.objects import Pod
from carico.kube.writes import always
from harness.kube.place import CLOCK, PATIENCE, Place, Scenario


def test_an_evicted_pod_gets_the_reason_and_only_that_pod_goes(play: Callable[[Scenario], None]) -> None:
    async def scenario(place: Place) -> None:
        old = await place.pod("victim")
        await place.delete("victim")
        new = await place.pod("victim")
        await pod_writes.eviction(place.client, old, "carico", CLOCK).send(
            always
        )  # another pod of that name: left alone
        assert not (await pods.read(place.client, place.namespace, "victim")).terminating
        await pod_writes.eviction(place.client, new, "carico", CLOCK).send(always)
        with pytest.raises(ApiError, match="404"):
            await pods.read(place.client, place.namespace, "victim")

    play(scenario)


def test_an_eviction_concerns_one_pod_and_a_dry_run_changes_nothing(play: Callable[[Scenario], None]) -> None:
    async def scenario(place: Place) -> None:
        old = await place.pod("p")
        await place.delete("p")
        new = await place.pod("p")
        for dry_run in (True, False):
            assert (await evict(place.client, old, dry_run=dry_run)).result is EvictionResult.GONE
        assert (await evict(place.client, new, dry_run=True)).result is EvictionResult.ACCEPTED
        assert not (await pods.read(place.client, place.namespace, "p")).terminating
        assert (await evict(place.client, new)).result is EvictionResult.ACCEPTED
        with pytest.raises(ApiError, match="404"):
            await pods.read(place.client, place.namespace, "p")
        for dry_run in (True, False):
            assert (await evict(place.client, new, dry_run=dry_run)).result is EvictionResult.GONE

    play(scenario)


async def _budget(place: Place, name: str, least: int, allowed: int) -> None:
    """A budget over all pods, with the status that its controller writes; the embedded server has no controller."""
    root = f"/apis/policy/v1/namespaces/{place.namespace}/poddisruptionbudgets"
    budget = {"metadata": {"name": name}, "spec": {"minAvailable": least, "selector": {}}}
    made = msgspec.json.decode(await place.client.call("POST", root, msgspec.json.encode(budget)))
    seen = {"observedGeneration": made["metadata"].get("generation", 0), "expectedPods": 1, "currentHealthy": 1}
    status = {"status": seen | {"desiredHealthy": least, "disruptionsAllowed": allowed}}
    await place.client.call("PATCH", f"{root}/{name}/status", msgspec.json.encode(status), MERGE_PATCH)


async def _until_evicted(place: Place, pod: Pod, result: EvictionResult, why: str) -> None:
    """Each attempt may come before the controller of budgets has seen the newest change."""
    async with asyncio.timeout(PATIENCE):
        while True:
            outcome = await evict(place.client, pod, dry_run=result is EvictionResult.DISALLOWED)
            if outcome.result is result and why in outcome.why:
                return
            await asyncio.sleep(0.1)


def test_an_eviction_keeps_the_disruption_budget(play: Callable[[Scenario], None]) -> None:
    async def scenario(place: Place) -> None:
        root = f"/apis/policy/v1/namespaces/{place.namespace}/poddisruptionbudgets"
        async with place.following() as reflector:
            pod = await place.pod("web")
            assert (await Binding(place.client, pod, "kwok-0001", CLOCK).send()).bound is BindResult.DONE
            await place.until(lambda: any(one.status.phase == "Running" for one in reflector.store.values()))
            pod = next(iter(reflector.store.values()))
            await _budget(place, "tight", 1, 0)
            await _until_evicted(place, pod, EvictionResult.DISALLOWED, "needs 1 healthy pods and has 1 currently")
            await _budget(place, "loose", 0, 1)
            await _until_evicted(place, pod, EvictionResult.DISALLOWED, "more than one PodDisruptionBudget")
            assert not (await pods.read(place.client, place.namespace, "web")).terminating
            await place.client.call("DELETE", f"{root}/tight")
            await _until_evicted(place, pod, EvictionResult.ACCEPTED, "")
            await place.until(lambda: all(one.terminating for one in reflector.store.values()))

    play(scenario)
