"""The real `carico agent` counts the pods of the node as it does in a cluster: over CRI."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil
import pytest

from carico.clock import SystemClock
from carico.embedded.apiserver.server import ApiServer
from carico.kube import credentials
from carico.kube.client import Client
from carico.runtime.cri import CriConnection, cri
from carico.runtime.pods import PodTable
from carico.settings import RuntimeSettings
from harness.cluster.cluster import Cluster
from harness.cluster.fixtures import needs_scale
from harness.embedded.node_place import NODE, Place, node, play, state, until
from harness.running import agent

RELIST = CriConnection.relist_with_events


def is_counted(table: PodTable, uid: str) -> bool:
    return uid in table.counted()


def test_the_agent_counts_every_pod_at_every_step(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        with agent("--runtime", "cri", "--cri-socket", str(place.socket)) as process:
            await asyncio.to_thread(process.ready)

            async def counted(pods: int) -> None:
                shows = re.compile(rf"^carico_node_workload_pods{{[^}}]*}} {pods}(\.0)?$", re.MULTILINE)
                await asyncio.to_thread(
                    process.wait_until, lambda: bool(shows.search(process.get("/metrics")[1])), f"{pods} pods counted"
                )

            await counted(0)
            for i in range(10):
                await place.pod(f"p{i}", "sleep", "1000")
                await place.until_phase(f"p{i}", "Running")
                if i in (0, 4, 9):
                    await counted(i + 1)
            for i in range(5):
                await place.delete(f"p{i}", grace=1)
                await place.until_gone(f"p{i}")
            await counted(5)
            await place.pod("short", "true")
            await place.until_phase("short", "Succeeded")
            await counted(5)

    play(scenario, tmp_path)


def test_events_come_at_once(tmp_path: Path) -> None:
    """The agent's own source, polled every few milliseconds: how long after the API server does it count the pod?"""

    async def scenario(place: Place) -> None:
        table = PodTable(RuntimeSettings())
        source = cri(place.socket, table, SystemClock())
        following = asyncio.create_task(source.run())
        await until(lambda: source.problem is None)
        lags = []
        for i in range(10):
            made = await place.pod(f"p{i}", "sleep", "1000")
            await place.until_phase(f"p{i}", "Running")
            told = time.monotonic()
            await until(partial(is_counted, table, made["metadata"]["uid"]))
            lags.append(time.monotonic() - told)
        assert table.count(time.monotonic()).running == 10
        assert max(lags) < RELIST / 2  # by an event, not by listing
        await place.delete("p0", grace=1)
        await place.until_gone("p0")
        await until(lambda: table.count(time.monotonic()).running == 9)
        assert len(table.finished(time.monotonic())) == 1
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    play(scenario, tmp_path)


@pytest.mark.slow
def test_a_killed_node_leaves_nothing_and_the_next_one_goes_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with ApiServer(SystemClock()) as server:
            config = tmp_path / "kubeconfig"
            server.kubeconfig(config)
            place = Place(Client(credentials.from_kubeconfig(config)), "default", tmp_path)
            first = _node_process(config, tmp_path)
            pidfile = tmp_path / "pid"
            script = f"echo $$$$ > {pidfile}; exec sleep 1000"
            await place.pod("never", "sh", "-c", script)
            await place.pod("always", "sleep", "1000", restartPolicy="Always")
            await place.until_phase("always", "Running")
            await place.until("never", lambda _: pidfile.exists() and pidfile.read_text())
            await place.until_phase("never", "Running")
            os.kill(first.pid, signal.SIGKILL)
            await until(lambda: not psutil.pid_exists(int(pidfile.read_text())))
            first.wait()
            second = _node_process(config, tmp_path)
            try:
                failed = await place.until_phase("never", "Failed")
                assert state(failed)["terminated"]["reason"] == "ContainerStatusUnknown"
                again = await place.until(
                    "always",
                    lambda pod: pod["status"]["containerStatuses"][0]["restartCount"] and "running" in state(pod),
                )
                assert again["status"]["containerStatuses"][0]["restartCount"] == 1
            finally:
                second.terminate()
                assert second.wait(20) == 0
                await place.client.close()

    asyncio.run(scenario())


def _node_process(config: Path, folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "carico.embedded.node", "--kubeconfig", str(config), "--name", NODE]
    return subprocess.Popen([*command, "--cri-socket", str(folder / "s"), "--dir", str(folder)])


@pytest.mark.cluster
@needs_scale
def test_the_same_under_a_real_api_server(scale_cluster: Callable[[int], Cluster]) -> None:
    async def scenario(namespace: str, kubeconfig: Path) -> None:
        async with node(kubeconfig, namespace, "carico-node") as place:
            found = await place.call("GET", "/api/v1/nodes/carico-node")
            assert {c["type"]: c["status"] for c in found["status"]["conditions"]}["Ready"] == "True"
            await place.pod("good", "sh", "-c", "echo hello", node="carico-node")
            assert place.log(await place.until_phase("good", "Succeeded")) == "hello\n"
            await place.pod("bad", "sh", "-c", "exit 3", node="carico-node")
            end = state(await place.until_phase("bad", "Failed"))["terminated"]
            assert (end["exitCode"], end["reason"]) == (3, "Error")
            await place.pod("long", "sleep", "1000", node="carico-node")
            await place.until_phase("long", "Running")
            await place.delete("long", grace=2)
            await place.until_gone("long")

    cluster = scale_cluster(5)
    with cluster.namespace() as namespace:
        try:
            asyncio.run(scenario(namespace, cluster.kubeconfig))
        finally:
            cluster.api.delete("/api/v1/nodes/carico-node")  # others that share the cluster count its nodes
