"""The rights of the scheduler are exactly those that it uses, and kube-apiserver finds them sufficient."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from carico.http.head import parse
from carico.kube.calls import CALLS, NeededBy
from carico.kube.client import MERGE_PATCH, Client
from carico.kube.credentials import fixed
from carico.kube.events import Event
from carico.kube.meta import KubeObject
from carico.kube.roles import manifests
from carico.kube.storage import PersistentVolume
from carico.scheduler.extender.wakeup import ExtenderWakeup
from carico.scheduler.http.access_review import AccessReview
from carico.scheduler.process import Scheduler
from carico.settings import SchedulerSettings
from carico.testing import ManualClock, embedded_api_server, make_node, make_pod
from harness.cluster.cluster import Cluster, pod
from harness.cluster.fixtures import needs_scale
from harness.cluster.ports import free_port
from harness.kube.request_log import ApiRequestName, RecordingNetwork, name_of_call
from harness.scheduler.binding_world import a_claim, a_class, a_volume, of_claim
from harness.scheduler.fleet import SchedulerProcess

PATIENCE = 120.0  # s; on a busy machine
ALL_PARTS = {
    NeededBy.SCHEDULER,
    NeededBy.ELECTION,
    NeededBy.EXTENDER,
    NeededBy.PRIVATE_PAGES,
    NeededBy.NODE_CAPACITIES,
}
# The embedded server has no device classes, so their list is answered with 404 and never followed by a watch.
NOT_SERVED = ApiRequestName("watch", "resource.k8s.io", "deviceclasses")


def new(obj: KubeObject) -> bytes:
    meta = msgspec.structs.replace(obj.metadata, uid="", resource_version="")
    return msgspec.json.encode(msgspec.structs.replace(obj, metadata=meta))


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110 - what is waited for is behind a socket
            await asyncio.sleep(0.01)


class World:
    """A leader on the embedded API server; every request of its client is recorded."""

    def __init__(self, user: Client, token: str, address: str) -> None:
        self.user, self.token, self.network = user, token, RecordingNetwork()
        self.client = Client(fixed(address, token), connect=self.network.connect)
        settings = SchedulerSettings(
            listen="127.0.0.1:0", debug_listen="127.0.0.1:0", grpc_listen="127.0.0.1:0", plaintext=True,
            on_stale="requests", heartbeat=0.5,  # for which first reports are awaited
            leader_elect_resource_namespace="default",
            leader_elect_lease_duration=1000.0, leader_elect_renew_deadline=900.0, leader_elect_retry_period=0.1,
        )  # fmt: skip
        self.scheduler = Scheduler(settings, client=self.client)

    async def make(self, path: str, obj: KubeObject) -> None:
        await self.user.call("POST", path, new(obj))

    async def pod(self, name: str, **changes: Any) -> None:
        await self.make("/api/v1/namespaces/default/pods", make_pod(name, **changes))

    async def sends(self, verb: str, resource: str, sub: str = "", group: str = "") -> None:
        await until(lambda: ApiRequestName(verb, group, resource, sub) in self.network.names())


@asynccontextmanager
async def leading(folder: Path) -> AsyncIterator[World]:
    async with embedded_api_server(folder) as (server, user):
        world = World(user, server.token, server.address)
        end = asyncio.Event()
        running = asyncio.create_task(world.scheduler.run(end))
        try:
            yield world
        finally:
            end.set()
            await running
            await world.client.close()


async def everything(world: World) -> None:
    """Whatever a scheduler may have to write, once."""
    await world.make("/api/v1/nodes", make_node("n", cpu="1"))
    await _a_binding_whose_response_is_lost(world)
    await _preemption(world)
    await _volumes(world)
    await _a_repeated_event(world)
    await _an_annotation(world)
    await world.sends("update", "leases", group="coordination.k8s.io")
    await world.sends("create", "nodecapacities", group="carico.dev")
    await world.sends("patch", "nodecapacities", "status", group="carico.dev")
    await AccessReview(world.client, world.scheduler.clock).check(
        parse(f"GET /x HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {world.token}\r\n\r\n".encode())
    )


async def _a_binding_whose_response_is_lost(world: World) -> None:
    world.network.lose = ApiRequestName("create", "", "pods", "binding")
    await world.pod("low", containers=[{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}])
    await world.sends("get", "pods")
    await world.sends("create", "events", group="events.k8s.io")


async def _preemption(world: World) -> None:
    await world.user.call(
        "POST", "/apis/scheduling.k8s.io/v1/priorityclasses", b'{"metadata":{"name":"high"},"value":1000}'
    )
    room = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]
    spec = {"schedulerName": "carico", "priorityClassName": "high", "containers": room}
    high = {"metadata": {"name": "high"}, "spec": spec}
    await world.user.call("POST", "/api/v1/namespaces/default/pods", msgspec.json.encode(high))
    await world.sends("patch", "pods", "status")
    await world.sends("delete", "pods")


async def _volumes(world: World) -> None:
    await world.make("/api/v1/nodes", make_node("big"))
    await world.make("/apis/storage.k8s.io/v1/storageclasses", a_class())
    claims = "/api/v1/namespaces/default/persistentvolumeclaims"
    await world.make(claims, a_claim("dynamic"))
    await world.pod("a", volumes=of_claim("dynamic"))
    await world.sends("patch", "persistentvolumeclaims")
    await world.make("/api/v1/persistentvolumes", a_volume("v"))
    available = b'{"status":{"phase":"Available"}}'
    await world.user.call("PATCH", "/api/v1/persistentvolumes/v/status", available, MERGE_PATCH)
    [volumes] = [one for one in world.scheduler.watches.others if one.resource.type is PersistentVolume]
    await until(lambda: "v" in volumes.store and volumes.store["v"].status.phase == "Available")
    await world.make(claims, a_claim("static"))
    await world.pod("b", volumes=of_claim("static"))
    await world.sends("patch", "persistentvolumes")


async def _a_repeated_event(world: World) -> None:
    event = Event(make_pod("p"), "Warning", "FailedScheduling", "Scheduling", "no room")
    world.scheduler.recorder.put(event)
    await until(lambda: len(world.scheduler.recorder) == 0)
    world.scheduler.recorder.put(event)
    await world.sends("patch", "events", group="events.k8s.io")


async def _an_annotation(world: World) -> None:
    wakeup = ExtenderWakeup(world.client, world.scheduler.writer, ManualClock())
    wakeup.changed("n", np.array([0.0]))
    wakeup.refused("uid", lambda: np.array([1.0]))
    wakeup.changed("n", np.array([2.0]))
    wakeup.round()
    await world.sends("patch", "nodes")


def test_the_list_of_calls_is_what_a_scheduler_sends_no_more_and_no_less(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with leading(tmp_path) as world:
            await everything(world)
            sent = world.network.names()
        listed = {name_of_call(call) for call in CALLS if call.needed_by & ALL_PARTS}
        assert sent - listed == set()
        assert listed - sent == {NOT_SERVED}

    asyncio.run(scenario())


# --- on a real kube-apiserver, whose RBAC decides ---


class Account:
    """A ServiceAccount with the generated roles and nothing else."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster, self.namespace = cluster, namespace
        self.lease = ("--leader-elect-resource-namespace", namespace, "--leader-elect-resource-name", "ours")
        parts = {NeededBy.SCHEDULER, NeededBy.ELECTION, NeededBy.NODE_CAPACITIES}
        cluster.kubectl("apply", "-f", "-", stdin=manifests(parts, namespace, "ours", name=namespace))
        self.kubeconfig = cluster.kubeconfig_of_account("scheduler", namespace, namespace=namespace)
        account = {"kind": "ServiceAccount", "name": "scheduler", "namespace": namespace}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": namespace}
        body = {"metadata": {"name": "scheduler"}, "roleRef": role, "subjects": [account]}
        cluster.api.post(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings", body)

    def pod(self, name: str, **spec: Any) -> None:
        item = pod(name, ["x"], schedulerName="carico", nodeSelector={"kubernetes.io/hostname": "kwok-0001"}, **spec)
        item["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "30"}}
        self.cluster.create(item, self.namespace)

    def node_of(self, name: str) -> str:
        path = f"/api/v1/namespaces/{self.namespace}/pods/{name}"
        return str(
            self.cluster.wait_for(f"{name} to be bound", lambda: self.cluster.api.get(path)["spec"].get("nodeName"))
        )

    def has_event(self, reason: str) -> None:
        path = f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events"
        self.cluster.wait_for(
            f"the Event {reason}", lambda: any(one["reason"] == reason for one in self.cluster.api.get(path)["items"])
        )


@pytest.mark.cluster
@pytest.mark.slow
@needs_scale
def test_a_scheduler_with_the_generated_roles_works(scale_cluster: Callable[[int], Cluster]) -> None:
    cluster = scale_cluster(5)
    with cluster.namespace() as namespace:
        cluster.api.post("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": namespace}, "value": 1000})
        account = Account(cluster, namespace)
        process = SchedulerProcess(account.kubeconfig, free_port(), *account.lease, "--on-stale", "requests")
        try:
            account.pod("low")
            account.node_of("low")
            account.pod("high", priorityClassName=namespace)
            assert account.node_of("high") == "kwok-0001"
            for reason in ("Scheduled", "Preempted", "FailedScheduling"):
                account.has_event(reason)
            assert "orbidden" not in process.log()
        finally:
            process.stop(signal.SIGKILL)
            cluster.api.delete(f"/apis/scheduling.k8s.io/v1/priorityclasses/{namespace}")
            for kind in ("clusterroles", "clusterrolebindings"):
                name = namespace if kind == "clusterroles" else f"scheduler-{namespace}"
                cluster.api.delete(f"/apis/rbac.authorization.k8s.io/v1/{kind}/{name}")
