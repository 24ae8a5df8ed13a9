"""A simulated API server, kubelets and agents on a manual clock, around a whole scheduler without a network.

Everything is delayed: watch events are delivered when a test calls `deliver`, reports contain what was true when they
were taken, terminating pods remain for their grace period. `rest` lets everything in progress finish.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from typing import Any, Self

import msgspec
import numpy as np

from carico.errors import ApiError, HttpError
from carico.kube.delivery import Firewall
from carico.kube.mirror import Mirror
from carico.kube.objects import Node, Pod
from carico.pod_class import class_of
from carico.scheduler.assembly import assemble
from carico.scheduler.cache.template import PodInfo
from carico.scheduler.cache.units import ANNOTATION, read_units, units_of
from carico.scheduler.cluster_cache import ledger_differences
from carico.scheduler.cycle.group_cycle import decide_group
from carico.scheduler.framework.contract import Cycle, Nomination
from carico.scheduler.process import Scheduler
from carico.scheduler.queue.entries import QueuedGroup
from carico.settings import SchedulerSettings
from carico.testing import ManualClock, make_cost, make_node, make_report
from carico.types import ClassCost, ClassKey, NodeReport
from harness.kube.network import Asked, client_of

GRACE = 5.0  # s that an evicted pod takes to end
CAPACITY = 4.0  # pods that a node can really take
FULL = (2.8, 6.9e9)  # cores of demand and bytes that a node holds
COSTS = {"light": (0.5, 1e9), "heavy": (2.0, 1e9), "fat": (0.25, 5e9)}  # the true cost of a pod of an image
MEAN = (1.0, 2e9)  # the cost of the mean recent pod that nodes report
RESOURCES = ("cpu", "memory")
REST = 90  # s within which everything must be at rest; far less than the interval of the queue's flush


class Api:
    """Pods and nodes as the API server has them; `client` sends to it."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.pods: dict[str, dict[str, Any]] = {}
        self.nodes: dict[str, Node] = {}
        self.news: deque[tuple[str, Any, Any]] = deque()  # kind, old, new: not delivered yet
        self.faults: deque[str] = deque()  # of the next bindings
        self.evictions_fail = 0
        self.evictions_refused = False
        self.slow_patches = 0.0  # s
        self.deleted: list[str] = []  # pods for which a DELETE was sent
        self.ends_at: dict[str, float] = {}  # pod to the end of its grace period
        self.client = client_of(self.answer, clock=clock)
        self.undecodable: set[str] = set()  # pods whose events have a value of a wrong type
        self._version = 0

    # --- requests of the scheduler ---

    async def answer(self, asked: Asked) -> bytes:
        if "/events" in asked.path:
            return b"{}"
        name = asked.path.split("/pods/")[1].split("/")[0]
        if asked.path.endswith("/binding"):
            self._binding(asked.body)
            return b"{}"
        if name not in self.pods:
            raise ApiError(404, "NotFound", f"pods {name!r} not found")
        if asked.method == "PATCH":
            await self.clock.sleep(self.slow_patches)
            self._patch_status(name, asked.body["status"])
        elif asked.method == "DELETE":
            if self.evictions_fail:
                self.evictions_fail -= 1
                raise ApiError(429, "TooManyRequests", "try later", 1.0)
            if self.evictions_refused:
                raise ApiError(403, "Forbidden", "a webhook says no")
            self.deleted.append(name)
            self.delete(name)
        return msgspec.json.encode(self.pods.get(name))

    def _binding(self, obj: dict[str, Any]) -> None:
        name, node = obj["metadata"]["name"], obj["target"]["name"]
        fault = self.faults.popleft() if self.faults else ""
        if fault == "refused":
            raise ApiError(403, "Forbidden", "a webhook says no")
        if fault == "overloaded":
            raise ApiError(503, "ServiceUnavailable", "etcd is away")
        if fault == "taken":
            self.bind(name, sorted(self.nodes)[0] if self.nodes else "nowhere")
        if fault == "broken":
            raise HttpError("the connection broke before the request was sent")
        pod = self.pods.get(name)
        if pod is None or pod["metadata"]["uid"] != obj["metadata"]["uid"]:
            raise ApiError(404, "NotFound", f"pods {name!r} not found")
        if pod["spec"].get("nodeName"):
            raise ApiError(409, "Conflict", "pod is already assigned to a node")
        self.bind(name, node)
        if fault == "answer lost":
            raise HttpError("the connection broke")

    # --- changes in the cluster ---

    def change_pod(self, name: str, change: Any) -> None:
        old = self.pods.get(name)
        new = json.loads(json.dumps(old)) if old is not None else None
        new = change(new)
        if new is None:
            self.pods.pop(name, None)
            self.ends_at.pop(name, None)
        else:
            self._version += 1
            new["metadata"]["resourceVersion"] = str(self._version)
            self.pods[name] = new
        if new is not None and name in self.undecodable:
            self.news.append(("pod", old, new | {"spec": new["spec"] | {"containers": "none"}}))
        else:
            self.news.append(("pod", old, new))

    def bind(self, name: str, node: str) -> None:
        if name in self.pods and not self.pods[name]["spec"].get("nodeName"):
            self.change_pod(name, lambda pod: pod | {"spec": pod["spec"] | {"nodeName": node}})

    def delete(self, name: str) -> None:
        pod = self.pods.get(name)
        if pod is None or pod["metadata"].get("deletionTimestamp"):
            return
        if not pod["spec"].get("nodeName"):
            self.change_pod(name, lambda _: None)
            return
        self.ends_at[name] = self.clock.monotonic() + GRACE
        mark = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
        self.change_pod(name, lambda pod: pod | {"metadata": pod["metadata"] | mark})

    def spoil(self, name: str, yes: bool) -> None:
        """From now on the pod's events can or cannot be decoded; there is one at once."""
        self.undecodable.add(name) if yes else self.undecodable.discard(name)
        if name in self.pods:
            self.change_pod(name, lambda pod: pod)

    def set_node(self, name: str, node: Node | None) -> None:
        old = self.nodes.get(name)
        if node is None:
            self.nodes.pop(name, None)
        else:
            self.nodes[name] = node
        if old is not None or node is not None:
            self.news.append(("node", old, node))

    def _patch_status(self, name: str, status: dict[str, Any]) -> None:
        def patched(pod: dict[str, Any]) -> dict[str, Any]:
            mine = dict(pod["status"])
            if "nominatedNodeName" in status:
                mine["nominatedNodeName"] = status["nominatedNodeName"] or ""
            by_type = {c["type"]: c for c in mine.get("conditions", [])}
            for c in status.get("conditions", []):
                by_type[c["type"]] = by_type.get(c["type"], {}) | {k: v for k, v in c.items() if v is not None}
            return pod | {"status": mine | {"conditions": list(by_type.values())}}

        self.change_pod(name, patched)


class RaisingFirewall(Firewall):
    """No error of a handler is contained."""

    def caught(self, error: Exception) -> None:
        raise error


class World:
    def __init__(self, api: type[Api] = Api, **settings: Any) -> None:
        self.clock = ManualClock(now=100.0)
        self.api = api(self.clock)
        self.settings = SchedulerSettings(leader_elect=False, page=False, plaintext=True, validate=True, **settings)
        self.scheduler = Scheduler(self.settings, self.clock, self.api.client)
        self.scheduler._rng = np.random.default_rng(0)
        self.parts = self.scheduler.parts
        for profile in self.parts.profiles.values():
            for plugin in profile.post_filters:
                plugin._rng = np.random.default_rng(0)  # type: ignore[attr-defined]
        self.stuck: set[str] = set()  # pods that never start
        self.with_room: set[str] = set()  # nodes whose agents report room per resource; the others are older
        self.measures: dict[str, float] = {}  # images that agents measure, and the factor by which they are wrong
        self.aggregated: dict[ClassKey, ClassCost] = {}  # the aggregator's costs of classes
        self.reports: dict[str, Any] = {}  # the last one of each node
        self.needless: list[str] = []  # evictions for a pod whose nominated node would have held it
        cluster = self.parts.cluster
        self._mirror = Mirror(
            Pod, cluster.pod_changed, cluster.pod_undecodable, int, RaisingFirewall("", int), self.clock
        )
        self._nominations: dict[str, tuple[PodInfo, Nomination]] = {}
        self._tasks: list[asyncio.Task[Any]] = []

    async def __aenter__(self) -> Self:
        nominate = self.parts.cluster.nominate

        def watched(preemptor: PodInfo, node: str, victims: tuple[PodInfo, ...]) -> list[PodInfo]:
            self._judge(preemptor, Nomination(node, victims))
            losers = nominate(preemptor, node, victims)
            for loser in losers:  # a pod of higher priority has taken the node
                self._nominations.pop(loser.uid, None)
            return losers

        self.parts.cluster.nominate = watched  # type: ignore[method-assign, assignment]
        for coroutine in (self.scheduler.writer.run(), self.scheduler.recorder.run()):
            self._tasks.append(asyncio.create_task(coroutine))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _judge(self, preemptor: PodInfo, nomination: Nomination) -> None:
        then, before = self._nominations.get(preemptor.uid, (preemptor, None))
        self._nominations[preemptor.uid] = preemptor, nomination
        if before is None or before.node not in self.api.nodes or then.identity is not preemptor.identity:
            return
        spec = preemptor.pod.spec
        if spec.affinity or spec.topology_spread_constraints or any(c.ports for c in spec.containers):
            return  # cpu alone does not determine whether the node would hold it
        if self._would_hold(before, preemptor):
            self.needless.append(f"{preemptor.pod.name}: {before.node} would hold it, now {nomination.node}")

    def _would_hold(self, nomination: Nomination, preemptor: PodInfo) -> bool:
        """By the API server's state, and by cpu alone; what is reserved for pods of higher precedence is not free."""
        node = self.api.nodes[nomination.node]
        closed = nomination.node in self.parts.snapshot.unknown_pods.values()
        if node.spec.unschedulable or not (closed or self._still_there(nomination)):
            return False
        victims = {victim.uid for victim in nomination.victims}
        taken = 0
        for plain in self.api.pods.values():
            pod = msgspec.convert(plain, Pod)
            if pod.spec.node_name == node.name and pod.uid not in victims and not pod.terminal:
                taken += PodInfo(pod).requests.get("cpu", 0)
        for other in self.parts.snapshot.nominated.values():
            if other.node == node.name and other.pod.uid != preemptor.uid and other.pod.priority >= preemptor.priority:
                taken += other.pod.requests.get("cpu", 0)
        free = int(float(node.status.allocatable["cpu"]) * 1000) - taken
        return free >= preemptor.requests.get("cpu", 0)

    def _still_there(self, nomination: Nomination) -> bool:
        uids = {plain["metadata"]["uid"] for plain in self.api.pods.values()}
        return any(victim.uid in uids for victim in nomination.victims)

    # --- time passes ---

    def deliver(self, most: int = 1_000_000) -> None:
        cluster = self.parts.cluster
        while self.api.news and most:
            kind, old, new = self.api.news.popleft()
            most -= 1
            if kind == "node":
                cluster.node_changed(old, new)
            elif kind == "obj":
                cluster.thing_changed(old, new)
            elif new is not None:
                self._mirror.put(self._mirror.decode(msgspec.Raw(msgspec.json.encode(new))))
            else:
                self._mirror.delete(msgspec.convert(old, Pod))

    def kubelets(self) -> None:
        """Terminating pods end, bound ones start; pods of deleted nodes are garbage-collected."""
        now = self.clock.monotonic()
        for name, pod in list(self.api.pods.items()):
            node = pod["spec"].get("nodeName")
            if not node:
                continue
            if node not in self.api.nodes or self.api.ends_at.get(name, float("inf")) <= now:
                self.api.change_pod(name, lambda _: None)
            elif pod["status"]["phase"] == "Pending" and name not in self.stuck:
                self.api.change_pod(name, lambda p: p | {"status": p["status"] | {"phase": "Running"}})

    def report(self, node: str) -> None:
        """What the agent sees now: running pods, and the room that is left."""
        if node not in self.api.nodes:
            return
        running = [p for p in self.api.pods.values() if p["spec"].get("nodeName") == node]
        running = [p for p in running if p["status"]["phase"] == "Running"]
        pods = [msgspec.convert(p, Pod) for p in running]
        uids = tuple(pod.uid for pod in pods)
        if node in self.with_room:
            report = self._with_room(node, pods, uids)
        else:
            report = make_report(node, CAPACITY - sum(map(units_of, pods)), uids)
        self.reports[node] = report
        self.parts.cluster.apply_report(report)

    def _with_room(self, node: str, pods: list[Pod], uids: tuple[str, ...]) -> NodeReport:
        room = [full - sum(_real_cost(pod)[i] for pod in pods) for i, full in enumerate(FULL)]
        here = {pod.spec.containers[0].image for pod in pods}
        return make_report(
            node,
            max(0.0, min(has / one for has, one in zip(room, MEAN, strict=True))),
            uids,
            room=tuple(room),
            full=FULL,
            cost_ratio=tuple(one / full for one, full in zip(MEAN, FULL, strict=True)),
            class_costs=tuple(class_cost(i, self.measures[i]) for i in sorted(here & self.measures.keys())),
        )

    def aggregate(self, image: str, factor: float | None) -> None:
        """The aggregator sends a new cost of a class; None: it no longer has one."""
        cost = class_cost(image, factor or 1.0)
        self.aggregated = {key: known for key, known in self.aggregated.items() if key != cost.key}
        if factor is not None:
            self.aggregated[cost.key] = cost
        self.parts.cluster.aggregated(self.aggregated, RESOURCES)

    async def schedule(self) -> int:
        """Run a cycle for every pod of the active queue; the bindings complete later."""
        attempts = 0
        while (queued := self.parts.queue.pop(self.clock.monotonic())) is not None:
            self.scheduler._attempt(queued)
            await asyncio.sleep(0)
            attempts += 1
            assert attempts < 5000, f"{queued.info.pod.key} is tried again and again"
        return attempts

    async def rest(self, seconds: int = REST) -> None:
        """No more faults; everything in progress finishes."""
        for name in sorted(self.api.undecodable):
            self.api.spoil(name, False)
        self.api.faults.clear()
        self.api.evictions_fail = 0
        for _ in range(seconds):
            self.deliver()
            self.kubelets()
            self.deliver()
            for node in list(self.api.nodes):
                self.report(node)
            self.parts.cluster.tick()
            await self.schedule()
            await self.clock.turn(1.0)

    # --- what must hold afterwards ---

    def check(self) -> None:
        assert not self.needless, self.needless
        self._no_pod_waits_that_fits()
        self._the_ledger_is_that_of_a_restart()

    def _no_pod_waits_that_fits(self) -> None:
        for plain in self.api.pods.values():
            pod = msgspec.convert(plain, Pod)
            if pod.spec.node_name or pod.terminating:
                continue
            queued = self.parts.queue.get(pod.uid)
            assert queued is not None, f"{pod.name} was lost"
            if queued.pod_group is not None:
                self._no_group_waits_that_fits(queued.pod_group)
                continue
            profile = self.parts.profiles[pod.spec.scheduler_name]
            cycle = Cycle(queued.info, self.parts.snapshot)
            feasibility = profile.feasible.run(cycle)
            fits = [self.parts.snapshot.name(int(row)) for row in feasibility.rows]
            fits = [] if pod.spec.scheduling_gates else fits
            assert not fits, f"{pod.name} waits ({queued.place}) and fits {fits}"
            place = "gated" if pod.spec.scheduling_gates else "waiting"
            assert queued.place == place, f"{pod.name} is in {queued.place}"
            if pod.spec.scheduling_gates:
                continue
            for plugin in profile.post_filters:
                answer = plugin.post_filter(cycle, feasibility)
                assert not answer, f"{pod.name} waits, and evicting pods would help or is in progress: {answer}"

    def _no_group_waits_that_fits(self, group: QueuedGroup) -> None:
        first, *others = group.members.values()
        assert {other.place for other in others} <= {"grouped"}
        profile = self.parts.profiles[first.info.pod.spec.scheduler_name]
        ready = profile.groupings[0].group_ready(group.key[2], first.infos).ok
        # Each report may help a group (wake_ups.py); its gate is checked again only when something does.
        places = ("waiting", "backoff") if ready else ("waiting", "backoff", "gated")
        assert first.place in places, f"group {group.key[2]} is in {first.place}"
        if ready:
            found = decide_group(profile, self.parts.cluster, first.infos, np.random.default_rng(0))
            assert found.refused is not None, f"group {group.key[2]} waits, and fits"

    def _the_ledger_is_that_of_a_restart(self) -> None:
        fresh = assemble(self.settings, self.clock, None)
        vars(fresh.classes).update(vars(self.parts.classes))  # with the same class costs
        for node in self.api.nodes.values():
            fresh.cluster.node_changed(None, node)
        for plain in self.api.pods.values():
            fresh.cluster.pod_changed(None, msgspec.convert(plain, Pod))
        for name in self.api.nodes:
            fresh.ledger.report(self.reports[name], self.clock.monotonic())
        for hold in self.parts.ledger.holds():
            fresh.ledger.hold(hold.name, hold.node, hold.claim, hold.until, self.clock.monotonic())
        live = {name: account for name, account in self.parts.ledger.accounts() if name in self.api.nodes}
        assert len(live) == len(self.api.nodes)
        differences = [d for d in ledger_differences(self.parts.ledger, fresh.ledger) if d.split(":")[0] in live]
        assert not differences, differences


def class_cost(image: str, factor: float) -> ClassCost:
    revision = class_of("default", "", {}, {}, [image]).revision
    return make_cost(f"default/image:{image}", *(factor * one for one in COSTS[image]), revision=revision)


def _real_cost(pod: Pod) -> tuple[float, ...]:
    """A pod with a units annotation costs that many mean pods."""
    if ANNOTATION in pod.metadata.annotations:
        return tuple((read_units(pod) or 1.0) * one for one in MEAN)
    return COSTS[pod.spec.containers[0].image]


def node(name: str, cpu: str = "4", **spec: Any) -> Node:
    return make_node(name, cpu=cpu, spec=spec)
