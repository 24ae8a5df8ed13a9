"""Fifteen minutes of faults on real components: no pod lost, bound twice, evicted without need or starved.

A real API server, 50 nodes simulated by kwok with the behaviour of kubelets, two replicas of Carico behind a proxy
each, a kube-scheduler that binds its own pods to the same nodes, agents whose reports lag by 0.5 to 3 s. Storms of
faults alternate with calm, in which the benchmark looks for pods that wait although they fit. MINUTES=60 runs longer,
SEED=7 repeats the choices of an earlier run. If a figure is bad, the logs are kept and their folder is printed.
"""

from __future__ import annotations

import os

# Read when gRPC is loaded. The replicas are started from here, and gRPC's fork handlers may end the child.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

import asyncio
import logging
import math
import random
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from harness.cluster.cluster import Cluster
from harness.cluster.played import Nodes, nodes_played
from harness.soak import checks, report
from harness.soak.agents import Agents
from harness.soak.cluster import SIZES, ComponentSupervisor, prepare
from harness.soak.faults import Faults, Stage
from harness.soak.history import SETTLED_AFTER, BindingSent, Bound, Evicted, EvictionSent, PodSeen
from harness.soak.looks import BETWEEN, Looks, lost
from harness.soak.observer import Observer
from harness.soak.proxy import UID, Breakage, Proxy, Request
from harness.soak.recorder import Recorder
from harness.soak.replicas import Replica
from harness.soak.workload import Workload

MINUTES = float(os.environ.get("MINUTES", "15"))
SEED = int(os.environ.get("SEED") or random.SystemRandom().randrange(10**6))
LEASE_DURATION = 15.0  # s, the default of `carico scheduler`
FAULTS_PER_MINUTE = 11
FILL = 25.0  # s for the cluster to fill before the first storm
STORM = 18.0  # s in which the faults of one storm begin
AFTER_LAST = 60.0  # s from the last fault to the search for lost pods
ROUND = 70.0  # s of a storm and the calm after it, at first; then as measured
# From minute 10 on, faults that end replicas occur only in periods of five minutes, with half of the run between them:
# in between, the memory of long-lived processes is compared, and a new leader's caches take minutes to fill.
ENDING, SPARED = 5.0, max(10.0, MINUTES / 2)  # min
THREADS = 48


class Soak:
    def __init__(self, stage: Stage, workload: Workload, rng: random.Random) -> None:
        self.stage, self._workload = stage, workload
        self.recorder, self.faults, self.looks = stage.recorder, Faults(stage, rng), Looks(stage.recorder, rng)
        self._rng = rng
        self._began = time.monotonic()
        self._rounds: list[float] = []
        self.lost: list[str] = []

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._began

    async def run(self) -> None:
        say = asyncio.create_task(self._report())
        try:
            await self._wait_for_leader()
            await asyncio.sleep(FILL)
            end = 60 * MINUTES - AFTER_LAST
            while self.elapsed < end:
                self.faults.spare_processes = spared(self.elapsed / 60)
                began = self.elapsed
                await self._storm(self._how_many(end))
                await self._calm()
                self._rounds.append(self.elapsed - began)
            await self.faults.tidy()
            await asyncio.sleep(max(0.0, self.recorder.state.calm_since + AFTER_LAST - time.monotonic()))
            await self._look_for_lost()
        finally:
            say.cancel()
            await asyncio.gather(say, return_exceptions=True)

    def _how_many(self, end: float) -> int:
        left = FAULTS_PER_MINUTE * MINUTES - self.faults.done.total()
        length = max(self._rounds, default=ROUND)
        return max(3, min(len(self.faults.kinds), math.ceil(left / max(1, (end - self.elapsed) // length))))

    async def _storm(self, count: int) -> None:
        async def one(kind: str) -> None:
            # What lasts longest begins first.
            await asyncio.sleep(self._rng.uniform(0, 3 if kind == "provisioner-hung" else STORM))
            await self.faults.make(kind)

        async with asyncio.TaskGroup() as group:
            for kind in self.faults.choose(count):
                group.create_task(one(kind))

    async def _calm(self) -> None:
        """Create and delete nothing: an unrelated event could wake up a forgotten pod."""
        self._workload.goes_on.clear()
        try:
            await asyncio.sleep(SETTLED_AFTER + 0.5)
            leader = self.stage.leader
            if leader is not None:
                await self.looks.look(leader)
        finally:
            self._workload.goes_on.set()

    async def _look_for_lost(self) -> None:
        """Twice: a pod that was just created is not lost."""
        found: set[str] | None = None
        for _ in range(2):
            leader = self.stage.leader
            queue = await leader.page("/debug/queue") if leader is not None else None
            queued = {row["pod"] for row in queue["pods"]} if queue is not None else set()
            present = set(lost(self.recorder.state, queued))
            found = present if found is None else found & present
            await asyncio.sleep(BETWEEN)
        self.lost = sorted(found or ())

    async def _wait_for_leader(self) -> None:
        async with asyncio.timeout(120):
            while self.stage.leader is None:  # noqa: ASYNC110 - decided in other processes
                await asyncio.sleep(0.2)
        self._began = time.monotonic()

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(30)
            pods, bound = _count(self.recorder)
            waiting = sum(1 for _ in self.recorder.state.waiting())
            leader = self.stage.leader
            crashes = sum(len(replica.crashes) for replica in self.stage.replicas)
            print(
                f"{self.elapsed:5.0f} s  {self.faults.done.total():3} faults, {pods} pods, {bound} bound, "
                f"{waiting} waiting, {len(self.looks.stuck)} stuck, {crashes} crashes, "
                f"leader {leader.identity if leader else '-'}",
                flush=True,
            )


def spared(minute: float) -> bool:
    """
    >>> [spared(minute) for minute in (5, 11, 19, 21, 26)]
    [False, True, True, False, True]
    """
    return minute > checks.FIRST_MINUTES and (minute - checks.FIRST_MINUTES) % (SPARED + ENDING) < SPARED


def _count(recorder: Recorder) -> tuple[int, int]:
    """Our pods, and how many of them were bound."""
    ours = {event.uid for event in recorder.history if isinstance(event, PodSeen) and event.ours}
    return len(ours), len({event.uid for event in recorder.history if isinstance(event, Bound)} & ours)


class Notes:
    """Records Bindings and evictions as they pass the proxies."""

    def __init__(self, recorder: Recorder, observer: Observer) -> None:
        self._recorder, self._observer = recorder, observer

    def asked(self, request: Request) -> None:
        if request.begins_eviction:
            self._recorder.note(EvictionSent(at=time.monotonic(), uid=self._victim(request)))

    def passed(self, request: Request, status: int, sent_at: float) -> None:
        if request.binds:
            uid, node, now = _found(UID, request.body), _node(request.body), time.monotonic()
            self._recorder.note(BindingSent(at=sent_at, uid=uid, node=node, status=status, answered_at=now))
        elif request.evicts and 200 <= status < 300:
            self._recorder.note(Evicted(at=sent_at, uid=self._victim(request)))

    def _victim(self, request: Request) -> str:
        if uid := _found(UID, request.body):
            return uid
        _, namespace, _, name, *_ = request.path.partition("?")[0].removeprefix("/api/v1").split("/")[1:]
        pod = self._observer.objects.get(f"{namespace}/{name}")
        return str(pod["metadata"]["uid"]) if pod is not None else ""


def _found(pattern: Any, body: bytes) -> str:
    match = pattern.search(body)
    return match[0].decode() if match else ""


def _node(body: bytes) -> str:
    return next((name for name in SIZES if name.encode() in body), "")


@asynccontextmanager
async def staged(cluster: Cluster, nodes: Nodes, folder: Path) -> AsyncIterator[tuple[Soak, list[asyncio.Task[None]]]]:
    rng = random.Random(SEED)
    kubeconfig = await asyncio.to_thread(prepare, cluster, nodes)
    recorder, breakage = Recorder(), Breakage()
    observer = Observer(cluster.api, recorder)
    async with AsyncExitStack() as stack:
        notes = Notes(recorder, observer)
        proxies = [Proxy(name, kubeconfig, folder, breakage, notes.asked, notes.passed) for name in ("a", "b")]
        for proxy in proxies:
            await stack.enter_async_context(proxy)
        replicas = [Replica(p.replica, p.kubeconfig, folder / f"{p.replica}.log", cluster) for p in proxies]
        schedulers = [f"127.0.0.1:{replica.grpc_port}" for replica in replicas]
        agents = Agents({node: size[2] for node, size in SIZES.items()}, schedulers, recorder, rng)
        may_start = {replica.name: asyncio.Event() for replica in replicas}
        stage = Stage(cluster, nodes, recorder, observer, agents, breakage, proxies, replicas, may_start)
        await observer.start()
        stack.callback(observer.end)
        supervisor, workload = ComponentSupervisor(cluster), Workload(cluster.api, rng)
        work = [observer.follow_lease(), agents.keep_reporting(), workload.run()]
        work += [_note_memory(recorder, replicas), supervisor.run()]
        for replica in replicas:
            may_start[replica.name].set()
            work.append(replica.keep_running(may_start[replica.name]))
        tasks = [asyncio.create_task(one) for one in work]
        stack.push_async_callback(_end, tasks)
        try:
            yield Soak(stage, workload, rng), tasks
        finally:
            recorder.save(folder / "history.jsonl")
            print("started again: " + ", ".join(f"{part} {n}" for part, n in supervisor.restarts.items()), flush=True)


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _note_memory(recorder: Recorder, replicas: list[Replica]) -> None:
    while True:
        for replica in replicas:
            replica.note_memory(recorder)
        await asyncio.sleep(5)


async def play(cluster: Cluster, nodes: Nodes, folder: Path) -> Soak:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS))
    async with staged(cluster, nodes, folder) as (soak, background):
        running = asyncio.create_task(soak.run())
        done, _ = await asyncio.wait({running, *background}, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        return soak


def run() -> dict[str, Any]:
    logging.getLogger("carico.wire").setLevel(logging.ERROR)  # streams of killed replicas break, as intended
    folder = Path(tempfile.mkdtemp(prefix="carico-soak-"))
    print(f"{MINUTES:g} minutes, SEED={SEED}, {len(SIZES)} nodes", flush=True)
    good = False
    try:
        with Cluster() as cluster, nodes_played(cluster) as nodes:
            try:
                soak = asyncio.run(play(cluster, nodes, folder))
            finally:
                shutil.copytree(cluster.folder / "logs", folder / "cluster", dirs_exist_ok=True)
        table = _judged(soak)
        report.show(table, checks.faults_by_kind(soak.recorder.history))
        good = all(row.good for row in table)
        return report.numbers(table)
    finally:
        if good:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            print(f"logs and history: {folder}", flush=True)


def _judged(soak: Soak) -> list[report.Row]:
    crashes = [crash for replica in soak.stage.replicas for crash in replica.crashes]
    seen = report.Seen(soak.lost, soak.looks.stuck, crashes, soak.looks.made)
    return report.rows(soak.recorder.history, seen, _count(soak.recorder), LEASE_DURATION, MINUTES >= 15)
