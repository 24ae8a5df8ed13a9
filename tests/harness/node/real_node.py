"""The agent's reports against what real pods measure themselves, with a real kubelet and containerd (root).

Pods of nine kinds start and end in random order: one (`pi`), two and four busy threads, memory touched at once, slowly
and under a limit, five seconds of work and then sleep, work under a cpu limit, and one whose image cannot be pulled.
The agent's class costs are compared with what the pods measured themselves, and its room with full − Σ of those − what
the idle node used. The machine must be otherwise idle. With
`trace`, each second is written into that file as CSV: room and truth per resource, and the running pods.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import random
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from carico.types import NodeReport
from carico.wire.certificates import Authority
from harness.cluster.cluster import Cluster, pod
from harness.running import agent
from harness.wire.listening import ListeningScheduler

IDLE = 10.0  # s of the idle node before the first pod
NAMESPACE = "default"
LOAD = Path(__file__).with_name("real_node_load.py")
CORES = os.cpu_count() or 1
THREADS = 2 * CORES + 1  # busy threads at most: a little more than the node can hold
MEMORY = 3000  # MiB at most
STEADY = 3.0  # s until a pod has reached its load, besides the time in which it touches its memory
SMALL = (0.1, 48 * 2.0**20)  # costs below which errors are not relative
NODE_SHARE, ROOM_SHARE = 0.05, 0.15  # of the node, and of the true room: the tolerance of room
FOREVER = 1e6  # s


class Kind(NamedTuple):
    """What pods of one class do."""

    threads: int = 0
    burn: float = FOREVER  # s of work before they sleep
    mib: int = 0
    ramp: float = 0.0  # s in which the memory is touched
    limits: dict[str, str] = {}  # noqa: RUF012


KINDS = {
    "pi": Kind(threads=1),
    "two": Kind(threads=2),
    "four": Kind(threads=4),
    "touch": Kind(mib=300),
    "slow": Kind(mib=400, ramp=10.0),
    "limited": Kind(mib=200, limits={"memory": "400Mi"}),
    "start-up": Kind(threads=1, burn=5.0, mib=100),
    "throttled": Kind(threads=1, limits={"cpu": "200m"}),
}


@dataclass
class Running:
    kind: str
    name: str
    uid: str
    result: Path
    measured: dict[str, Any] = field(default_factory=dict)  # what the pod measured itself, once it has ended


def measure(period: float, seed: int = 1, trace: Path | None = None) -> dict[str, float]:
    """The figures of `period` seconds in which pods start and end."""
    with tempfile.TemporaryDirectory() as folder, Cluster(kubelet=True) as cluster:
        accounts = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
        cluster.wait_for("account of the pods", lambda: cluster.api.get(accounts)["items"])
        with _agent(cluster, Path(folder)) as scheduler:
            scheduler.wait_for(lambda report: bool(report.estimate.room), 60)
            heard = _Heard(scheduler)
            heard.listen(IDLE)
            idle = heard.idle()
            pods = _play(cluster, Path(folder), heard, period, seed)
            killed = _oom_kills(cluster)
    return _judge(heard, idle, pods, killed, trace)


@contextlib.contextmanager
def _agent(cluster: Any, folder: Path) -> Iterator[ListeningScheduler]:
    """A real agent for the node, and a scheduler that receives its reports."""
    authority = Authority(folder)
    server = authority.issue("localhost", "localhost", "127.0.0.1")
    with ListeningScheduler(server.cert, server.key, heartbeat=1.0) as scheduler:
        flags = ["--runtime", "containerd", "--containerd-socket", str(cluster.folder / "containerd.sock")]
        with agent(*flags, "--schedulers", scheduler.target, "--tls-ca", str(authority.cert)) as process:
            process.ready()
            yield scheduler


class _Heard:
    """Room at each second, and the newest costs of each class."""

    def __init__(self, scheduler: ListeningScheduler) -> None:
        self._scheduler = scheduler
        self.seconds: list[tuple[float, NodeReport]] = []  # s, monotonic, and the newest report at that time

    def listen(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(min(1.0, max(0.0, end - time.monotonic())))
            self.seconds.append((time.monotonic(), self._scheduler.reports[-1]))

    def idle(self) -> np.ndarray[Any, Any]:
        """What the node used before there were pods, absolute."""
        used = [np.subtract(report.full, report.estimate.room) for _, report in self.seconds]
        return np.asarray(np.mean(used, axis=0))

    def costs(self) -> dict[str, Any]:
        newest = {}
        for report in self._scheduler.reports:
            newest.update({cost.key.family: cost for cost in report.class_costs})
        return newest


def _play(cluster: Any, folder: Path, heard: _Heard, period: float, seed: int) -> list[Running]:
    """Start pods at random, within the machine's limits, and wait until all have ended."""
    draw, end = random.Random(seed), time.monotonic() + period
    pods: list[Running] = []
    _create(cluster, _stuck())
    while time.monotonic() < end:
        alive = [one for one in pods if not one.result.exists()]
        kind = draw.choice(list(KINDS))
        threads = sum(KINDS[one.kind].threads for one in alive) + KINDS[kind].threads
        memory = sum(KINDS[one.kind].mib for one in alive) + KINDS[kind].mib
        if threads <= THREADS and memory <= MEMORY:
            life = min(draw.uniform(0.05, 0.1) * period + 15.0, 75.0)
            pods.append(_start(cluster, folder, kind, len(pods), life))
        heard.listen(draw.uniform(1.0, 4.0))
    limit = time.monotonic() + 120
    while any(not one.result.exists() for one in pods) and time.monotonic() < limit:
        heard.listen(1.0)
    for one in pods:
        if one.result.exists():
            one.measured = json.loads(one.result.read_text())
    return pods


def _start(cluster: Any, folder: Path, kind: str, number: int, life: float) -> Running:
    name, what = f"{kind}-{number}", KINDS[kind]
    result = folder / f"{name}.json"
    plan = what._asdict() | {"life": life, "result": str(result)}
    # The machine's Python, through its file system: the work image contains only busybox.
    command = ["chroot", "/host", "/usr/bin/python3", "-S", "-c", LOAD.read_text(), json.dumps(plan)]
    made = pod(name, command, mounts=[{"name": "host", "mountPath": "/host"}])
    made["metadata"]["labels"] = {"app": kind}
    made["spec"]["volumes"] = [{"name": "host", "hostPath": {"path": "/"}}]
    made["spec"]["containers"][0]["resources"] = {"limits": what.limits}
    return Running(kind, name, _create(cluster, made), result)


def _stuck() -> dict[str, Any]:
    made: dict[str, Any] = pod("stuck", ["sleep", "1"])
    made["spec"]["containers"][0] |= {"image": "carico.test/nowhere:1", "imagePullPolicy": "IfNotPresent"}
    return made


def _create(cluster: Any, made: dict[str, Any]) -> str:
    """Create the pod; returns its UID."""
    made["spec"]["nodeName"] = cluster.api.get("/api/v1/nodes")["items"][0]["metadata"]["name"]
    return str(cluster.create(made, NAMESPACE)["metadata"]["uid"])


def _oom_kills(cluster: Any) -> int:
    items = cluster.api.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
    states = [status["state"] for item in items for status in item["status"].get("containerStatuses", [])]
    return sum(state.get("terminated", {}).get("reason") == "OOMKilled" for state in states)


class Own(NamedTuple):
    """What one pod measured of itself."""

    times: np.ndarray[Any, Any]  # s, monotonic
    wanted: np.ndarray[Any, Any]  # s of processor time since its start that it used and waited for, at each of them
    memory: float  # bytes, the most that it held

    def cpu(self, start: float, end: float) -> float:
        """Cores of demand between two instants, mean over time: readings may be almost simultaneous."""
        start, end = np.clip((start, end), self.times[0], self.times[-1])
        before, after = np.interp((start, end), self.times, self.wanted)
        return float((after - before) / max(end - start, 1e-3))


def _own(one: Running) -> Own:
    rows = np.array(one.measured["rows"])
    # A pod that waits because of its own limit demands no more than that.
    wanted = rows[:, 1] if "cpu" in KINDS[one.kind].limits else rows[:, 1] + rows[:, 2]
    return Own(rows[:, 0], wanted, float(rows[:, 3].max()))


def _judge(heard: _Heard, idle: Any, pods: list[Running], killed: int, trace: Path | None) -> dict[str, float]:
    owns = [(one, _own(one)) for one in pods if one.measured]
    errors = _cost_errors(heard.costs(), owns)
    seconds = list(_compare(heard, idle, owns))
    within, too_high = _room(seconds)
    if trace:
        _trace(seconds, trace)
    ended = len(owns)
    print(f"{ended} of {len(pods)} pods recorded their usage; {len(heard.seconds)} seconds")
    return {
        "cost_error_max": round(max(errors.values(), default=1.0), 3),
        "room_within": round(within, 3),
        "room_too_high": round(too_high, 3),
        "oom_kills": killed,
        "pods": ended,
    }


def _cost_errors(costs: dict[str, Any], owns: list[tuple[Running, Own]]) -> dict[str, float]:
    """By class, the larger error of cpu and memory; 1 if the agent knows no cost."""
    errors = {}
    print("| class | pods | cpu: agent, own | memory, MiB: agent, own | error |\n| --- | --- | --- | --- | --- |")
    for kind in KINDS:
        mine = [own for one, own in owns if one.kind == kind]
        if not mine:
            continue
        # The cost of a pod is its settled level, after it has touched its memory and done its start-up work.
        up = STEADY + KINDS[kind].ramp + (KINDS[kind].burn if KINDS[kind].burn < FOREVER else 0.0)
        settled = [own.cpu(own.times[0] + up, own.times[-1]) for own in mine]
        truth = (float(np.mean(settled)), float(np.mean([own.memory for own in mine])))
        cost = next((cost for family, cost in costs.items() if kind in family.replace("=", "/").split("/")), None)
        if cost is None:
            errors[kind] = 1.0
            print(f"| {kind} | {len(mine)} | nothing, {truth[0]:.2f} | nothing, {truth[1] / 2**20:.0f} | 1 |")
            continue
        agents = (cost.mean[0], cost.mean[1])
        error = max(abs(a - b) / max(b, small) for a, b, small in zip(agents, truth, SMALL, strict=True))
        errors[kind] = error
        memory = f"{agents[1] / 2**20:.0f}, {truth[1] / 2**20:.0f}"
        print(f"| {kind} | {len(mine)} | {agents[0]:.2f}, {truth[0]:.2f} | {memory} | {error:.2f} |")
    return errors


class Compared(NamedTuple):
    """One second: the agent's report and the truth. Per resource, absolute."""

    at: float  # s, monotonic
    report: NodeReport
    true: np.ndarray[Any, Any]
    off: np.ndarray[Any, Any]
    allowed: np.ndarray[Any, Any]
    pods: list[str]  # name, and the cores that it demanded


def _compare(heard: _Heard, idle: Any, owns: list[tuple[Running, Own]]) -> Iterator[Compared]:
    """Every second of the recording.

    A pod counts from the first report that counts it: a scheduler that sees its UID there releases the reservation, so
    from then on the room must exclude what the pod is going to use.
    """
    for at, report in heard.seconds:
        here = [
            (one, own)
            for one, own in owns
            if at <= own.times[-1] and (own.times[0] <= at or one.uid in (report.counted or ()))
        ]
        used = np.array([0.0, 0.0])
        for one, own in here:
            used += (_at(one, own, at), own.memory)
        full = np.array(report.full)
        true = np.maximum(0.0, full - idle - used)
        allowed = np.maximum(NODE_SHARE * full, ROOM_SHARE * true)
        names = [f"{one.name}={_at(one, own, at):.2f}" for one, own in here]
        yield Compared(at, report, true, np.array(report.estimate.room) - true, allowed, names)


def _room(seconds: list[Compared]) -> tuple[float, float]:
    """Shares of the seconds in which room was within the tolerance, and too high."""
    good = sum(bool((np.abs(one.off) <= one.allowed).all()) for one in seconds)
    high = sum(bool((one.off > one.allowed).any()) for one in seconds)
    return good / max(1, len(seconds)), high / max(1, len(seconds))


def _trace(seconds: list[Compared], file: Path) -> None:
    rooms = [f"{resource}_{what}" for resource in ("cpu", "memory") for what in ("room", "true", "off")]
    head = ["at", *rooms, "cpu_baseline", "memory_baseline", "cpu_usage", "pods", "ran"]
    with file.open("w", newline="") as text:
        rows = csv.writer(text)
        rows.writerow(head)
        for one in seconds:
            estimate = one.report.estimate
            cells = [f"{one.at - seconds[0].at:.1f}"]
            for i, unit in enumerate((1.0, 2.0**20)):
                cells += [f"{amount / unit:.2f}" for amount in (estimate.room[i], one.true[i], one.off[i])]
            cells += [f"{share:.4f}" for share in (*estimate.baseline_ratio[:2], estimate.usage[0])]
            rows.writerow([*cells, estimate.pods, " ".join(one.pods)])


def _at(one: Running, own: Own, at: float) -> float:
    """Cores of demand of a pod at an instant: its mean or, for one that stops working, its demand in that second."""
    if KINDS[one.kind].burn < FOREVER:
        now = max(at, own.times[0] + 1.0)
        return own.cpu(now - 1.0, now)
    return own.cpu(own.times[0], own.times[-1])
