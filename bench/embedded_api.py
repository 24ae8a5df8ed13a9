"""The embedded API server under load: nodes created, pods created and bound per second, and the lag of its watches.

Each figure is for one API server process and one client process, with TLS as kubectl needs it and without. `NODES` and
`PODS` in the environment change the size.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TypeVar

import msgspec

from carico.clock import SystemClock
from carico.embedded.simulated.nodes import node_object
from carico.kube import calls, credentials
from carico.kube.binding import Binding, BindResult
from carico.kube.client import Client
from carico.kube.identity import Credentials
from carico.kube.kubeconfig import choose
from carico.kube.objects import Pod
from carico.kube.watch import Reflector, WatchedResource
from carico.types import NodeSize

NODES = int(os.environ.get("NODES", "5000"))
PODS = int(os.environ.get("PODS", "4000"))
WATCHERS = 3  # a scheduler, a node, a user
AT_ONCE = 48  # the number of bindings that the scheduler has in flight
CLOCK = SystemClock()
T = TypeVar("T")


def run() -> dict[str, object]:
    figures: dict[str, object] = {"nodes": NODES, "pods": PODS}
    for name, flags in (("tls", ()), ("plain", ("--plaintext",))):
        with tempfile.TemporaryDirectory() as folder:
            kubeconfig = Path(folder) / "kubeconfig"
            command = [sys.executable, "-m", "carico.embedded.apiserver", "--kubeconfig", str(kubeconfig), *flags]
            server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
            try:
                while not kubeconfig.exists():
                    time.sleep(0.05)
                found = asyncio.run(_load(kubeconfig))
                found["server_mb"] = round(_resident(server.pid) / 2**20)
            finally:
                server.kill()
                server.wait()
        figures |= {f"{name}_{key}": value for key, value in found.items()}
        print(f"{name:<6}" + "  ".join(f"{key} {value:,.0f}" for key, value in found.items()))
    return figures


def _resident(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _credentials(kubeconfig: Path) -> Credentials:
    """The client sends no kubeconfig token without TLS: for the plaintext server it is set explicitly."""
    choice = choose([kubeconfig])
    if choice.cluster.server.startswith("https:"):
        return credentials.from_kubeconfig(kubeconfig)
    return credentials.fixed(choice.cluster.server, choice.user.token)


async def _load(kubeconfig: Path) -> dict[str, float]:
    client = Client(_credentials(kubeconfig))
    bound = [0] * WATCHERS
    watches = [Reflector(client, WatchedResource(calls.FOLLOW_PODS, Pod), _counter(bound, i)) for i in range(WATCHERS)]
    tasks = [asyncio.create_task(watch.run()) for watch in watches]
    for watch in watches:
        await watch.synced.wait()
    size = NodeSize(cores=32, memory_bytes=256 << 30)
    nodes = [msgspec.json.encode(node_object(f"n-{i}", size, CLOCK.wall())) for i in range(NODES)]
    figures = {"nodes_per_s": await _rate(nodes, lambda body: client.call("POST", "/api/v1/nodes", body))}
    path = "/api/v1/namespaces/default/pods"
    bodies = [
        msgspec.json.encode({"metadata": {"name": f"p-{i}"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
        for i in range(PODS)
    ]
    pods: list[Pod] = []

    async def make(body: bytes) -> None:
        pods.append(msgspec.json.decode(await client.call("POST", path, body), type=Pod))

    figures["pods_per_s"] = await _rate(bodies, make)

    async def place(pod: Pod) -> None:
        outcome = await Binding(client, pod, f"n-{hash(pod.name) % NODES}", CLOCK).send()
        assert outcome.bound is BindResult.DONE

    figures["bindings_per_s"] = await _rate(pods, place)
    end = time.monotonic()
    while min(bound) < PODS:  # noqa: ASYNC110 - what is counted comes from another process
        await asyncio.sleep(0.001)
    figures["watch_lag_ms"] = (time.monotonic() - end) * 1000
    start = time.monotonic()
    await client.call("GET", "/api/v1/pods")
    figures["list_ms"] = (time.monotonic() - start) * 1000
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await client.close()
    return {key: round(value, 1) for key, value in figures.items()}


def _counter(bound: list[int], i: int) -> Callable[[Pod | None, Pod | None], None]:
    def changed(old: Pod | None, new: Pod | None) -> None:
        if new is not None and new.spec.node_name and not (old is not None and old.spec.node_name):
            bound[i] += 1

    return changed


async def _rate(things: Iterable[T], act: Callable[[T], Awaitable[object]]) -> float:
    places = asyncio.Semaphore(AT_ONCE)

    async def one(obj: T) -> None:
        async with places:
            await act(obj)

    start, all_of_them = time.monotonic(), list(things)
    await asyncio.gather(*(one(obj) for obj in all_of_them))
    return len(all_of_them) / (time.monotonic() - start)
