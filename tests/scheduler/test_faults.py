"""Everything around the scheduler breaks: nothing is lost, nothing is bound twice, and the books still add up."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from carico.errors import CaricoError
from carico.kube import credentials
from carico.kube.client import Client
from carico.scheduler.assembly import assemble
from carico.scheduler.cluster_cache import ledger_differences
from carico.scheduler.cycle.decision_log import load, replay
from carico.scheduler.process import Scheduler
from carico.settings import SchedulerSettings
from harness.cluster.cluster import Cluster, pod
from harness.cluster.fixtures import AnyCluster
from harness.cluster.ports import free_port
from harness.embedded.embedded_cluster import EmbeddedCluster
from harness.kube.faulty import CUT, LOSE, FaultyServer
from harness.scheduler.fleet import Fleet

NODES, PODS, PATIENCE = 5, 60, 90.0
# For those who are to lose it …
SHORT = {"leader_elect_lease_duration": 4.0, "leader_elect_renew_deadline": 3.0}
# … and what no fault and no busy machine outlasts.
LONG: dict[str, Any] = {"leader_elect_lease_duration": 100.0, "leader_elect_renew_deadline": 90.0}


class Stage:
    """A scheduler in this process behind a faulty proxy; agents, pods and the oracle use the real API server."""

    def __init__(self, cluster: Cluster | EmbeddedCluster, namespace: str, proxy: FaultyServer, client: Client) -> None:
        port = free_port()
        self.cluster, self.namespace, self.proxy, self.client = cluster, namespace, proxy, client
        nodes = {f"kwok-{i:04d}": 50.0 for i in range(NODES)}
        self.fleet = Fleet(client, nodes, [f"127.0.0.1:{port}"], namespace, lag=0.5)
        self.settings = SchedulerSettings(
            kubeconfig=proxy.kubeconfig, listen="127.0.0.1:0", debug_listen="127.0.0.1:0",
            grpc_listen=f"127.0.0.1:{port}", plaintext=True,
            validate=True, heartbeat=1.0, first_backoff=0.2, last_backoff=0.5, startup_limit=50, startup_limit_idle=50,
            leader_elect_resource_namespace=namespace, leader_elect_retry_period=0.3, **LONG,
        )  # fmt: skip
        self.scheduler = Scheduler(self.settings)

    def use(self, **changes: Any) -> None:
        """Another scheduler instead, with other settings."""
        self.settings = dataclasses.replace(self.settings, **changes)
        self.scheduler = Scheduler(self.settings)

    def notes(self, path: str) -> list[str]:
        return [event["note"] for event in self.cluster.api.get(path)["items"] if event["reason"] == "Scheduled"]

    async def create(self, first: int = 0, last: int = PODS) -> None:
        pods = [pod(f"p-{i}", ["x"], schedulerName="carico") for i in range(first, last)]
        await asyncio.to_thread(self.cluster.api.post_all, f"/api/v1/namespaces/{self.namespace}/pods", pods)

    async def settled(self, bound: int = PODS) -> None:
        """All bound, and the agents have counted them."""
        await self.fleet.until(bound, PATIENCE)
        ledger, queue = self.scheduler.parts.ledger, self.scheduler.parts.queue
        async with asyncio.timeout(PATIENCE):
            while len(queue) or self.scheduler.parts.cluster.assumed or ledger.reserved.sum() > 0:  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    def check(self, bound: int = PODS) -> None:
        assert self.fleet.bound == bound
        assert all(len(nodes) == 1 for nodes in self.fleet.bound_to.values())
        parts = self.scheduler.parts
        parts.ledger.validate()
        fresh = assemble(dataclasses.replace(self.settings, validate=False), self.scheduler.clock, None)
        for node in self.scheduler.watches.nodes.store.values():
            fresh.cluster.node_changed(None, node)
        for each in self.scheduler.watches.pods.store.values():
            fresh.cluster.pod_changed(None, each)
        for _, account in parts.ledger.accounts():
            if account.report is not None:
                fresh.ledger.report(account.report, self.scheduler.clock.monotonic())
        assert ledger_differences(parts.ledger, fresh.ledger) == []
        assert replay(load(parts.ring.dump())) == []


Scenario = Callable[[Stage], Awaitable[None]]


@pytest.fixture
def play(any_cluster: AnyCluster, tmp_path: Path) -> Callable[[Scenario], None]:
    def run(scenario: Scenario) -> None:
        cluster = any_cluster(NODES)

        async def whole() -> None:
            client = Client(credentials.from_kubeconfig(cluster.kubeconfig))
            try:
                async with FaultyServer(cluster.kubeconfig, tmp_path) as proxy:
                    stage = Stage(cluster, namespace, proxy, client)
                    async with stage.fleet.at_work():
                        await scenario(stage)
            finally:
                await client.close()

        with cluster.namespace() as namespace:
            asyncio.run(whole())

    return run


@asynccontextmanager
async def running(stage: Stage) -> AsyncIterator[asyncio.Task[None]]:
    end = asyncio.Event()
    task = asyncio.create_task(stage.scheduler.run(end))
    try:
        yield task
    finally:
        end.set()
        await asyncio.gather(task, return_exceptions=True)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("status", [404, 409, 429, 500, LOSE, CUT])
def test_bindings_that_go_wrong(play: Callable[[Scenario], None], status: int) -> None:
    async def scenario(stage: Stage) -> None:
        count = 0

        def fault(method: str, path: str) -> int | None:
            nonlocal count
            if method == "POST" and path.endswith("/binding"):
                count += 1
                return status if count % 3 == 0 and count < 60 else None
            return None

        stage.proxy.fault = fault
        async with running(stage):
            await stage.create()
            await stage.settled()
            stage.check()

    play(scenario)


def test_the_api_server_is_away_in_the_middle(play: Callable[[Scenario], None]) -> None:
    async def scenario(stage: Stage) -> None:
        async with running(stage):
            await stage.create(0, PODS // 2)
            await stage.fleet.until(PODS // 4)
            await stage.proxy.shut()
            await stage.create(PODS // 2, PODS)
            await asyncio.sleep(1.5)  # far shorter than the lease: this replica still leads when it is back
            await stage.proxy.open()
            await stage.settled()
            stage.check()

    play(scenario)


def test_the_answers_to_bindings_are_lost_and_the_api_server_goes_away(play: Callable[[Scenario], None]) -> None:
    async def scenario(stage: Stage) -> None:
        count, away = 0, False

        def fault(method: str, path: str) -> int | None:
            nonlocal count, away
            if method == "POST" and path.endswith("/binding"):
                count += 1
                if count == 10:  # every second one before it was taken
                    away = True
                return LOSE if count % 2 else CUT
            return CUT if away else None

        stage.proxy.fault = fault
        parts = stage.scheduler.parts
        async with running(stage):
            await stage.create()
            await until(lambda: parts.waiting.counts().get("outcome", 0) > 0)
            assert all(uid in parts.ledger for uid in parts.cluster.assumed)  # nothing was given back
            stage.proxy.fault = lambda _method, _path: None
            await stage.settled()
            stage.check()

    play(scenario)


def test_a_provisioner_that_hangs_blocks_no_other_pod(play: Callable[[Scenario], None]) -> None:
    async def scenario(stage: Stage) -> None:
        stage.use(binders=4)
        api, name, waiting = stage.cluster.api, f"hangs-{stage.namespace}", 12
        root, classes = f"/api/v1/namespaces/{stage.namespace}", "/apis/storage.k8s.io/v1/storageclasses"
        kind = {"metadata": {"name": name}, "provisioner": "disk.example.com"}

        def databases() -> None:
            api.post(classes, kind | {"volumeBindingMode": "WaitForFirstConsumer"})
            for i in range(waiting):
                requests = {"resources": {"requests": {"storage": "1Gi"}}}
                spec = {"storageClassName": name, "accessModes": ["ReadWriteOnce"]} | requests
                api.post(f"{root}/persistentvolumeclaims", {"metadata": {"name": f"c-{i}"}, "spec": spec})
                volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": f"c-{i}"}}]
                api.post(f"{root}/pods", pod(f"db-{i}", ["x"], schedulerName="carico", volumes=volumes))

        def gone() -> None:
            for i in range(waiting):
                api.delete(f"{root}/pods/db-{i}")

        try:
            async with running(stage):
                await asyncio.to_thread(databases)
                await until(lambda: stage.scheduler.parts.waiting.counts() == {"volumes": waiting})
                await stage.create(0, 10)
                await stage.fleet.until(10, PATIENCE)
                assert stage.scheduler.parts.waiting.counts() == {"volumes": waiting}
                await asyncio.to_thread(gone)
                await until(lambda: stage.scheduler.binder.in_flight == 0)
                await stage.settled(10)
                stage.check(10)
        finally:
            await asyncio.to_thread(api.delete, f"{classes}/{name}")

    play(scenario)


def test_watches_are_cut_again_and_again(play: Callable[[Scenario], None]) -> None:
    async def scenario(stage: Stage) -> None:
        async with running(stage):
            creating = asyncio.create_task(stage.create())
            for _ in range(10):
                await asyncio.sleep(0.2)
                stage.proxy.cut()
            await creating
            await stage.settled()
            stage.check()

    play(scenario)


def test_a_leader_that_loses_its_lease_ends_and_binds_no_more(play: Callable[[Scenario], None]) -> None:
    async def scenario(stage: Stage) -> None:
        stage.use(**SHORT)
        async with running(stage) as task:
            await stage.create(0, 5)
            await stage.fleet.until(5)
            stage.proxy.fault = lambda _method, path: 500 if "/leases/" in path else None
            with pytest.raises(CaricoError, match="lease was lost"):
                await asyncio.wait_for(asyncio.shield(task), PATIENCE)
            stage.proxy.seen.clear()
            await stage.create(5, 10)
            await asyncio.sleep(0.5)
            assert not [path for _, path in stage.proxy.seen if path.endswith("/binding")]
        stage.proxy.fault = lambda _method, _path: None
        stage.use(**LONG)  # its supervisor restarts it
        async with running(stage):
            await stage.settled(10)
            stage.check(10)

    play(scenario)


@pytest.mark.parametrize("broken", [True, False], ids=["stream broken", "stream open"])
def test_half_of_the_nodes_fall_silent(play: Callable[[Scenario], None], broken: bool) -> None:
    async def scenario(stage: Stage) -> None:
        quiet = {"kwok-0000", "kwok-0001", "kwok-0002"}
        async with running(stage):
            await stage.create(0, 10)
            await stage.settled(10)
            before = {node: stage.fleet.on(node) for node in quiet}
            for node in quiet:
                stage.fleet.silence(node, broken=broken)
            ledger = stage.scheduler.parts.ledger
            rows = [account.row for node, account in ledger.accounts() if node in quiet]
            async with asyncio.timeout(PATIENCE):
                while ledger.fresh(stage.scheduler.clock.monotonic())[rows].any():  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            await stage.create(10, 40)
            await stage.settled(40)
            assert not any(stage.fleet.on(node) - before[node] for node in quiet)  # older ones may leave
            stage.check(40)

    play(scenario)


def test_event_and_metric_show_pods_on_stale_nodes(play: Callable[[Scenario], None]) -> None:
    async def scenario(stage: Stage) -> None:
        for node in stage.fleet.capacity:
            stage.fleet.silence(node, broken=True)
        stage.use(on_stale="requests")
        async with running(stage):
            await stage.create(0, 3)
            await stage.fleet.until(3)
            path = f"/apis/events.k8s.io/v1/namespaces/{stage.namespace}/events"
            async with asyncio.timeout(PATIENCE):
                while len(notes := await asyncio.to_thread(stage.notes, path)) < 3:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            told = " (its capacity report is stale; on_stale is 'requests')"
            assert all(note.endswith(told) for note in notes)
            counted = stage.scheduler.parts.registry.get_sample_value
            assert counted("carico_scheduler_stale_placements_total", {"on_stale": "requests"}) == 3
            assert counted("carico_scheduler_stale_nodes") == NODES
            assert replay(load(stage.scheduler.parts.ring.dump())) == []  # no report had been used

    play(scenario)


@pytest.mark.parametrize("seconds", [-3600.0, 3600.0])
def test_the_clock_of_the_nodes_is_an_hour_off(play: Callable[[Scenario], None], seconds: float) -> None:
    async def scenario(stage: Stage) -> None:
        stage.fleet.clock_error = seconds
        async with running(stage):
            await stage.create(0, 20)
            await stage.settled(20)
            stage.check(20)

    play(scenario)


def test_a_store_of_events_that_is_down_stops_no_pod(play: Callable[[Scenario], None]) -> None:
    async def scenario(stage: Stage) -> None:
        stage.use(event_queue=10, event_workers=4)
        stage.proxy.fault = lambda _method, path: 500 if "/events" in path else None
        async with running(stage):
            await stage.create(0, PODS // 2)  # more than Events may wait
            await stage.settled(PODS // 2)
            await stage.create(PODS // 2, PODS)
            await stage.settled()
            stage.check()
            stage.proxy.fault = lambda _method, _path: None
            path = f"/apis/events.k8s.io/v1/namespaces/{stage.namespace}/events"
            async with asyncio.timeout(PATIENCE):
                while len(notes := await asyncio.to_thread(stage.notes, path)) < 50:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            lost = stage.scheduler.parts.registry.get_sample_value("carico_scheduler_events_lost_total")
            assert lost is not None
            assert len(set(notes)) + lost >= 50

    play(scenario)


def test_an_eviction_that_is_refused_twice_takes_place(play: Callable[[Scenario], None]) -> None:
    async def scenario(stage: Stage) -> None:
        refused = 2

        def fault(method: str, path: str) -> int | None:
            nonlocal refused
            if method != "DELETE" or "/pods/" not in path or not refused:
                return None
            refused -= 1
            return 429

        def wants_the_port(name: str, **spec: Any) -> Any:
            made = pod(
                name, ["x"], schedulerName="carico", nodeSelector={"kubernetes.io/hostname": "kwok-0001"}, **spec
            )
            made["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 8080}]
            return made

        def is_bound(path: str) -> bool:
            return "nodeName" in stage.cluster.api.get(path)["spec"]

        path = f"/api/v1/namespaces/{stage.namespace}/pods"
        stage.proxy.fault = fault
        async with running(stage):
            await asyncio.to_thread(stage.cluster.api.post, path, wants_the_port("victim"))
            await stage.fleet.until(1)
            urgent = wants_the_port("urgent", priorityClassName="system-cluster-critical")
            await asyncio.to_thread(stage.cluster.api.post, path, urgent)
            async with asyncio.timeout(PATIENCE):
                while not await asyncio.to_thread(is_bound, f"{path}/urgent"):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            assert not refused

    play(scenario)
