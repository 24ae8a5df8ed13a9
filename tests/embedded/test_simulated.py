"""Simulated nodes: pods seem to run on them, and the scheduler places pods by the reports of their agents."""

from __future__ import annotations

import asyncio
import signal
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from carico.embedded.cluster import LocalCluster
from carico.embedded.supervisor.guard import Guard
from harness.cluster.ports import free_port
from harness.embedded.embedded_cluster import EmbeddedCluster, Module
from harness.scheduler.fleet import SchedulerProcess

NODES, ROOM = 3, 4


class Stage:
    def __init__(self, folder: Path) -> None:
        self.cluster = EmbeddedCluster(folder)
        port = free_port()
        self.scheduler = SchedulerProcess(self.cluster.kubeconfig, port, "--validate")
        flags = ("--kubeconfig", str(self.cluster.kubeconfig), "--nodes", str(NODES), "--pods", str(ROOM))
        self.nodes = Module(
            folder / "sim.log", "carico.embedded.simulated", *flags, "--schedulers", f"127.0.0.1:{port}"
        )

    def stop(self) -> None:
        self.nodes.stop(signal.SIGKILL)
        self.scheduler.stop(signal.SIGKILL)
        self.cluster.stop()

    def create(self, count: int, runs_for: str = "", prefix: str = "p") -> None:
        for i in range(count):
            meta: dict[str, Any] = {"name": f"{prefix}{i}"}
            if runs_for:
                meta["annotations"] = {"carico.dev/runs-for": runs_for}
            spec = {"schedulerName": "carico", "containers": [{"name": "c", "image": "i"}]}
            self.cluster.create({"kind": "Pod", "metadata": meta, "spec": spec})

    def pods(self) -> list[dict[str, Any]]:
        return list(self.cluster.api.get("/api/v1/namespaces/default/pods")["items"])

    def phases(self) -> list[str]:
        return sorted(pod["status"]["phase"] for pod in self.pods())

    def until(self, what: str, holds: Callable[[], bool]) -> None:
        self.cluster.wait_for(what, holds, 60)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    try:
        made.nodes.wait_for("all nodes have reported")
        yield made
    finally:
        made.stop()


@pytest.mark.slow
def test_no_more_pods_run_than_the_agents_have_room_for(stage: Stage) -> None:
    stage.create(NODES * ROOM + 5)
    stage.until("the nodes to be full", lambda: stage.phases().count("Running") == NODES * ROOM)

    def all_wait() -> bool:
        rest = [pod for pod in stage.pods() if pod["status"]["phase"] == "Pending"]
        reasons = [c.get("reason") for pod in rest for c in pod["status"].get("conditions", [])]
        return len(rest) == 5 and reasons == ["Unschedulable"] * 5

    stage.until("the others to be told why they wait", all_wait)
    nodes = [pod["spec"].get("nodeName") for pod in stage.pods()]
    assert max(nodes.count(f"sim-{i:04d}") for i in range(NODES)) == ROOM
    gone = next(pod["metadata"]["name"] for pod in stage.pods() if pod["status"]["phase"] == "Running")
    stage.cluster.api.delete(f"/api/v1/namespaces/default/pods/{gone}")
    after = ["Pending"] * 4 + ["Running"] * (NODES * ROOM)  # the deleted one is listed until its node lets go
    stage.until("its place to be taken", lambda: stage.phases() == after)


@pytest.mark.slow
def test_pods_end_after_their_time_and_make_room(stage: Stage) -> None:
    stage.create(NODES * ROOM + 6, runs_for="1s")
    stage.until("all to have ended", lambda: stage.phases() == ["Succeeded"] * (NODES * ROOM + 6))
    status = stage.pods()[0]["status"]
    ended = status["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (0, "Completed")


@pytest.mark.slow
def test_the_scheduler_restarts_and_gets_all_nodes_reports_again(stage: Stage) -> None:
    port = next(word for word in stage.nodes.command if word.startswith("127.0.0.1:")).rpartition(":")[2]
    stage.scheduler.stop(signal.SIGKILL)
    stage.scheduler = SchedulerProcess(stage.cluster.kubeconfig, int(port), "--validate", "--no-leader-elect")
    stage.create(NODES * ROOM)
    stage.until("all to run", lambda: stage.phases() == ["Running"] * (NODES * ROOM))


@pytest.mark.slow
def test_they_report_over_tls_in_the_embedded_cluster(tmp_path: Path) -> None:
    async def scenario() -> str:
        async with Guard() as guard:
            cluster = LocalCluster(guard, tmp_path)
            await cluster.start()
            await cluster.simulate(3)
            page = ""
            # This machine's own agent reports when it has an estimate.
            while "carico_scheduler_stale_nodes 0.0" not in page:
                page = await asyncio.to_thread(_page, f"{cluster.page}metrics")
                await asyncio.sleep(0.1)
            return page

    page = asyncio.run(asyncio.wait_for(scenario(), 120))
    assert all(f'carico_node_free_pods{{node="sim-000{i}"}}' in page for i in range(3))
    assert "carico_scheduler_messages_refused_total{" not in page


def _page(address: str) -> str:
    with urllib.request.urlopen(address, timeout=30) as answer:
        return str(answer.read().decode())


@pytest.mark.parametrize("flags", [("--pods", "many"), ("--nodes", "some")])
def test_wrong_flags_are_named_in_one_line(tmp_path: Path, flags: tuple[str, str]) -> None:
    process = Module(tmp_path / "log", "carico.embedded.simulated", "--kubeconfig", "none", *flags)
    assert process.stop(signal.SIGCONT) == 2
    assert flags[1] in process.log().splitlines()[-1]
