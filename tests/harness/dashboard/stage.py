"""A cluster for the page to show: an embedded API server, agents of played nodes, and a real `carico scheduler`."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Self

import msgspec

from carico.embedded.simulated.kubelet import RUNS_FOR
from carico.kube import credentials
from carico.kube.client import Client
from harness.cluster.ports import free_port
from harness.scheduler.fleet import Fleet, SchedulerProcess


class Stage:
    """`nodes` report a Pod-Capacity of `capacity`; `simulated` further ones are played by a process of their own."""

    def __init__(self, folder: Path, nodes: list[str], *, capacity: float = 6.0, simulated: int = 0) -> None:
        self.kubeconfig = folder / "kubeconfig"
        self.nodes, self._capacity, self._simulated = nodes, capacity, simulated
        self.page_port, self.grpc_port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.page_port}/"
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._over = asyncio.Event()
        self._children: list[subprocess.Popen[bytes]] = []
        self.scheduler: SchedulerProcess | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        self._start("-m", "carico.embedded.apiserver", "--kubeconfig", str(self.kubeconfig))
        until(self.kubeconfig.exists, "the kubeconfig of the API server")
        self._client = self._do(self._connect())
        for name in self.nodes:
            self.create_node(name)
        self.start_scheduler()
        self._agents = asyncio.run_coroutine_threadsafe(self._report(), self._loop)
        if self._simulated:
            many = ("--nodes", str(self._simulated), "--schedulers", f"127.0.0.1:{self.grpc_port}")
            self._start("-m", "carico.embedded.simulated", "--kubeconfig", str(self.kubeconfig), *many)
            until(self._all_report, "report of every simulated node", 240.0)
        return self

    def _all_report(self) -> bool:
        rows = json.loads(self.get("/debug/ledger")[2])["nodes"]
        return sum(not row["stale"] for row in rows.values()) >= self._simulated

    def __exit__(self, *_: object) -> None:
        self.stop_scheduler(signal.SIGTERM)
        self._loop.call_soon_threadsafe(self._over.set)
        self._agents.result(30)
        self._do(self._client.close())
        for child in self._children:
            child.kill()
            child.wait(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    # --- the scheduler ---

    def start_scheduler(self, *flags: str, port: int | None = None) -> SchedulerProcess:
        """On the stage's own port, or as a further replica on another."""
        address = ("--debug-listen", f"127.0.0.1:{port or self.page_port}")
        grpc = self.grpc_port if port is None else free_port()
        lease = ("--leader-elect-lease-duration=11s", "--leader-elect-renew-deadline=10s")
        process = SchedulerProcess(self.kubeconfig, grpc, *address, *lease, *flags)
        if port is None:
            self.scheduler = process
        return process

    def stop_scheduler(self, number: signal.Signals) -> None:
        if self.scheduler is not None:
            self.scheduler.stop(number)
            self.scheduler = None

    # --- the cluster ---

    def create_node(self, name: str) -> None:
        room = {"cpu": "8", "memory": "16Gi", "pods": "110"}
        meta = {"name": name, "labels": {"kubernetes.io/hostname": name}}
        self._post("/api/v1/nodes", {"metadata": meta, "status": {"capacity": room, "allocatable": room}})

    def create_pod(self, name: str, runs_for: str | None = None, **spec: Any) -> None:
        """`runs_for` as in "90s": so long it runs on a simulated node; without it, until the end."""
        container = {"name": "main", "image": "none", "env": [{"name": "KEY", "value": "s3cret-env"}]}
        lasts = {} if runs_for is None else {RUNS_FOR: runs_for}
        meta = {"name": name, "annotations": {"example.com/token": "s3cret-annotation"} | lasts}
        body = {"metadata": meta, "spec": {"schedulerName": "carico", "containers": [container]} | spec}
        self._post("/api/v1/namespaces/default/pods", body)

    def get(self, path: str) -> tuple[int, dict[str, str], str]:
        try:
            with urllib.request.urlopen(self.url.rstrip("/") + path, timeout=30) as answer:
                return answer.status, dict(answer.headers), answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, dict(error.headers), error.read().decode()

    # --- inside ---

    def _post(self, path: str, body: dict[str, Any]) -> None:
        self._do(self._client.call("POST", path, msgspec.json.encode(body)))

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _connect(self) -> Client:
        return Client(credentials.from_kubeconfig(self.kubeconfig))

    async def _report(self) -> None:
        capacity = dict.fromkeys(self.nodes, self._capacity)
        async with Fleet(self._client, capacity, [f"127.0.0.1:{self.grpc_port}"], "default", lag=1.0).at_work():
            await self._over.wait()

    def _start(self, *words: str) -> subprocess.Popen[bytes]:
        quiet = subprocess.DEVNULL
        child = subprocess.Popen([sys.executable, *words], stdout=quiet, stderr=quiet)
        self._children.append(child)
        return child


def until(holds: Callable[[], object], what: str, seconds: float = 60.0) -> None:
    """Looks ten times a second: another process has no clock that could be turned."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"no {what} within {seconds} s"
        time.sleep(0.1)
