"""Time until the model is complete again after kill -9 of the only aggregator, and how soon SIGTERM ends it; TLS on.

Fifty nodes keep real streams with the real client and the default sending rule. The time is measured from the start of
the new process, which has to load Python and numpy first, until its model counts all nodes again.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import numpy as np

from carico.clock import SystemClock
from carico.settings import AgentSettings
from carico.types import ClusterModel, LocalModel, NodeSize
from carico.wire.certificates import Authority
from carico.wire.exchange import ExchangeClient

NODES = 50
KILLS = 5
GIVE_UP = 120.0  # s


def run() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_play(Authority(Path(folder))))


async def _play(authority: Authority) -> dict[str, float]:
    server = _Server(authority)
    nodes = [_Node(f"node-{i}", authority, server.port) for i in range(NODES)]
    tasks = [asyncio.create_task(node.client.run()) for node in nodes]
    try:
        server.start()
        await _until(server.nodes, NODES)
        back = [await _killed(server, nodes) for _ in range(KILLS)]
        end = await asyncio.to_thread(server.end, signal.SIGTERM)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        server.kill()
    print(f"{NODES} nodes, kill -9 {KILLS} times: model complete again after {', '.join(f'{s:.1f}' for s in back)} s")
    print(f"SIGTERM: ended after {end:.2f} s")
    return {"model_back_s": round(max(back), 1), "sigterm_s": round(end, 2)}


async def _killed(server: _Server, nodes: list[_Node]) -> float:
    await asyncio.to_thread(server.end, signal.SIGKILL)
    for node in nodes:
        node.received = 0
    server.start()
    began = time.monotonic()
    await _until(server.nodes, NODES)
    await _until(lambda: sum(node.received > 0 for node in nodes), NODES)
    return time.monotonic() - began


async def _until(count: Callable[[], int], wanted: int) -> None:
    began = time.monotonic()
    while await asyncio.to_thread(count) != wanted:
        if time.monotonic() - began > GIVE_UP:
            raise RuntimeError(f"not {wanted} nodes within {GIVE_UP} s")
        await asyncio.sleep(0.05)


class _Server:
    def __init__(self, authority: Authority) -> None:
        pair = authority.issue("carico:aggregator", "127.0.0.1")
        self.port, self._pages = _free_port(), _free_port()
        certificates = ["--client-ca", authority.cert, "--tls-cert", pair.cert, "--tls-key", pair.key]
        addresses = ["--grpc-listen", f"127.0.0.1:{self.port}", "--listen", f"127.0.0.1:{self._pages}"]
        quiet = [sys.executable, "-m", "carico.cli", "--log-level", "error", "aggregator"]
        self._command = [*quiet, *map(str, certificates), *addresses]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(self._command)

    def end(self, number: signal.Signals) -> float:
        """Seconds until it has ended."""
        assert self._process is not None
        began = time.monotonic()
        self._process.send_signal(number)
        self._process.wait(30)
        return time.monotonic() - began

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def nodes(self) -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._pages}/debug/model", timeout=5) as page:
                model = json.load(page)["model"]
        except OSError:
            return 0
        return int(model["nodes"]) if model else 0


class _Node:
    def __init__(self, name: str, authority: Authority, port: int) -> None:
        pair = authority.issue_node(name)
        settings = AgentSettings(
            aggregator=f"127.0.0.1:{port}", tls_ca=authority.cert, tls_cert=pair.cert, tls_key=pair.key
        )
        self.received = 0
        self.client = ExchangeClient(settings, SystemClock(), self._on_model)
        basis = np.array([[0.3], [0.4]])
        size = NodeSize(8, 2.0**35)
        self.client.offer(LocalModel(name, 1, 0, size, ("cpu", "memory"), basis, (0.1, 0.1), None, 3, 100))

    def _on_model(self, _: ClusterModel) -> None:
        self.received += 1


def _free_port() -> int:
    """Below the kernel's ephemeral ports, so that no outgoing connection takes it during a restart."""
    while True:
        port = random.randrange(20_000, 30_000)
        with socket.socket() as listener:
            if listener.connect_ex(("127.0.0.1", port)) != 0:
                return port
