"""The faults of a soak, in the cluster and in the connection to it. One method per kind; each ends what it began."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from harness.cluster.cluster import Cluster
from harness.cluster.played import Nodes
from harness.soak import objects
from harness.soak.agents import Agents
from harness.soak.cluster import NAMESPACE, POLICY, SIZES, add_node, attempt, insist
from harness.soak.history import FaultBegan, FaultEnded
from harness.soak.observer import Observer
from harness.soak.proxy import Breakage, Cut, Lose, Proxy, Refuse, Request, Rule, Verdict
from harness.soak.recorder import Recorder
from harness.soak.replicas import Replica

PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
CLAIMS = f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
POLICY_BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
SELECTED = "volume.kubernetes.io/selected-node"
RECOVERY = 120.0  # s that a component may take to recover
HUNG_PODS = 20  # more than there are slots for requests


@dataclass
class Stage:
    """Everything that can be broken."""

    cluster: Cluster
    nodes: Nodes
    recorder: Recorder
    observer: Observer
    agents: Agents
    breakage: Breakage
    proxies: list[Proxy]
    replicas: list[Replica]
    may_start: dict[str, asyncio.Event]  # by replica; clear: it is not restarted

    @property
    def leader(self) -> Replica | None:
        """The replica that holds the Lease, if it lives."""
        for replica in self.replicas:
            if replica.alive and replica.identity == self.observer.holder:
                return replica
        return None


class Faults:
    def __init__(self, stage: Stage, rng: random.Random) -> None:
        self._stage, self._rng = stage, rng
        self._api = stage.cluster.api
        self._numbers = itertools.count(1)
        self._control_plane = asyncio.Lock()  # kube-apiserver does not start without etcd
        self._after: set[asyncio.Task[None]] = set()
        self._broken_nodes: set[str] = set()  # each is used by one fault at a time
        self.spare_processes = False  # no fault may make a replica end
        self.kinds: dict[str, Callable[[], Awaitable[None]]] = {
            "api-server-killed": self._api_server_killed,
            "etcd-killed": self._etcd_killed,
            "leader-killed": self._leader_killed,
            "standby-killed": self._standby_killed,
            "watches-cut": self._watches_cut,
            "events-refused": self._events_refused,
            "provisioner-hung": self._provisioner_hung,
            "null-lists": self._null_lists,
            "huge-amounts": self._huge_amounts,
            "wrong-types": self._wrong_types,
            "node-made-again": self._node_made_again,
            "evictions-refused": self._evictions_refused,
            "too-many-requests": self._too_many_requests,
            "namespace-deleted": self._namespace_deleted,
            "bindings-refused": self._bindings_refused,
            "answers-lost": self._answers_lost,
            "agents-silent": self._agents_silent,
        }
        self.done: Counter[str] = Counter(dict.fromkeys(self.kinds, 0))

    def choose(self, count: int) -> list[str]:
        """The kinds that occurred least, in random order."""
        may = [kind for kind in self.kinds if not (self.spare_processes and kind in ENDS_PROCESSES)]
        self._rng.shuffle(may)
        chosen = sorted(may, key=self.done.__getitem__)[:count]
        self._rng.shuffle(chosen)
        return chosen

    async def make(self, kind: str) -> None:
        self.done[kind] += 1
        await self.kinds[kind]()

    async def tidy(self) -> None:
        """Wait for work that continues after the faults: volumes and namespaces that are being deleted."""
        await asyncio.gather(*self._after, return_exceptions=True)

    @asynccontextmanager
    async def _fault(self, kind: str, *, stops_bindings: bool = False) -> AsyncIterator[int]:
        number, recorder = next(self._numbers), self._stage.recorder
        began = FaultBegan(at=time.monotonic(), number=number, kind=kind, stops_bindings=stops_bindings)
        recorder.note(began)
        try:
            yield number
        finally:
            recorder.note(FaultEnded(at=time.monotonic(), number=number))

    @contextmanager
    def _rule(self, rule: Rule) -> Iterator[None]:
        rules = self._stage.breakage.rules
        rules.append(rule)
        try:
            yield
        finally:
            rules.remove(rule)

    def _spares(self, request: Request) -> bool:
        """Whether to leave the request alone: a leader that cannot renew its Lease ends."""
        return self.spare_processes and "/leases/" in request.path

    async def _while(self, least: float, most: float) -> None:
        await asyncio.sleep(self._rng.uniform(least, most))

    async def _until(self, condition: Callable[..., object], *arguments: str) -> None:
        """Wait for a condition that is decided in other processes."""
        async with asyncio.timeout(RECOVERY):
            while not await attempt(condition, *arguments):  # noqa: ASYNC110
                await asyncio.sleep(0.2)

    def _later(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._after.add(task)
        task.add_done_callback(self._after.discard)

    # --- components that are killed ---

    async def _api_server_killed(self) -> None:
        await self._without("kube-apiserver", "api-server-killed")

    async def _etcd_killed(self) -> None:
        await self._without("etcd", "etcd-killed")

    async def _without(self, part: str, kind: str) -> None:
        async with self._control_plane, self._fault(kind):
            await asyncio.to_thread(self._keep_away, part, self._rng.uniform(0.5, 11.0))
            await self._until(self._api.is_ready)

    def _keep_away(self, part: str, seconds: float) -> None:
        with self._stage.cluster.without(part):
            time.sleep(seconds)

    async def _leader_killed(self) -> None:
        async with self._fault("leader-killed"):
            if (leader := self._stage.leader) is not None:
                await self._kill(leader)
            await self._until(lambda: self._stage.leader is not None)

    async def _standby_killed(self) -> None:
        async with self._fault("standby-killed"):
            leader = self._stage.leader
            others = [replica for replica in self._stage.replicas if replica is not leader and replica.alive]
            if others:
                await self._kill(self._rng.choice(others))

    async def _kill(self, replica: Replica) -> None:
        may_start = self._stage.may_start[replica.name]
        may_start.clear()
        replica.kill()
        await self._while(0.5, 4)
        may_start.set()

    # --- the connection to the API server ---

    async def _watches_cut(self) -> None:
        async with self._fault("watches-cut"):
            for proxy in self._stage.proxies:
                proxy.cut_watches()
            with self._rule(lambda request: Cut() if request.watches else None):
                await self._while(0.0, 4)

    async def _events_refused(self) -> None:
        status = self._rng.choice([405, 413, 429, 500, 503])
        refusal = Refuse(status, "InternalError", 1 if status == 429 else 0)
        async with self._fault("events-refused"):
            with self._rule(lambda request: refusal if request.writes_event else None):
                await self._while(5, 12)

    async def _evictions_refused(self) -> None:
        status = self._rng.choice([403, 429, 500])
        refusal = Refuse(status, "Forbidden", 1 if status == 429 else 0)
        async with self._fault("evictions-refused") as number:
            with self._rule(lambda request: refusal if request.evicts else None):
                names = [f"wants-room-{number}-{i}" for i in range(2)]
                for name in names:
                    urgent = objects.plain_pod(name, "2", nodeSelector={"pool": "full"}, priorityClassName="high")
                    await insist(self._api.post, PODS, urgent)
                await self._while(5, 10)
        self._later(self._delete_after(20, [f"{PODS}/{name}" for name in names]))

    async def _too_many_requests(self) -> None:
        def rule(request: Request) -> Verdict | None:
            busy = not request.watches and not self._spares(request) and self._rng.random() < 0.5
            return Refuse(429, "TooManyRequests", 1) if busy else None

        async with self._fault("too-many-requests"):
            with self._rule(rule):
                await self._while(3, 8)

    async def _answers_lost(self) -> None:
        """Bindings arrive and their responses are lost; in half of the cases the API server is then unreachable."""
        away: set[str] = set()
        out_of_reach = self._rng.random() < 0.5

        def rule(request: Request) -> Verdict | None:
            if request.replica in away and not self._spares(request):
                return Cut()
            if request.binds:
                if out_of_reach:
                    away.add(request.replica)
                return Lose()
            return None

        async with self._fault("answers-lost", stops_bindings=True):
            with self._rule(rule):
                await self._while(3, 6)

    async def _bindings_refused(self) -> None:
        body = {"metadata": {"name": POLICY}, "spec": {"policyName": POLICY, "validationActions": ["Deny"]}}
        async with self._fault("bindings-refused", stops_bindings=True):
            await insist(self._api.post, POLICY_BINDINGS, body)
            try:
                await self._while(4, 8)
            finally:
                await insist(self._api.delete, f"{POLICY_BINDINGS}/{POLICY}")
            await asyncio.sleep(2)  # the API server's watch of its policies takes a moment

    # --- objects ---

    async def _null_lists(self) -> None:
        rewriters = self._stage.breakage.rewriters
        async with self._fault("null-lists"):
            nodes = self._rng.sample(sorted(SIZES), 2)
            images = {"status": {"images": [{"names": None, "sizeBytes": 5}]}}
            for node in nodes:
                await insist(self._api.patch, f"/api/v1/nodes/{node}/status", images)
            rewriters.append(objects.with_nulls)
            try:
                await self._while(4, 8)
            finally:
                rewriters.remove(objects.with_nulls)
            for node in nodes:
                await insist(self._api.patch, f"/api/v1/nodes/{node}/status", {"status": {"images": None}})

    async def _huge_amounts(self) -> None:
        async with self._fault("huge-amounts") as number:
            node = self._rng.choice([name for name, size in SIZES.items() if size[0] == "open"])
            made = objects.huge_pods(f"huge-{number}", node)
            for huge in made:
                await insist(self._api.post, PODS, huge)
            await self._while(5, 10)
            for huge in made:
                await insist(self._api.delete, f"{PODS}/{huge['metadata']['name']}?gracePeriodSeconds=0")

    async def _wrong_types(self) -> None:
        rewriters = self._stage.breakage.rewriters
        async with self._fault("wrong-types") as number:
            changer = objects.TypeChanger(self._rng, 0.15)
            rewriters.append(changer)
            try:
                for node in self._rng.sample(sorted(SIZES), 6):  # so that there are events to rewrite
                    await self._touch(f"/api/v1/nodes/{node}", f"before-{number}")
                await self._while(3, 6)
            finally:
                rewriters.remove(changer)
            for path in sorted(changer.victims):  # afterwards, send the correct object
                await self._touch(path, f"after-{number}")

    async def _touch(self, path: str, value: str) -> None:
        await insist(self._api.patch, path, {"metadata": {"annotations": {"carico.test/touched": value}}})

    @contextmanager
    def _some_nodes(self, count: int) -> Iterator[list[str]]:
        nodes = self._rng.sample(sorted(SIZES.keys() - self._broken_nodes), count)
        self._broken_nodes.update(nodes)
        try:
            yield nodes
        finally:
            self._broken_nodes.difference_update(nodes)

    async def _node_made_again(self) -> None:
        with self._some_nodes(1) as [node]:
            await self._make_again(node)

    async def _make_again(self, node: str) -> None:
        async with self._fault("node-made-again"):
            agent = self._stage.agents.by_node[node]
            await agent.stop()
            await insist(self._stage.nodes.remove, node)
            await self._while(2, 6)
            await insist(add_node, self._stage.nodes, node)
            agent.start()
            await self._until(lambda: node in self._stage.recorder.state.nodes)

    async def _agents_silent(self) -> None:
        with self._some_nodes(4) as nodes:
            await self._silence(nodes)

    async def _silence(self, nodes: list[str]) -> None:
        async with self._fault("agents-silent"):
            silent = [self._stage.agents.by_node[node] for node in nodes]
            for agent in silent:
                await agent.stop()
            await self._while(3, 14)
            for agent in silent:
                agent.start()

    async def _namespace_deleted(self) -> None:
        async with self._fault("namespace-deleted") as number:
            name = f"soak-gone-{number}"
            root = f"/api/v1/namespaces/{name}"
            await insist(self._api.post, "/api/v1/namespaces", {"metadata": {"name": name}})
            await self._until(self._api.get, f"{root}/serviceaccounts/default")
            held = objects.bare_pod("held", nodeSelector={"no": "such-node"})
            held["metadata"]["finalizers"] = [objects.HOLD]
            goes = [objects.bare_pod(f"goes-{i}", nodeSelector={"pool": "open"}) for i in range(4)]
            waits = [objects.bare_pod(f"waits-{i}", nodeSelector={"pool": "full"}, cpu="64") for i in range(4)]
            for pod in (held, *waits, *goes):
                await insist(self._api.post, f"{root}/pods", pod)
            await insist(self._api.delete, root)
            await self._while(4, 7)
            await insist(self._api.patch, f"{root}/pods/held", {"metadata": {"finalizers": None}})
            await asyncio.sleep(1)  # the rest is deleted automatically

    async def _provisioner_hung(self) -> None:
        """More pods wait for volumes than there are slots for requests; two of them are deleted in the meantime."""
        async with self._fault("provisioner-hung") as number:
            names = [f"volume-{number}-{i}" for i in range(HUNG_PODS)]
            for name in names:
                await insist(self._api.post, CLAIMS, objects.claim(name))
                mounted = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
                await insist(
                    self._api.post, PODS, objects.bare_pod(name, volumes=mounted, nodeSelector={"pool": "open"})
                )
            await self._while(24, 30)
            for name in names[:2]:
                await insist(self._api.delete, f"{PODS}/{name}")
            await self._provision(names)
        self._later(self._take_volumes_away(names))

    async def _provision(self, names: list[str]) -> None:
        """The provisioner works again: every claim for which a scheduler has chosen a node gets its volume."""
        for name in names:
            found = await insist(self._api.get, f"{CLAIMS}/{name}")
            node = ((found or {}).get("metadata", {}).get("annotations") or {}).get(SELECTED)
            if found is not None and node and not found["spec"].get("volumeName"):
                await insist(self._api.post, VOLUMES, objects.volume_for(found, node))

    async def _take_volumes_away(self, names: list[str]) -> None:
        for _ in range(10):  # for some, no node was chosen before
            await asyncio.sleep(2)
            await self._provision(names)
        for name in names:
            claim = await insist(self._api.get, f"{CLAIMS}/{name}")
            await insist(self._api.delete, f"{PODS}/{name}")
            await insist(self._api.delete, f"{CLAIMS}/{name}")
            if claim is not None:
                await insist(self._api.delete, f"{VOLUMES}/pv-{claim['metadata']['uid']}")

    async def _delete_after(self, seconds: float, paths: list[str]) -> None:
        await asyncio.sleep(seconds)
        for path in paths:
            await insist(self._api.delete, path)


ENDS_PROCESSES = frozenset({"leader-killed", "standby-killed", "api-server-killed", "etcd-killed"})
