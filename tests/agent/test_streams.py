"""A real agent and its servers, over real TLS."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from carico.wire.certificates import Authority, Pair
from harness.cluster.ports import free_port
from harness.running import AgentProcess, Process, agent
from harness.wire.listening import ListeningScheduler

pytestmark = pytest.mark.slow


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def server(authority: Authority) -> Pair:
    return authority.issue("localhost", "localhost", "127.0.0.1")


def aggregator(server: Pair, port: int) -> Process:
    listen = ["--listen", "127.0.0.1:0", "--grpc-listen", f"127.0.0.1:{port}"]
    tls = ["--tls-cert", str(server.cert), "--tls-key", str(server.key), "--allow-anonymous-clients"]
    process = Process("aggregator", *listen, *tls)
    process.wait_for(r"gRPC on port \d+")
    return process


def test_every_scheduler_gets_the_nodes_reports(authority: Authority, server: Pair) -> None:
    with ListeningScheduler(*server, heartbeat=0.5) as one, ListeningScheduler(*server, heartbeat=0.5) as other:
        flags = ["--schedulers", f"{one.target},{other.target}", "--tls-ca", str(authority.cert), "--runtime", "none"]
        with agent(*flags) as process:
            first = one.wait_for(lambda report: report.node == "node-1")
            assert other.wait_for(lambda report: report.node == "node-1").start_id == first.start_id
            assert (first.counted, first.finished) == (frozenset(), frozenset())
            assert first.dimensions == ("cpu", "memory")
            assert 0 <= first.estimate.pod_capacity <= 1000
            later = one.wait_for(lambda report: report.sequence > first.sequence)
            assert later.age < 5.0
            process.ready()
            process.stop(signal.SIGKILL)
        assert one.refused == []


def test_a_scheduler_that_restarts_gets_the_newest_state_at_once(authority: Authority, server: Pair) -> None:
    port = free_port()  # that the kernel gives to no other process while no scheduler listens
    with ListeningScheduler(*server, port=port) as scheduler:
        flags = ["--schedulers", scheduler.target, "--tls-ca", str(authority.cert), "--runtime", "none"]
        process = AgentProcess(*flags)
        before = scheduler.wait_for(lambda report: report.node == "node-1")
    try:
        process.wait_for("no stream to .*trying again")
        with ListeningScheduler(*server, port=port) as again:
            after = again.wait_for(lambda report: report.node == "node-1")
            assert after.start_id == before.start_id
            assert after.sequence > before.sequence
            assert after.counted is not None
            assert after.age < 5.0
    finally:
        process.stop(signal.SIGKILL)


def test_without_an_aggregator_the_node_works_on_and_finds_it_when_it_comes(authority: Authority, server: Pair) -> None:
    port = free_port()
    first = aggregator(server, port)
    with agent("--aggregator", f"localhost:{port}", "--tls-ca", str(authority.cert), "--runtime", "none") as process:
        process.wait_for("connected to localhost")
        process.wait_until(lambda: process.get("/readyz") == (200, "ok\n"), "the first estimate")
        first.stop(signal.SIGKILL)
        process.wait_for("no stream to localhost.*trying again")
        assert process.get("/readyz") == (200, "ok\n")
        second = aggregator(server, port)
        try:
            connected = 'carico_agent_streams{to="aggregator"} 1.0'
            process.wait_until(lambda: connected in process.get("/metrics")[1], "connected again")
        finally:
            second.stop()


def test_a_server_with_a_foreign_certificate_is_not_talked_to(tmp_path: Path, server: Pair) -> None:
    (tmp_path / "foreign").mkdir()
    foreign = Authority(tmp_path / "foreign")
    with ListeningScheduler(*server) as scheduler:
        flags = ["--schedulers", scheduler.target, "--tls-ca", str(foreign.cert), "--runtime", "none"]
        with agent(*flags) as process:
            process.wait_for("no stream to .*trying again")
        assert scheduler.reports == []
