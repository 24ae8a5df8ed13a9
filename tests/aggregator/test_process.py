"""Real `carico aggregator` processes: they start, converge, are killed and restarted, and end on a signal."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from carico.aggregator.service import SERVICE
from carico.clock import SystemClock
from carico.estimate.pipeline import Evidence, Pipeline
from carico.settings import AgentSettings, EstimateSettings, TlsFiles
from carico.types import ClusterModel, Estimate, LocalModel, NodeSize, PodCount, Sample
from carico.wire import channel
from carico.wire.certificates import Authority
from carico.wire.codec import cluster
from carico.wire.exchange import ExchangeClient
from harness.promtool import complaints
from harness.wire import raw_calls

pytestmark = pytest.mark.slow

DIMENSIONS = ("cpu", "memory")
SIZE = NodeSize(4, 2.0**34)
Files = tuple[Authority, list[str]]  # and flags of an aggregator


class Replica:
    """One `carico aggregator` on ports of its own, which it keeps across restarts."""

    def __init__(self, name: str, files: list[str], *, port: int | None = None, peers: str = "") -> None:
        self.grpc, self.pages = port or free_port(), free_port()
        self._flags = ["--replica-name", name, "--grpc-listen", f"127.0.0.1:{self.grpc}"]
        self._flags += ["--listen", f"127.0.0.1:{self.pages}", "--hold", "0.5", *files]
        self._flags += ["--peers", peers] if peers else []

    def start(self) -> None:
        command = [sys.executable, "-m", "carico.cli", "aggregator", *self._flags]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ)

    def end(self, number: signal.Signals = signal.SIGKILL) -> str:
        self.process.send_signal(number)
        _, log = self.process.communicate(timeout=30)
        return log

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.pages}{path}", timeout=10) as page:
            text: str = page.read().decode()
            return text

    def nodes(self) -> int:
        """Nodes in its model; 0 while it has none, or does not listen yet."""
        try:
            model = json.loads(self.get("/debug/model"))["model"]
        except OSError:
            return 0
        return int(model["nodes"]) if model else 0


def free_port() -> int:
    """Below the range that the kernel gives to outgoing connections, so that none takes it during a restart."""
    while True:
        port = random.randrange(20_000, 30_000)
        with socket.socket() as listener:
            if listener.connect_ex(("127.0.0.1", port)) != 0:
                return port


async def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Polls from another thread, as the pages are another process's."""
    began = time.monotonic()
    while not await asyncio.to_thread(condition):
        assert time.monotonic() - began < seconds, f"not within {seconds} s"
        await asyncio.sleep(0.1)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder: Path = tmp_path_factory.mktemp("tls")
    authority = Authority(folder)
    pair = authority.issue("carico:aggregator", "localhost", "127.0.0.1")
    return authority, [
        *("--tls-ca", str(authority.cert), "--client-ca", str(authority.cert)),
        *("--tls-cert", str(pair.cert), "--tls-key", str(pair.key)),
    ]


class Agent:
    """The node's half of federation: a real pipeline fed at 10 Hz, a real client, and what it adopts."""

    def __init__(self, name: str, files: Files, target: str) -> None:
        authority, _ = files
        pair = authority.issue_node(name)
        certificates: dict[str, Any] = {"tls_ca": authority.cert, "tls_cert": pair.cert, "tls_key": pair.key}
        self._name, self._pipeline = name, Pipeline(EstimateSettings(), DIMENSIONS)
        settings = AgentSettings(aggregator=target, ask_every=1.0, **certificates)
        self.client = ExchangeClient(settings, SystemClock(), self._adopt)
        self.models: list[ClusterModel] = []
        self.estimates: list[Estimate] = []

    def _evidence(self) -> Evidence:
        evidence = self._pipeline.evidence()
        assert evidence is not None
        return evidence

    def _adopt(self, model: ClusterModel) -> None:
        self.models.append(model)
        basis = self._evidence().basis
        view = cluster.view(model, SIZE, DIMENSIONS, basis @ basis.T)
        self._pipeline.adopt(view.gram, view.cost, view.mean_pods)

    async def run(self) -> None:
        link = asyncio.create_task(self.client.run())
        try:
            for tick in range(10**9):
                estimate = self._pipeline.update(Sample(tick / 10, (0.3, 0.4)), PodCount(2, False, 0))
                if estimate is not None:
                    self.estimates.append(estimate)
                    self._tell()
                await asyncio.sleep(0.02)  # five times as fast as a real node
        finally:
            link.cancel()
            await asyncio.gather(link, return_exceptions=True)

    def _tell(self) -> None:
        evidence = self._evidence()
        baseline = tuple(max(0.0, b) for b in evidence.baseline * SIZE.vector(DIMENSIONS))
        self.client.offer(
            LocalModel(
                self._name, 1, 0, SIZE, DIMENSIONS, evidence.basis, baseline, None, pods=2, samples=evidence.samples
            )
        )


def have_estimated(agents: Sequence[Agent], counts: Sequence[int]) -> bool:
    """Each agent has made more than five estimates since there were so many."""
    return all(len(agent.estimates) > count + 5 for agent, count in zip(agents, counts, strict=True))


def have_adopted(agents: Sequence[Agent], counts: Sequence[int]) -> bool:
    """Each agent has adopted a model since there were so many."""
    return all(len(agent.models) > count for agent, count in zip(agents, counts, strict=True))


async def ended(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.slow
def test_a_replica_that_is_killed_takes_no_signal_with_it_and_comes_back(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two replicas behind one name, six agents. Each replica is killed in turn; agents go to the other one."""

    async def play() -> None:
        replicas, addresses = several(2, files)

        async def both(_: object) -> list[str]:
            return addresses

        monkeypatch.setattr(channel.Dialer, "addresses", both)
        for replica in replicas:
            replica.start()
        await until(lambda: all(listens(replica) for replica in replicas))
        agents = [Agent(f"n{i}", files, "127.0.0.1:1") for i in range(6)]
        tasks = [asyncio.create_task(agent.run()) for agent in agents]
        try:
            for replica in replicas:
                await until(lambda: all(r.nodes() == 6 for r in replicas))
                replica.end(signal.SIGKILL)
                models, said = [len(a.models) for a in agents], [len(a.estimates) for a in agents]
                await until(functools.partial(have_estimated, agents, said))
                replica.start()
                await until(functools.partial(have_adopted, agents, models))
                await until(functools.partial(listens, replica))
        finally:
            await ended(tasks)
            for replica in replicas:
                replica.end()
        assert all(0 < estimate.signal_k < 1000 for agent in agents for estimate in agent.estimates)

    asyncio.run(asyncio.wait_for(play(), 400))


def several(count: int, files: Files) -> tuple[list[Replica], list[str]]:
    """Replicas that know each other, and their addresses."""
    ports = [free_port() for _ in range(count)]
    addresses = [f"127.0.0.1:{port}" for port in ports]
    peers = ",".join(addresses)
    return [Replica(f"r{i}", files[1], port=port, peers=peers) for i, port in enumerate(ports)], addresses


def listens(replica: Replica) -> bool:
    try:
        return replica.get("/readyz") == "ok\n"
    except OSError:
        return False


def test_the_only_replica_is_killed_and_gets_its_model_back(files: Files) -> None:
    """`make bench NAME=aggregator-restart` measures how soon."""

    async def play() -> None:
        replica = Replica("r1", files[1])
        replica.start()
        agents = [Agent(f"n{i}", files, f"localhost:{replica.grpc}") for i in range(4)]
        tasks = [asyncio.create_task(agent.run()) for agent in agents]
        try:
            await until(lambda: replica.nodes() == 4)
            replica.end(signal.SIGKILL)
            said = [len(agent.estimates) for agent in agents]
            await until(functools.partial(have_estimated, agents, said))
            replica.start()
            await until(lambda: replica.nodes() == 4)
        finally:
            await ended(tasks)
            replica.end()

    asyncio.run(asyncio.wait_for(play(), 300))


def test_three_replicas_converge_to_one_model(files: Files) -> None:
    """Two nodes at each; every replica sends the same model of all six."""

    async def play() -> None:
        replicas, addresses = several(3, files)
        for replica in replicas:
            replica.start()
        agents = [Agent(f"n{i}", files, addresses[i % 3]) for i in range(6)]
        tasks = [asyncio.create_task(agent.run()) for agent in agents]
        try:
            await until(lambda: all(replica.nodes() == 6 for replica in replicas))
            shown = [json.loads(replica.get("/debug/model")) for replica in replicas]
            page = replicas[0].get("/metrics")
        finally:
            await ended(tasks)
            for replica in replicas:
                replica.end()
        for one in shown:
            np.testing.assert_allclose(one["model"]["gram"], shown[0]["model"]["gram"], rtol=1e-3)
            assert len(one["nodes"]) == 2
            assert sorted(one["peers"]) == sorted({"r0", "r1", "r2"} - {one["replica"]})
        assert "carico_aggregator_peers 2.0" in page
        assert "carico_aggregator_model_nodes 6.0" in page
        assert 'carico_aggregator_model_dimension_nodes{resource="cpu"} 2.0' in page

    asyncio.run(asyncio.wait_for(play(), 300))


@pytest.mark.needs("promtool")
def test_promtool_accepts_the_page_of_a_replica_at_work(files: Files) -> None:
    async def play() -> None:
        replica = Replica("r1", files[1])
        replica.start()
        task = asyncio.create_task(Agent("n1", files, f"127.0.0.1:{replica.grpc}").run())
        try:
            await until(lambda: replica.nodes() == 1)
            page = replica.get("/metrics")
        finally:
            await ended([task])
            replica.end()
        assert complaints(page) == ""
        call = 'grpc_method="Exchange",grpc_service="carico.wire.v1.Aggregation",grpc_type="bidi_stream"'
        assert f"grpc_server_started_total{{{call}}} 1.0" in page
        assert 'carico_event_loop_lag_seconds_count{component="aggregator"} 0.0' not in page
        assert "carico_aggregator_messages_total 0.0" not in page
        label = '{certificate="tls_cert",component="aggregator"}'
        assert f"carico_certificate_not_after_timestamp_seconds{label}" in page

    asyncio.run(asyncio.wait_for(play(), 300))


def test_a_node_may_not_speak_as_a_replica(files: Files) -> None:
    async def play() -> grpc.StatusCode:
        replica = Replica("r1", files[1], peers=f"localhost:{free_port()}")
        replica.start()
        await until(lambda: listens(replica))
        authority, _ = files
        pair = authority.issue_node("n1")
        stranger = TlsFiles(tls_ca=authority.cert, tls_cert=pair.cert, tls_key=pair.key)
        dialer = channel.Dialer(f"127.0.0.1:{replica.grpc}", stranger, "a test")
        async with dialer.open(dialer.target) as connection:
            call = raw_calls.stream(connection, f"{SERVICE}/Peer")
            answer: grpc.StatusCode = await call.code()
        replica.end()
        return answer

    assert asyncio.run(asyncio.wait_for(play(), 60)) is grpc.StatusCode.PERMISSION_DENIED


def test_it_ends_on_a_signal(files: Files) -> None:
    async def play() -> tuple[str, int]:
        replica = Replica("r1", files[1])
        replica.start()
        await until(lambda: listens(replica))
        agent = Agent("n1", files, f"localhost:{replica.grpc}")
        task = asyncio.create_task(agent.run())
        await until(lambda: replica.nodes() == 1)
        log = await asyncio.to_thread(replica.end, signal.SIGTERM)
        await ended([task])
        return log, replica.process.returncode

    log, code = asyncio.run(asyncio.wait_for(play(), 300))
    assert code == 0
    assert "replica r1, merge latest" in log
    assert "Traceback" not in log


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ([], "needs tls_cert and tls_key, or plaintext = true"),
        (["--tls-cert", "/no", "--tls-key", "/no", "--peers", "x:1"], "peers need tls_ca"),
        (["--plaintext", "--grpc-listen", "nonsense"], "cannot listen on nonsense"),
        (["--plaintext", "--merge", "lates"], "did you mean 'latest'?"),
    ],
)
def test_errors_are_reported_in_one_line(flags: list[str], complaint: str) -> None:
    command = [sys.executable, "-m", "carico.cli", "aggregator", "--listen", "127.0.0.1:0", *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode in (1, 2)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("carico: ")
    assert complaint in last
    assert "Traceback" not in done.stderr
