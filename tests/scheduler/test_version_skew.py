"""Processes of v0.1.0 (commit 8277f96) and of this version, mixed and replaced while pods of a Job run.

The older version's code is exported from the repository's history and run as it is: agents, aggregator and schedulers
are real processes of either version, on two nodes of an embedded cluster whose pods are real processes.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from carico.kube import calls, credentials
from carico.kube.client import Client
from carico.kube.objects import Pod
from carico.kube.watch import Reflector, WatchedResource
from harness.cluster.ports import free_port
from harness.embedded.embedded_cluster import EmbeddedCluster, Module

ROOT = Path(__file__).parents[2]
OLDER = "8277f96"
PATIENCE = 180.0  # s
NODES = ("one", "two")
# By requests: both nodes are this machine, which may be busy with other tests, and then has no capacity.
PROFILES = """
[scheduler.profiles.job]
disable = ["Capacity"]
"""
BATCH = 12  # pods between two replacements
# The flags of the Lease were renamed since: a process of the wrong version would not start.
LEASE = {
    "older": (
        "--lease-namespace=default", "--lease-name=skew",
        "--lease-duration=6", "--lease-renew=4", "--lease-retry=0.5",
    ),
    "this": (
        "--leader-elect-resource-namespace=default", "--leader-elect-resource-name=skew",
        "--leader-elect-lease-duration=6s", "--leader-elect-renew-deadline=4s", "--leader-elect-retry-period=500ms",
        "--debug-listen=127.0.0.1:0",
    ),
}  # fmt: skip

pytestmark = pytest.mark.long


def _export(to: Path) -> None:
    """The older version's tree."""
    known = subprocess.run(["git", "cat-file", "-e", f"{OLDER}^{{commit}}"], cwd=ROOT, capture_output=True)
    if known.returncode != 0:
        pytest.skip(f"the repository's history lacks {OLDER}: a shallow clone, or no clone")
    archive = subprocess.run(["git", "archive", OLDER, "carico"], cwd=ROOT, capture_output=True, check=True)
    subprocess.run(["tar", "-x", "-C", str(to)], input=archive.stdout, check=True)


class Version:
    """Starts processes of one version."""

    def __init__(self, name: str, code: Path) -> None:
        self.name, self.code = name, code

    def start(self, log: Path, command: str, *flags: str) -> subprocess.Popen[bytes]:
        environ = os.environ | {"PYTHONPATH": str(self.code), "OPENBLAS_NUM_THREADS": "1"}
        argv = [sys.executable, "-m", "carico.cli", command, "--plaintext", "--listen=127.0.0.1:0", *flags]
        with log.open("ab") as file:
            return subprocess.Popen(argv, cwd=self.code, env=environ, stdout=file, stderr=file)


class Stage:
    def __init__(self, cluster: EmbeddedCluster, folder: Path, older: Path, stack: ExitStack) -> None:
        self.cluster, self.folder, self._stack = cluster, folder, stack
        self.versions = {"older": Version("older", older), "this": Version("this", ROOT)}
        self.aggregator_port, self.scheduler_ports = free_port(), (free_port(), free_port())
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.version: dict[str, str] = {}
        (folder / "carico.toml").write_text(PROFILES)
        self.sandbox = folder / "ran"
        self.sandbox.mkdir()
        for node in NODES:
            flags = ("--kubeconfig", str(cluster.kubeconfig), "--name", node)
            place = ("--cri-socket", str(folder / f"{node}.sock"), "--dir", str(folder / f"pods-{node}"))
            process = Module(folder / f"node-{node}.log", "carico.embedded.node", *flags, *place)
            stack.callback(process.stop, signal.SIGKILL)
        stack.callback(self.end)

    def end(self) -> None:
        for process in self.running.values():
            process.kill()
            process.wait(timeout=60)

    def replace(self, what: str, version: str, number: signal.Signals = signal.SIGTERM) -> None:
        """Ends the process of this role, if there is one, and starts one of the version: `scheduler-0`, `agent-one`."""
        if (former := self.running.pop(what, None)) is not None:
            former.send_signal(number)
            former.wait(timeout=60)
        self.version[what] = version
        role, _, which = what.partition("-")
        flags: dict[str, tuple[str, ...]] = {
            "aggregator": (f"--grpc-listen=127.0.0.1:{self.aggregator_port}",),
            "scheduler": (
                f"--kubeconfig={self.cluster.kubeconfig}", f"--identity={what}-{version}",
                f"--config={self.folder / 'carico.toml'}", *LEASE[version],
            ),
            "agent": (
                f"--node-name={which}", "--runtime=cri", f"--cri-socket={self.folder / which}.sock",
                f"--aggregator=127.0.0.1:{self.aggregator_port}", "--state-file=",
                f"--schedulers={','.join(f'127.0.0.1:{port}' for port in self.scheduler_ports)}",
            ),
        }  # fmt: skip
        more = (f"--grpc-listen=127.0.0.1:{self.scheduler_ports[int(which)]}",) if role == "scheduler" else ()
        log = self.folder / f"{what}-{version}.log"
        self.running[what] = self.versions[version].start(log, role, *flags[role], *more)

    def batch(self, number: int) -> None:
        """Pods that compute for a moment and note that they ran."""
        for each in range(BATCH):
            name = f"job-{number}-{each}"
            program = f"echo {name} >> {self.sandbox}/all; for i in $(seq 20000); do :; done; sleep 0.3"
            container = {"name": "c", "image": "none", "command": ["sh", "-c", program]}
            spec = {"schedulerName": "job", "restartPolicy": "Never", "containers": [container]}
            labels = {"app": "job", "batch.kubernetes.io/job-name": "job"}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}
            self.cluster.api.post("/api/v1/namespaces/default/pods", pod)

    def done(self, pods: int) -> bool:
        items = self.cluster.api.get("/api/v1/namespaces/default/pods")["items"]
        return len([item for item in items if item["status"].get("phase") == "Succeeded"]) == pods

    def logs(self) -> str:
        return "\n".join(f"{log.name}:\n{log.read_text()[-1500:]}" for log in sorted(self.folder.glob("*.log")))


@pytest.fixture
def stage() -> Iterator[Stage]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vs-")))  # a short name: for sockets
        older = folder / "older"
        older.mkdir()
        _export(older)
        cluster = EmbeddedCluster(folder)
        stack.callback(cluster.stop)
        yield Stage(cluster, folder, older, stack)


class Seen:
    """Every node that a pod was ever bound to, from a watch of its own."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig, self._stop = kubeconfig, threading.Event()
        self.nodes: defaultdict[str, set[str]] = defaultdict(set)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._follow()))

    def __enter__(self) -> Seen:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(timeout=60)

    async def _follow(self) -> None:
        client = Client(credentials.from_kubeconfig(self._kubeconfig))
        reflector = Reflector(client, WatchedResource(calls.FOLLOW_PODS, Pod), self._changed)
        task = asyncio.create_task(reflector.run())
        await asyncio.to_thread(self._stop.wait)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await client.close()

    def _changed(self, _: Pod | None, new: Pod | None) -> None:
        if new is not None and new.spec.node_name:
            self.nodes[new.uid].add(new.spec.node_name)


# In this order one process after the other is ended and one of the other version started, each after a batch of pods.
AGENTS_FIRST = ("aggregator", "agent-one", "scheduler-0", "agent-two", "scheduler-1")
SCHEDULERS_FIRST = ("scheduler-1", "scheduler-0", "agent-two", "aggregator", "agent-one")


@pytest.mark.parametrize(
    ("first", "then", "order"),
    [("older", "this", AGENTS_FIRST), ("older", "this", SCHEDULERS_FIRST), ("this", "older", AGENTS_FIRST)],
    ids=["upgrade", "upgrade-schedulers-first", "downgrade"],
)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["term", "kill"])
def test_versions_mixed_and_replaced_under_a_running_job(
    stage: Stage, first: str, then: str, order: tuple[str, ...], number: signal.Signals
) -> None:
    with Seen(stage.cluster.kubeconfig) as seen:
        for what in ("aggregator", "scheduler-0", "scheduler-1", "agent-one", "agent-two"):
            stage.replace(what, first)
        for count, what in enumerate(order):
            stage.batch(count)
            time.sleep(2.0)  # some of them run, some wait: no state in particular is waited for
            stage.replace(what, then, number)
        stage.batch(len(order))
        pods = BATCH * (len(order) + 1)
        _wait(stage, pods)
    ran = Counter((stage.sandbox / "all").read_text().split())
    assert len(ran) == pods
    assert {name: times for name, times in ran.items() if times != 1} == {}
    assert {uid: nodes for uid, nodes in seen.nodes.items() if len(nodes) > 1} == {}
    assert len(seen.nodes) == pods


def _wait(stage: Stage, pods: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while not stage.done(pods):
        dead = {what: process.poll() for what, process in stage.running.items() if process.poll() is not None}
        for what in dead:  # a replica that lost the Lease ends, and its supervisor starts it again
            assert what.startswith("scheduler"), stage.logs()
            stage.replace(what, stage.version[what])
        assert time.monotonic() < deadline, stage.logs()
        time.sleep(0.5)
