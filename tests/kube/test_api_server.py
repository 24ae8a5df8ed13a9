"""Client, watch, binding, events and lease against both API servers, through a proxy that breaks things on demand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from carico.clock import SystemClock
from carico.errors import ApiError
from carico.kube import calls, credentials, pod_writes, pods
from carico.kube.binding import Binding, BindResult
from carico.kube.client import MERGE_PATCH, Client
from carico.kube.events import Event, EventRecorder
from carico.kube.eviction import EvictionResult, evict
from carico.kube.lease import Election, LeaseTimes
from carico.kube.objects import Pod
from carico.kube.watch import Reflector, WatchedResource
from carico.kube.writer import ApiWriter
from carico.kube.writes import always
from carico.testing import ManualClock
from harness.cluster.fixtures import AnyCluster, only_real
from harness.kube.faulty import CUT, LOSE, FaultyServer

CLOCK = SystemClock()
PATIENCE = 60.0  # s; on a busy machine


class Place:
    """A namespace of a cluster behind a faulty proxy."""

    def __init__(self, client: Client, proxy: FaultyServer, namespace: str) -> None:
        self.client, self.proxy, self.namespace = client, proxy, namespace
        self.changes: list[tuple[Pod | None, Pod | None]] = []
        self.reflector = Reflector(
            client,
            WatchedResource(calls.FOLLOW_PODS, Pod, namespace=namespace),
            lambda old, new: self.changes.append((old, new)),
        )

    async def pod(self, name: str) -> Pod:
        spec = {"schedulerName": "nobody", "containers": [{"name": "c", "image": "i"}]}
        body = msgspec.json.encode({"metadata": {"name": name}, "spec": spec})
        made = await self.client.call("POST", f"/api/v1/namespaces/{self.namespace}/pods", body)
        return msgspec.json.decode(made, type=Pod)

    async def delete(self, name: str) -> None:
        path = f"/api/v1/namespaces/{self.namespace}/pods/{name}"
        await self.client.call("DELETE", path, b'{"gracePeriodSeconds":0}')

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not condition():  # noqa: ASYNC110 - what is waited for is in another process
                await asyncio.sleep(0.02)

    @asynccontextmanager
    async def following(self) -> AsyncIterator[Reflector[Pod]]:
        task = asyncio.create_task(self.reflector.run())
        try:
            await self.reflector.synced.wait()
            yield self.reflector
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


Scenario = Callable[[Place], Awaitable[None]]


@pytest.fixture
def play(any_cluster: AnyCluster, tmp_path: Path) -> Callable[[Scenario], None]:
    def run(scenario: Scenario) -> None:
        cluster = any_cluster(5)

        async def whole() -> None:
            async with FaultyServer(cluster.kubeconfig, tmp_path) as proxy:
                client = Client(credentials.from_kubeconfig(proxy.kubeconfig))
                try:
                    await scenario(Place(client, proxy, namespace))
                finally:
                    await client.close()

        with cluster.namespace() as namespace:
            asyncio.run(whole())

    return run


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


async def _events(place: Place) -> list[dict[str, Any]]:
    listed = await place.client.call("GET", f"/apis/events.k8s.io/v1/namespaces/{place.namespace}/events")
    return list(msgspec.json.decode(listed)["items"])


@asynccontextmanager
async def _recording(place: Place) -> AsyncIterator[tuple[EventRecorder, ApiWriter]]:
    writer = ApiWriter(place.client, CLOCK, always)
    task = asyncio.create_task(writer.run())
    try:
        yield EventRecorder(place.client, writer, "carico-scheduler", "test", CLOCK), writer
        async with asyncio.timeout(PATIENCE):
            await writer.drain()
    finally:
        task.cancel()


def test_no_event_is_lost_whatever_the_api_server_does(play: Callable[[Scenario], None]) -> None:
    async def scenario(place: Place) -> None:
        pods = [await place.pod(f"p{i}") for i in range(10)]
        count = 0

        def fault(method: str, path: str) -> int | None:
            nonlocal count
            if method != "POST" or not path.endswith("/events"):
                return None
            count += 1
            return {1: 500, 2: 429, 3: LOSE, 4: CUT}.get(count)

        place.proxy.fault = fault
        async with _recording(place) as (recorder, _):
            for pod in pods:
                recorder.put(Event(pod, "Normal", "Scheduled", "Binding", f"assigned {pod.name}"))
        notes = sorted(event["note"] for event in await _events(place))
        assert notes == sorted(f"assigned {pod.name}" for pod in pods)
        assert (recorder.sent, recorder.lost) == (10, 0)

    play(scenario)


def test_repetitions_become_a_series(play: Callable[[Scenario], None]) -> None:
    async def scenario(place: Place) -> None:
        early, late = await place.pod("early"), await place.pod("late")
        async with _recording(place) as (recorder, writer):
            for i in range(3):
                for pod in (early, late):
                    recorder.put(Event(pod, "Warning", "FailedScheduling", "Scheduling", f"no node {i}"))
                if i == 1:
                    async with asyncio.timeout(PATIENCE):
                        await writer.drain()
        assert (recorder.sent, recorder.lost) == (2, 0)
        for event in await _events(place):
            assert (event["series"]["count"], event["note"]) == (2, "no node 1"), "the third time is written later"

        place.client._binary = False  # the same in JSON
        async with _recording(place) as (recorder, writer):
            for i in range(2):
                recorder.put(Event(early, "Warning", "Other", "Scheduling", f"no node {i}"))
                async with asyncio.timeout(PATIENCE):
                    await writer.drain()
        [event] = [event for event in await _events(place) if event["reason"] == "Other"]
        assert (event["series"]["count"], event["note"]) == (2, "no node 0"), "a note cannot be changed"
        assert event["regarding"]["uid"] == early.uid

    play(scenario)


def test_one_leader_at_a_time_and_a_quick_hand_over(play: Callable[[Scenario], None]) -> None:
    async def scenario(place: Place) -> None:
        # Longer than anybody waits here: only the hand-over can bring the second one in.
        times = LeaseTimes(duration=10 * PATIENCE, renew=9 * PATIENCE, retry=0.2)
        first, second = (
            Election(place.client, place.namespace, "carico", name, CLOCK, times) for name in ("first", "second")
        )
        await first.acquire()
        waiting = asyncio.create_task(second.acquire())
        await place.until(lambda: second.holder == "first")
        await asyncio.sleep(1)  # some more tries
        assert not waiting.done()
        await first.release()
        await asyncio.wait_for(waiting, PATIENCE)
        assert second.leading
        assert not first.leading
        await second.release()

    play(scenario)


def test_a_binding_whose_leader_fell_while_it_waited_for_its_turn_is_not_sent(play: Callable[[Scenario], None]) -> None:
    async def scenario(place: Place) -> None:
        pod, leads = await place.pod("late"), [True]
        client = Client(credentials.from_kubeconfig(place.proxy.kubeconfig), qps=2, burst=1)
        try:
            await client.call("GET", "/version")  # the next one has its turn in half a second
            bound = asyncio.create_task(Binding(client, pod, "kwok-0001", CLOCK, lambda: leads[0]).send())
            await asyncio.sleep(0)
            leads[0] = False
            assert (await bound).bound is BindResult.FAILED
            assert not (await pods.read(place.client, place.namespace, "late")).spec.node_name
        finally:
            await client.close()

    play(scenario)


def test_a_binding_whose_leader_fell_while_it_waited_for_a_connection_is_not_sent(
    play: Callable[[Scenario], None],
) -> None:
    async def scenario(place: Place) -> None:
        pod, leads, pods = await place.pod("late"), [True], f"/api/v1/namespaces/{place.namespace}/pods"
        client = Client(credentials.from_kubeconfig(place.proxy.kubeconfig), connections=1)
        try:
            holds = asyncio.create_task(client.call("GET", f"{pods}?watch=1&timeoutSeconds=300&limit=7"))
            await place.until(lambda: any("limit=7" in path for _, path in place.proxy.seen))
            bound = asyncio.create_task(Binding(client, pod, "kwok-0001", CLOCK, lambda: leads[0]).send())
            await asyncio.sleep(0)
            leads[0] = False
            holds.cancel()
            assert (await bound).bound is BindResult.FAILED
            assert not [path for _, path in place.proxy.seen if path.endswith("/binding")]
        finally:
            await client.close()

    play(scenario)


def test_a_lease_does_not_wait_for_the_rate_limit(play: Callable[[Scenario], None]) -> None:
    async def scenario(place: Place) -> None:
        client = Client(credentials.from_kubeconfig(place.proxy.kubeconfig), qps=0.001, burst=1)
        try:
            await client.call("GET", "/version")  # the next one would have its turn in a quarter of an hour
            election = Election(client, place.namespace, "carico", "only", CLOCK)
            await asyncio.wait_for(election.acquire(), PATIENCE)
            assert election.leading
            await election.release()
        finally:
            await client.close()

    play(scenario)


def test_a_dead_leader_is_followed_after_its_time_and_one_that_is_cut_off_steps_down_before(
    play: Callable[[Scenario], None],
) -> None:
    async def scenario(place: Place) -> None:
        times = LeaseTimes(duration=6, renew=1.5, retry=0.2)
        first, second = (
            Election(place.client, place.namespace, "carico", name, CLOCK, times) for name in ("first", "second")
        )
        await first.acquire()
        keeping = asyncio.create_task(first.keep())
        waiting = asyncio.create_task(second.acquire())
        await place.until(lambda: second.holder == "first")
        place.proxy.fault = lambda _method, path: 500 if "/leases" in path else None
        await asyncio.wait_for(keeping, PATIENCE)
        assert not first.leading
        assert not waiting.done()
        place.proxy.fault = lambda _method, _path: None
        await asyncio.wait_for(waiting, PATIENCE)
        assert second.leading
        await first.release()
        await second.release()

    play(scenario)
