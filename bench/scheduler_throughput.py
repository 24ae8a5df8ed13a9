"""Pods bound per second on the same cluster, by kube-scheduler and by Carico, in turn.

The same 2,000 pods are created while the scheduler is stopped; the time is measured from its resumption to the last
binding, and to the last Event, as a watch of the benchmark sees them. Carico has a report from every node, by the
agents' own sending rule; the process that generates them is counted separately. CASE=plain runs one case, ROUNDS and
PODS change the size.

Each has the credential that it has in a cluster: kube-scheduler the client certificate from kubeadm, Carico the token
of a ServiceAccount with kube-scheduler's ClusterRoles. The API server checks a certificate at every request and a token
every ten seconds; CREDENTIAL=certificate gives Carico a certificate as well, to measure the difference.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import psutil

from carico.kube import calls, credentials
from carico.kube.calls import ApiCall, FollowedResource
from carico.kube.client import Client
from carico.kube.meta import KubeObject
from carico.kube.objects import Pod
from carico.kube.watch import Reflector, WatchedResource
from harness.cluster.cluster import Cluster
from harness.cluster.ports import free_port
from harness.scheduler.fleet import SchedulerProcess

PODS = int(os.environ.get("PODS", "2000"))
ROUNDS = int(os.environ.get("ROUNDS", "3"))
NAMESPACE = "throughput"
ZONES = 10
PATIENCE = 180.0  # s for one run
CASES = {
    1000: ("plain", "node-affinity", "topology-spread", "anti-affinity", "unschedulable"),
    5000: ("plain", "anti-affinity"),
}


class Said(KubeObject, frozen=True):
    """An Event with only its reason."""

    reason: str = ""


@dataclass
class Run:
    """The result of one scheduler with one set of pods."""

    pods_per_second: float
    events_per_second: float
    cpu: float  # s of the scheduler
    memory: float  # MB
    generator_cpu: float  # s


def spec_of(case: str, number: int) -> tuple[dict[str, str], dict[str, Any]]:
    """Labels, and the part of the spec that is specific to the case."""
    labels = {"app": "bench"}
    if case == "node-affinity":
        wanted = [{"key": "zone", "operator": "In", "values": ["z0", "z1", "z2"]}]
        terms = {"nodeSelectorTerms": [{"matchExpressions": wanted}]}
        return labels, {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}
    if case == "topology-spread":
        spread = {"maxSkew": 5, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
        return labels, {"topologySpreadConstraints": [spread | {"labelSelector": {"matchLabels": labels}}]}
    if case == "anti-affinity":
        labels = {"app": f"bench-{number % 4}"}
        term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}}
        return labels, {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
    if case == "unschedulable" and number % 5 == 0:
        return labels, {"nodeSelector": {"no": "such-node"}}
    return labels, {}


def pod_of(case: str, number: int, scheduler: str) -> bytes:
    labels, extra = spec_of(case, number)
    room = {"requests": {"cpu": "100m", "memory": "128Mi"}}
    container = {"name": "c", "image": "registry.invalid/none", "resources": room}
    spec = {"schedulerName": scheduler, "terminationGracePeriodSeconds": 0, "containers": [container]}
    return msgspec.json.encode({"metadata": {"name": f"p-{number}", "labels": labels}, "spec": spec | extra})


_EVENTS = FollowedResource(*(ApiCall(verb, calls.EVENTS, "", {}) for verb in ("list", "watch")))


class Field:
    """The namespace that the runs use in turn."""

    def __init__(self, client: Client) -> None:
        self.client, self.bound, self.said = client, 0, 0
        self.bound_at, self.said_at = 0.0, 0.0
        pods = WatchedResource(calls.FOLLOW_PODS, Pod, namespace=NAMESPACE)
        self.pods = Reflector(client, pods, self._pod)
        self.events = Reflector(client, WatchedResource(_EVENTS, Said, namespace=NAMESPACE), self._event)

    def _pod(self, old: Pod | None, new: Pod | None) -> None:
        if new is not None and new.spec.node_name and (old is None or not old.spec.node_name):
            self.bound += 1
            self.bound_at = time.monotonic()

    def _event(self, old: Said | None, new: Said | None) -> None:
        if new is not None and old is None and new.reason == "Scheduled":
            self.said += 1
            self.said_at = time.monotonic()

    async def fill(self, case: str, scheduler: str) -> None:
        places = asyncio.Semaphore(32)

        async def one(number: int) -> None:
            async with places:
                await self.client.call("POST", f"/api/v1/namespaces/{NAMESPACE}/pods", pod_of(case, number, scheduler))

        await asyncio.gather(*(one(number) for number in range(PODS)))
        await self._until(lambda: len(self.pods.store) == PODS)

    async def empty(self) -> None:
        for path in (f"/api/v1/namespaces/{NAMESPACE}/pods", f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events"):
            for _ in range(10):  # on a busy machine one response may take longer than the client's timeout
                with contextlib.suppress(TimeoutError):
                    await self.client.call("DELETE", path, b'{"gracePeriodSeconds":0}')
                    break
        await self._until(lambda: not self.pods.store and not self.events.store)
        self.bound = self.said = 0

    async def _until(self, condition: Any) -> None:
        async with asyncio.timeout(PATIENCE):
            while not condition():  # noqa: ASYNC110 - what is waited for is in other processes
                await asyncio.sleep(0.02)

    async def watch_until(self, pods: int) -> None:
        await self._until(lambda: self.bound >= pods and self.said >= pods)


async def one_run(
    field: Field, case: str, name: str, scheduler: psutil.Process, generator: psutil.Process | None
) -> Run:
    bindable = PODS - (PODS + 4) // 5 if case == "unschedulable" else PODS
    scheduler.send_signal(signal.SIGSTOP)
    await field.fill(case, name)
    cpu, other = _cpu(scheduler), _cpu(generator)
    start = time.monotonic()
    scheduler.send_signal(signal.SIGCONT)
    await field.watch_until(bindable)
    run = Run(
        bindable / (field.bound_at - start),
        bindable / (field.said_at - start),
        _cpu(scheduler) - cpu,
        scheduler.memory_info().rss / 1e6,
        _cpu(generator) - other,
    )
    await field.empty()
    return run


def _cpu(process: psutil.Process | None) -> float:
    if process is None:
        return 0.0
    times = process.cpu_times()
    return float(times.user + times.system)


def stock_scheduler(cluster: Cluster) -> psutil.Process:
    for process in psutil.process_iter(["name", "cmdline"]):
        line = " ".join(process.info["cmdline"] or ())
        if process.info["name"] == "kube-scheduler" and str(cluster.folder) in line:
            return process
    raise RuntimeError("the cluster has no kube-scheduler")


@contextmanager
def carico(cluster: Cluster) -> Iterator[tuple[psutil.Process, psutil.Process]]:
    """Carico's scheduler, and the process that reports for every node."""
    port = free_port()
    scheduler = SchedulerProcess(_credential(cluster), port, "--no-leader-elect")
    command = [sys.executable, "-m", "bench.report_generator", str(cluster.kubeconfig), f"127.0.0.1:{port}"]
    generator = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1])
    try:
        assert generator.stdout is not None
        assert generator.stdout.readline() == "ready\n", "the report generator did not start"
        yield psutil.Process(scheduler.pid), psutil.Process(generator.pid)
    finally:
        generator.kill()
        generator.wait()
        if generator.stdout is not None:
            generator.stdout.close()
        scheduler.stop(signal.SIGKILL)


def _credential(cluster: Cluster) -> Path:
    if os.environ.get("CREDENTIAL") == "certificate":
        return cluster.kubeconfig
    return cluster.kubeconfig_of_account("carico-scheduler", "system:kube-scheduler", "system:volume-scheduler")


async def label_zones(client: Client) -> None:
    class Names(msgspec.Struct):
        items: list[KubeObject]

    nodes = msgspec.json.decode(await client.call("GET", "/api/v1/nodes"), type=Names).items
    places = asyncio.Semaphore(32)

    async def label(i: int, name: str) -> None:
        body = json.dumps({"metadata": {"labels": {"zone": f"z{i % ZONES}"}}}).encode()
        async with places:
            await client.call("PATCH", f"/api/v1/nodes/{name}", body, "application/merge-patch+json")

    await asyncio.gather(*(label(i, node.name) for i, node in enumerate(nodes)))


async def compare(cluster: Cluster, cases: list[str]) -> dict[str, dict[str, list[Run]]]:
    client = Client(credentials.from_kubeconfig(cluster.kubeconfig))
    await client.call("POST", "/api/v1/namespaces", json.dumps({"metadata": {"name": NAMESPACE}}).encode())
    await label_zones(client)
    account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"
    await asyncio.to_thread(cluster.wait_for, "the service account", lambda: cluster._has(account))
    field, stock = Field(client), stock_scheduler(cluster)
    found: dict[str, dict[str, list[Run]]] = {case: {"kube": [], "carico": []} for case in cases}
    with carico(cluster) as (ours, generator):
        following = [asyncio.create_task(watch.run()) for watch in (field.pods, field.events)]
        await field.pods.synced.wait()
        await field.events.synced.wait()
        for case in cases:
            for _ in range(ROUNDS):
                found[case]["kube"].append(await one_run(field, case, "default-scheduler", stock, None))
                found[case]["carico"].append(await one_run(field, case, "carico", ours, generator))
                _print(case, found[case])
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)
    await client.close()
    return found


def _print(case: str, runs: dict[str, list[Run]]) -> None:
    for name, made in runs.items():
        run = made[-1]
        more = f", reports {run.generator_cpu:.1f} s" if name == "carico" else ""
        print(
            f"  {case:16} {name:7} {run.pods_per_second:6.0f} pods/s, {run.events_per_second:6.0f} to the last Event, "
            f"CPU {run.cpu:.1f} s{more}, {run.memory:.0f} MB",
            flush=True,
        )


def run() -> dict[str, float]:
    only = os.environ.get("CASE")
    figures: dict[str, float] = {}
    for nodes, cases in CASES.items():
        chosen = [case for case in cases if only in (None, case)]
        if not chosen or (os.environ.get("NODES") not in (None, str(nodes))):
            continue
        print(f"{nodes} nodes, {PODS} pods, {ROUNDS} rounds", flush=True)
        with Cluster(nodes=nodes) as cluster:
            found = asyncio.run(compare(cluster, chosen))
        for case, runs in found.items():
            figures |= _figures(f"{case.replace('-', '_')}_{nodes}", runs)
    ratios = [value for name, value in figures.items() if name.startswith("ratio_") and "events" not in name]
    return figures | {"ratio_min": min(ratios)}


def _figures(name: str, runs: dict[str, list[Run]]) -> dict[str, float]:
    def middle(who: str, what: str) -> float:
        return float(statistics.median(getattr(run, what) for run in runs[who]))

    figures = {
        f"ratio_{name}": middle("carico", "pods_per_second") / middle("kube", "pods_per_second"),
        f"ratio_events_{name}": middle("carico", "events_per_second") / middle("kube", "events_per_second"),
    }
    for who in runs:
        for what in ("pods_per_second", "events_per_second", "cpu", "memory"):
            figures[f"{who}_{what}_{name}"] = middle(who, what)
    figures[f"reports_cpu_{name}"] = middle("carico", "generator_cpu")
    return {key: round(value, 3) for key, value in figures.items()}
