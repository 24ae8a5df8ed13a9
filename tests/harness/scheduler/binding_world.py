"""A whole scheduler on a manual clock, and a simulated API server that accepts, loses and answers requests as set.

Nothing runs automatically. `decide` runs scheduling cycles, `see` delivers a pod's watch event, and `clock.turn` lets
bindings and waits continue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from carico.errors import ApiError, HttpError
from carico.kube.objects import Pod
from carico.kube.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from carico.scheduler.process import Scheduler
from carico.settings import SchedulerSettings
from carico.testing import ManualClock, make_node, make_report
from harness.kube.network import Asked, PlayedNetwork

TAKE, LOSE, DROP, AWAY = "take", "lose", "drop", "away"


class PlayedServer:
    """Pods and their bindings; `client` sends to it. `mode` sets what happens to a binding:

    TAKE accepts it, LOSE accepts it and loses the response, DROP loses the request itself, AWAY rejects connections,
    and a number is the status of the response; `modes` is the same for single pods.
    """

    def __init__(self) -> None:
        self.mode: str | int = TAKE
        self.modes: dict[str, str | int] = {}  # by name
        self.pods: dict[str, dict[str, Any]] = {}  # by name
        self.posts: list[str] = []  # names of pods whose binding was sent
        self.writes: list[str] = []
        self.open = asyncio.Event()  # cleared: bindings wait
        self.open.set()
        self.network = PlayedNetwork(self.answer, refused=self._reached)
        self.most = self.now = 0  # bindings in flight, at most and now

    def add(self, pod: Pod) -> None:
        self.pods[pod.name] = {"metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}, "spec": {}}

    def node_of(self, name: str) -> str:
        return str(self.pods[name]["spec"].get("nodeName", ""))

    def _reached(self) -> None:
        if self.mode == AWAY:
            raise HttpError("the API server cannot be reached")

    async def answer(self, asked: Asked) -> bytes:
        if asked.path.endswith("/binding"):
            await self._binding(asked.path.split("/")[-2], asked.body)
        elif asked.method != "GET":
            self.writes.append(asked.path)
        else:
            pod = self.pods.get(asked.path.split("/")[-1])
            if pod is None:
                raise ApiError(404, "NotFound", "there is no such pod")
            return msgspec.json.encode(pod)
        return b"{}"

    async def _binding(self, name: str, obj: Any) -> None:
        self.posts.append(name)
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await self.open.wait()
            self._bind(name, obj)
        finally:
            self.now -= 1

    def _bind(self, name: str, obj: Any) -> None:
        mode = self.modes.get(name, self.mode)
        if mode == DROP:
            raise HttpError("the connection was closed")
        if isinstance(mode, int):
            raise ApiError(mode, "", "made up by a test")
        self.store(name, obj["metadata"]["uid"], obj["target"]["name"])
        if mode == LOSE:
            raise HttpError("the connection was closed")

    def store(self, name: str, uid: str, node: str) -> None:
        pod = self.pods.get(name)
        if pod is None:
            raise ApiError(404, "NotFound", "there is no such pod")
        if pod["metadata"]["uid"] != uid or pod["spec"].get("nodeName"):
            raise ApiError(409, "Conflict", "it is bound, or another one")
        pod["spec"]["nodeName"] = node


class BindingWorld:
    def __init__(self, nodes: dict[str, float], *, labels: Any = None, **settings: Any) -> None:
        self.clock, self.server = ManualClock(now=100.0), PlayedServer()
        usual = {"leader_elect": False, "plaintext": True, "validate": True, "startup_limit": 999}
        used = SchedulerSettings(**usual | {"startup_limit_idle": 999} | settings)
        self.scheduler = Scheduler(used, self.clock, self.server.network.client(clock=self.clock))
        self.parts, self.binder = self.scheduler.parts, self.scheduler.binder
        self.cluster, self.queue, self.ledger = self.parts.cluster, self.parts.queue, self.parts.ledger
        self._seen: dict[str, Pod] = {}
        self._things: dict[tuple[type, str], Any] = {}
        for name, capacity in nodes.items():
            self.cluster.node_changed(None, make_node(name, pods="2000", labels=(labels or {}).get(name, {})))
            self.report(name, capacity)

    def report(self, node: str, capacity: float, counted: tuple[str, ...] = ()) -> None:
        self.ledger.report(make_report(node, capacity, counted), self.clock.monotonic())
        self.cluster.capacity_changed()

    def free(self, node: str) -> float:
        account = self.ledger.account(node)
        assert account is not None
        return float(self.ledger.free[account.row])

    # --- watch events ---

    def see(self, pod: Pod) -> None:
        if pod.key not in self._seen:
            self.server.add(pod)
        self.cluster.pod_changed(self._seen.get(pod.key), pod)
        self._seen[pod.key] = pod

    def see_deleted(self, name: str) -> None:
        self.server.pods.pop(name, None)
        self.cluster.pod_changed(self._seen.pop(f"default/{name}"), None)

    def see_object(self, obj: Any) -> None:
        key = (type(obj), obj.key)
        self.cluster.thing_changed(self._things.get(key), obj)
        self._things[key] = obj

    def see_thing_deleted(self, obj: Any) -> None:
        self.cluster.thing_changed(self._things.pop((type(obj), obj.key)), None)

    # --- the scheduler ---

    def decide(self) -> int:
        """Run cycles as long as there is a pod and a binding slot; returns the number of cycles."""
        decided = 0
        while self.binder.has_place and (queued := self.queue.pop(self.clock.monotonic())) is not None:
            self.scheduler._attempt(queued)
            decided += 1
        return decided

    def place(self, name: str) -> str:
        queued = self.queue.get(f"uid-{name}")
        return "" if queued is None else queued.place

    def last(self, name: str) -> tuple[str, str]:
        """The newest record of the pod: result and reasons."""
        record = self.parts.ring.of_pod(f"default/{name}")[-1]
        return record.result, record.reasons

    async def stop(self) -> None:
        """Cancel bindings that are still in flight."""
        for task in list(self.binder._tasks):
            task.cancel()
        await asyncio.gather(*self.binder._tasks, return_exceptions=True)


def a_class(provisioner: str = "disk.example.com") -> StorageClass:
    plain = {"metadata": {"name": "c"}, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
    return msgspec.convert(plain, StorageClass)


def a_claim(name: str, bound: str = "", node: str = "", version: str = "7", uid: str = "") -> PersistentVolumeClaim:
    notes = {"pv.kubernetes.io/bind-completed": "yes"} if bound else {}
    if node:
        notes["volume.kubernetes.io/selected-node"] = node
    meta = {"name": name, "namespace": "default", "uid": uid or name, "resourceVersion": version, "annotations": notes}
    spec = {
        "storageClassName": "c",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "volumeName": bound,
    }
    plain = {"metadata": meta, "spec": spec, "status": {"phase": "Bound" if bound else "Pending"}}
    return msgspec.convert(plain, PersistentVolumeClaim)


def a_volume(name: str, zone: str = "", claim: str = "", version: str = "3") -> PersistentVolume:
    spec: dict[str, Any] = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "c",
    }
    if claim:
        spec["claimRef"] = {"name": claim, "namespace": "default", "uid": claim}
    if zone:
        expression = {"key": "zone", "operator": "In", "values": [zone]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
    meta = {"name": name, "resourceVersion": version}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": {"phase": "Available"}}, PersistentVolume)


def of_claim(name: str) -> list[dict[str, Any]]:
    """`spec.volumes` of a pod that uses this claim."""
    return [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]


def playing(scenario: Callable[[BindingWorld], Awaitable[None]], nodes: dict[str, float], **settings: Any) -> None:
    """Plays the scenario in a world of its own, and ends that."""

    async def whole() -> None:
        world = BindingWorld(nodes, **settings)
        try:
            await scenario(world)
        finally:
            await world.stop()

    asyncio.run(whole())
