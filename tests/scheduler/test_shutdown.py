"""SIGTERM in the midst of it all: what was sent is finished under the Lease, which is given back last."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from carico.kube.client import Client
from carico.kube.meta import KubeObject
from carico.kube.objects import Pod
from carico.scheduler import process as run
from carico.scheduler.process import Scheduler
from carico.settings import SchedulerSettings
from carico.testing import embedded_api_server, make_node, make_pod
from harness.scheduler.binding_world import BindingWorld, a_claim, a_class, of_claim

PODS, PATIENCE = 100, 120.0
LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/carico"


class SlowClient(Client):
    """Bindings wait at the gate until it is opened; `seen` has what was answered, in its order."""

    def __init__(self, like: Client) -> None:
        super().__init__(like._credentials, connections=PODS + 10)
        self.gate = asyncio.Event()
        self.events_hang = False
        self.at_gate = 0
        self.seen: list[str] = []

    def apart(self, patience: float) -> Client:
        """The Lease's own connection is looked at too."""
        return _Recorded(self.seen, self._credentials, connections=1, patience=patience)

    async def create(self, path: str, *args: Any, **more: Any) -> None:
        if path.endswith("/binding"):
            self.at_gate += 1
            await self.gate.wait()
            await super().create(path, *args, **more)
            self.seen.append("binding")
        elif self.events_hang and path.endswith("/events"):
            self.seen.append("event")
            await asyncio.Event().wait()
        else:
            await super().create(path, *args, **more)


class _Recorded(Client):
    def __init__(self, seen: list[str], *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._lease_writes = seen

    async def call(self, method: str, path: str, *args: Any, **more: Any) -> bytes:
        answer = await super().call(method, path, *args, **more)
        if method == "PUT" and path == LEASE:
            holder = msgspec.json.decode(answer)["spec"].get("holderIdentity")
            self._lease_writes.append("renewal" if holder else "release")
        return answer


def new(obj: KubeObject) -> bytes:
    meta = msgspec.structs.replace(obj.metadata, uid="", resource_version="")
    return msgspec.json.encode(msgspec.structs.replace(obj, metadata=meta))


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@asynccontextmanager
async def bindings_under_way(folder: Path) -> AsyncIterator[tuple[Client, SlowClient, Scheduler, Callable[[], Any]]]:
    """A leader whose bindings all stand at the gate; the last thing is what ends it."""
    async with embedded_api_server(folder) as (_, client):
        for i in range(4):
            await client.call("POST", "/api/v1/nodes", new(make_node(f"n{i}")))
        slow = SlowClient(client)
        settings = SchedulerSettings(
            listen="127.0.0.1:0", debug_listen="127.0.0.1:0",
            grpc_listen="127.0.0.1:0", plaintext=True,
            on_stale="requests", heartbeat=0.5,  # for which first reports are awaited
            leader_elect_resource_namespace="default", leader_elect_resource_name="carico",
            leader_elect_lease_duration=1000.0, leader_elect_renew_deadline=900.0, leader_elect_retry_period=0.1,
        )  # fmt: skip
        scheduler, end = Scheduler(settings, client=slow), asyncio.Event()
        running = asyncio.create_task(scheduler.run(end))
        for i in range(PODS):
            await client.call("POST", "/api/v1/namespaces/default/pods", new(make_pod(f"p{i}")))
        await until(lambda: slow.at_gate == PODS)

        async def ended() -> None:
            end.set()
            await asyncio.wait_for(asyncio.shield(running), PATIENCE)

        try:
            yield client, slow, scheduler, ended
        finally:
            slow.gate.set()
            end.set()
            await running
            await slow.close()


async def listed(client: Client, path: str) -> list[dict[str, Any]]:
    return list(msgspec.json.decode(await client.call("GET", path))["items"])


def test_bindings_are_finished_under_the_lease_which_is_given_back_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("DRAIN", "EVENT_DRAIN"):
        monkeypatch.setattr(run, limit, PATIENCE)  # whatever this machine takes for it

    async def scenario() -> None:
        async with bindings_under_way(tmp_path) as (client, slow, scheduler, ended):
            ending = asyncio.create_task(ended())
            before = len(slow.seen)
            await until(lambda: slow.seen[before:].count("renewal") >= 3)  # it is kept meanwhile
            assert "release" not in slow.seen
            slow.gate.set()
            await ending
            assert slow.seen.count("binding") == PODS
            assert slow.seen[-1] == "release"
            pods = [msgspec.convert(item, Pod) for item in await listed(client, "/api/v1/namespaces/default/pods")]
            assert all(pod.spec.node_name for pod in pods)
            events = await listed(client, "/apis/events.k8s.io/v1/namespaces/default/events")
            assert len([event for event in events if event["reason"] == "Scheduled"]) == PODS
            assert scheduler.binder.in_flight == 0

    asyncio.run(scenario())


def test_a_lease_under_which_a_binding_may_still_arrive_runs_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "DRAIN", 0.2)

    async def scenario() -> None:
        async with bindings_under_way(tmp_path) as (client, slow, scheduler, ended):
            await ended()
            assert (slow.seen.count("binding"), slow.seen.count("release")) == (0, 0)
            lease = msgspec.json.decode(await client.call("GET", LEASE))
            assert lease["spec"]["holderIdentity"] == scheduler.identity
            assert scheduler.binder.in_flight == 0
            assert len(scheduler.parts.cluster.assumed) == PODS  # nothing was given back

    asyncio.run(scenario())


def test_events_that_cannot_be_written_do_not_hold_the_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "DRAIN", 10 * PATIENCE)
    monkeypatch.setattr(run, "EVENT_DRAIN", 0.2)

    async def scenario() -> None:
        async with bindings_under_way(tmp_path) as (_, slow, _, ended):
            slow.events_hang = True
            slow.gate.set()
            await ended()
            assert slow.seen.count("binding") == PODS
            assert "event" in slow.seen
            assert slow.seen[-1] == "release"

    asyncio.run(scenario())


def test_pods_that_wait_are_left_to_the_next_leader() -> None:
    async def scenario() -> None:
        world = BindingWorld({"a": 5.0})
        world.see_object(a_class())
        world.see_object(a_claim("c"))
        world.see(make_pod("db", volumes=of_claim("c")))
        world.decide()
        await world.clock.turn(0)
        events = len(world.scheduler.recorder)
        await asyncio.wait_for(world.binder.drain(), PATIENCE)  # the clock stands still
        assert (world.binder.in_flight, world.last("db")[0]) == (0, "scheduled")
        assert len(world.scheduler.recorder) == events

    asyncio.run(scenario())


def test_a_scheduler_whose_lease_is_not_fresh_rests() -> None:
    """A pause has ended, but nothing may be decided: the loop must not spin until the Lease is renewed."""

    async def scenario() -> None:
        world = BindingWorld({"a": 5.0}, leader_elect=True, heartbeat=100.0)
        scheduler, turns = world.scheduler, 0
        world.see(make_pod("p"))
        queued = world.queue.pop(world.clock.monotonic())
        assert queued is not None
        world.queue.fail(queued, queued.refusal, world.clock.monotonic(), blindly=True)
        world.clock.advance(60)
        wait = scheduler._wait_for_news

        async def counted() -> None:
            nonlocal turns
            turns += 1
            await wait()

        scheduler._wait_for_news = counted  # type: ignore[method-assign]
        task = asyncio.create_task(scheduler._schedule())
        await world.clock.turn(5)
        assert turns <= 6
        scheduler.election.elected, scheduler.election.renewed_at = True, world.clock.monotonic()
        await world.clock.turn(1)
        assert world.server.node_of("p") == "a"
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(scenario())
