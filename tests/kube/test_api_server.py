"""Client, watch, binding and conditions against both API servers, through a proxy that breaks things on demand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from carico.errors import ApiError
from carico.kube import credentials, pod_writes, pods
from carico.kube.binding import Binding, BindResult
from carico.kube.client import Client
from carico.kube.writes import always
from carico.testing import ManualClock
from harness.cluster.fixtures import AnyCluster, only_real
from harness.kube.faulty import CUT, LOSE
from harness.kube.place import CLOCK, Place, Scenario


def test_tls_and_what_a_kubeconfig_can_hold(any_cluster: AnyCluster) -> None:
    async def scenario() -> None:
        client = Client(credentials.from_kubeconfig(any_cluster(5).kubeconfig))
        assert b"gitVersion" in await client.call("GET", "/version")
        with pytest.raises(ApiError, match="404 NotFound"):
            await client.call("GET", "/api/v1/namespaces/default/pods/none")
        await client.close()

    asyncio.run(scenario())


def _is_resumed(connection: Any) -> Any:
    return getattr(connection._channel._sock, "session_reused", None)


def test_a_second_connection_goes_on_with_the_session_of_the_first(any_cluster: AnyCluster) -> None:
    async def scenario() -> None:
        who = credentials.from_kubeconfig(any_cluster(5).kubeconfig)
        client = Client(who)
        await client.call("GET", "/version")
        await asyncio.gather(*(client.call("GET", "/version") for _ in range(3)))
        reused = [_is_resumed(connection) for connection, _ in client._pool.idle]
        assert reused.count(True) == (
            2 if (await who.identity()).tls else 0
        )  # the first of three had none to go on with
        await client.close()

    asyncio.run(scenario())


def test_a_closed_idle_connection_goes_unnoticed(play: Callable[[Scenario], None]) -> None:
    async def scenario(place: Place) -> None:
        for _ in range(3):
            await place.client.call("GET", "/version")
            place.proxy.cut()
            await asyncio.sleep(0.05)

    play(scenario)


def test_a_watch_delivers_everything_and_survives_cuts(play: Callable[[Scenario], None]) -> None:
    async def scenario(place: Place) -> None:
        await place.pod("before")
        async with place.following() as pods:
            assert set(pods.store) == {f"{place.namespace}/before"}
            await place.pod("during")
            await place.until(lambda: len(pods.store) == 2)
            place.proxy.cut()
            await place.pod("after-cut")
            await place.delete("before")
            names = {f"{place.namespace}/during", f"{place.namespace}/after-cut"}
            await place.until(lambda: set(pods.store) == names)
            assert pods.lists == 1  # resumed where it broke off
            assert pods.watches >= 2

    play(scenario)


@only_real
def test_a_pod_that_is_nested_too_deep_hides_nothing(play: Callable[[Scenario], None]) -> None:
    """kube-apiserver stores the managedFields that a client sends with a pod, up to ten thousand levels deep."""
    deep = b'{"f:a":' * 5000 + b"{}" + b"}" * 5000
    fields = b'"operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "manager": "x", "fieldsV1": ' + deep
    meta = b'{"name": "deep", "managedFields": [{' + fields + b"}]}"
    body = b'{"metadata": ' + meta + b', "spec": {"containers": [{"name": "c", "image": "i"}]}}'

    async def scenario(place: Place) -> None:
        path, keys = f"/api/v1/namespaces/{place.namespace}/pods", [f"{place.namespace}/{n}" for n in ("deep", "after")]
        async with place.following() as pods:
            stored = await place.client.call("POST", path, body)
            try:
                with pytest.raises(RecursionError):
                    msgspec.json.decode(stored)
                await place.pod("after")
                await place.until(lambda: list(pods.store) == keys)
                await pods.refresh()
                assert (list(pods.store), pods.lists) == (keys, 2)
            finally:
                await place.delete("deep")  # the tests' own client cannot read it

    play(scenario)


def test_an_expired_version_is_listed_anew_and_nothing_is_missed(play: Callable[[Scenario], None]) -> None:
    async def scenario(place: Place) -> None:
        for name in ("stays", "goes"):
            await place.pod(name)
        async with place.following() as pods:
            place.proxy.fault = lambda _, path: CUT if "watch=1" in path else None
            place.proxy.cut()
            await place.delete("goes")
            await place.pod("comes")
            place.changes.clear()
            broken = True

            def fault(_: str, path: str) -> int | None:
                return 410 if "watch=1" in path and broken else None

            place.proxy.fault = fault
            await place.until(lambda: pods.lists >= 2)
            broken = False
            key = place.namespace
            assert set(pods.store) == {f"{key}/stays", f"{key}/comes"}
            gone = [old.name for old, new in place.changes if old is not None and new is None]
            new = [new.name for old, new in place.changes if old is None and new is not None]
            assert (gone, new) == (["goes"], ["comes"])

    play(scenario)


def test_a_refresh_beside_the_watch_takes_nothing_back(play: Callable[[Scenario], None]) -> None:
    async def scenario(place: Place) -> None:
        async with place.following() as pods:
            making = asyncio.gather(*(place.pod(f"p{i}") for i in range(40)))
            for _ in range(3):
                await pods.refresh()
            await making
            await place.until(lambda: len(pods.store) == 40)
            assert all(new is not None for _, new in place.changes)

    play(scenario)


def test_a_pod_re_created_under_its_name_is_two_changes(play: Callable[[Scenario], None]) -> None:
    async def scenario(place: Place) -> None:
        first = await place.pod("twin")
        async with place.following() as pods:
            place.proxy.fault = lambda _, path: CUT if "watch=1" in path else None
            place.proxy.cut()
            await place.delete("twin")
            second = await place.pod("twin")
            place.changes.clear()
            await pods.refresh()
            uids = [(old and old.uid, new and new.uid) for old, new in place.changes]
            assert uids == [(first.uid, None), (None, second.uid)]

    play(scenario)


@pytest.mark.parametrize("status", [429, 500, LOSE, CUT])
def test_a_binding_survives_passing_faults_and_happens_once(play: Callable[[Scenario], None], status: int) -> None:
    async def scenario(place: Place) -> None:
        pod = await place.pod("p")
        left = 2

        def fault(_: str, path: str) -> int | None:
            nonlocal left
            if path.endswith("/binding") and left:
                left -= 1
                return status
            return None

        place.proxy.fault = fault
        outcome = await Binding(place.client, pod, "kwok-0001", CLOCK).send()
        assert outcome.bound is BindResult.DONE
        assert (await pods.read(place.client, place.namespace, "p")).spec.node_name == "kwok-0001"

    play(scenario)


def test_bindings_that_cannot_be(play: Callable[[Scenario], None]) -> None:
    async def scenario(place: Place) -> None:
        pod = await place.pod("p")
        assert (await Binding(place.client, pod, "kwok-0001", CLOCK).send()).bound is BindResult.DONE
        assert (await Binding(place.client, pod, "kwok-0001", CLOCK).send()).bound is BindResult.DONE
        assert (await Binding(place.client, pod, "kwok-0002", CLOCK).send()).bound is BindResult.ELSEWHERE
        gone = await place.pod("gone")
        await place.delete("gone")
        assert (await Binding(place.client, gone, "kwok-0001", CLOCK).send()).bound is BindResult.GONE
        await place.pod("gone")  # the same name, another pod
        assert (await Binding(place.client, gone, "kwok-0001", CLOCK).send()).bound is BindResult.GONE
        assert not (await pods.read(place.client, place.namespace, "gone")).spec.node_name

    play(scenario)


def test_the_condition_that_autoscalers_read(play: Callable[[Scenario], None]) -> None:
    async def scenario(place: Place) -> None:
        pod = await place.pod("p")
        clock = ManualClock()  # its wall clock stands in the past: the second time is another one
        await pod_writes.condition(place.client, pod, "Unschedulable", "0/5 nodes …", clock).send(always)
        await pod_writes.nomination(place.client, pod, "kwok-0003").send(always)
        pod = await pods.read(place.client, place.namespace, "p")
        [condition] = [c for c in pod.status.conditions if c.type == "PodScheduled"]
        said = (condition.status, condition.reason, condition.message)
        assert (*said, pod.status.nominated_node_name) == ("False", "Unschedulable", "0/5 nodes …", "kwok-0003")
        since = await _waits_since(place)
        clock.advance(60)
        await pod_writes.condition(place.client, pod, "Unschedulable", "again", clock).send(always)
        await pod_writes.nomination(place.client, pod, "").send(always)
        status = (await pods.read(place.client, place.namespace, "p")).status
        assert (status.conditions[-1].message, status.nominated_node_name) == ("again", "")
        assert await _waits_since(place) == since == "2023-11-14T22:13:20Z"

    play(scenario)


async def _waits_since(place: Place) -> str:
    pod = msgspec.json.decode(await place.client.call("GET", f"/api/v1/namespaces/{place.namespace}/pods/p"))
    [condition] = [c for c in pod["status"]["conditions"] if c["type"] == "PodScheduled"]
    return str(condition["lastTransitionTime"])
