"""Floods of one caller, over real gRPC and TLS, while another node reports: each is refused and counted."""

from __future__ import annotations

import asyncio
import json
import resource
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio
from prometheus_client import CollectorRegistry

from carico.clock import SystemClock
from carico.kube.token_reviews import NODE_NAME, TokenMetrics, TokenReviews
from carico.settings import ServerTlsFiles, TlsFiles
from carico.testing import ManualClock
from carico.wire.certificates import Authority
from carico.wire.channel import OPTIONS
from carico.wire.report_client import METHOD, ReportClient
from carico.wire.server import STREAMS_PER_NODE, GrpcServer, StreamMethod, UnaryMethod
from carico.wire.tokens import Accounts, Tokens
from harness.kube.made_tokens import AUDIENCE, account, of, unsigned
from harness.kube.scripted import ScriptedApi, Sent
from harness.wire import raw_calls
from harness.wire.messages import node_report
from harness.wire.report_streams import Scheduler, ended, with_files

pytestmark = [pytest.mark.slow]

CONNECTIONS, STREAMS = 1_000, 10_000
PATIENCE = 540.0  # s


@pytest.fixture(autouse=True)
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4 * CONNECTIONS:
        pytest.skip(f"a process may open {hard} files here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4 * CONNECTIONS), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def answer(sent: Sent) -> bytes:
    """An API server that accepts every token but those that end in `forged`."""
    body = sent.body if isinstance(sent.body, dict) else json.loads(sent.body)
    token = body["spec"]["token"]
    if token.endswith("forged"):
        return b'{"status": {"authenticated": false}}'
    claims = of(token)
    node = claims["kubernetes.io"]["node"]["name"]
    user = {"username": claims["sub"], "extra": {NODE_NAME: [node]}}
    return json.dumps({"status": {"authenticated": True, "audiences": [AUDIENCE], "user": user}}).encode()


class World:
    def __init__(self, folder: Path, authority: Authority) -> None:
        pair = authority.issue("localhost", "localhost", "127.0.0.1")
        files = ServerTlsFiles(tls_cert=pair.cert, tls_key=pair.key, token_audience=AUDIENCE)
        self.authority, self.folder = authority, folder
        self.scheduler = Scheduler(files)
        self.api = ScriptedApi(ManualClock(), answer)
        self.registry = CollectorRegistry()
        accounts = Accounts.of(files, "carico-system")
        metrics = TokenMetrics(self.registry, "scheduler")
        reviews = TokenReviews(self.api.client, AUDIENCE, accounts, SystemClock(), metrics)
        tokens = Tokens(accounts, reviews, SystemClock())
        methods: dict[str, StreamMethod | UnaryMethod] = {METHOD: self.scheduler.service.method}
        self.server = GrpcServer("127.0.0.1:0", files, methods, tokens=tokens)
        self.port = 0

    def channel(self, number: int) -> aio.Channel:
        credentials = grpc.ssl_channel_credentials(self.authority.cert.read_bytes())
        return aio.secure_channel(f"127.0.0.1:{self.port}", credentials, options=[*OPTIONS, ("carico.number", number)])

    async def reports_go_on(self, pods: int) -> None:
        """Another node reports, while the flood lasts."""
        self.agent.offer(node_report(node="good", pods=pods))
        await asyncio.wait_for(self._counted(pods), PATIENCE)

    async def _counted(self, pods: int) -> None:
        while not any(report.estimate.pods == pods for report in self.scheduler.reports):
            self.scheduler.news.clear()
            await self.scheduler.news.wait()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self.port = await self.server.start()
        (self.folder / "token").write_text(unsigned(node="good"))
        files = TlsFiles(tls_ca=self.authority.cert, token_file=self.folder / "token")
        self.agent = ReportClient(with_files(files, f"127.0.0.1:{self.port}"), SystemClock())
        task = asyncio.create_task(self.agent.run())
        try:
            await self.reports_go_on(1)
            yield
        finally:
            await ended(task)
            await self.server.stop()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, Authority(tmp_path))


async def opened(channel: aio.Channel, token: str) -> tuple[grpc.StatusCode, Any]:
    call = raw_calls.stream(channel, METHOD, (("authorization", f"Bearer {token}"),))
    try:
        await call.read()
    except aio.AioRpcError as error:
        return error.code(), call
    return grpc.StatusCode.OK, call


def test_a_thousand_connections_and_ten_thousand_streams_of_one_node(world: World) -> None:
    token = unsigned(node="bad")

    async def scenario() -> None:
        async with world.running():
            channels = [world.channel(number) for number in range(CONNECTIONS)]
            per = STREAMS // CONNECTIONS
            found: Counter[grpc.StatusCode] = Counter()
            calls = []
            for at in range(0, CONNECTIONS, 50):
                part = [opened(channel, token) for channel in channels[at : at + 50] for _ in range(per)]
                for code, call in await asyncio.wait_for(asyncio.gather(*part), PATIENCE):
                    found[code] += 1
                    calls.append(call)
                await world.reports_go_on(2 + at)
            assert found == {
                grpc.StatusCode.OK: STREAMS_PER_NODE,
                grpc.StatusCode.RESOURCE_EXHAUSTED: STREAMS - STREAMS_PER_NODE,
            }
            assert world.scheduler.refused.count("streams") == STREAMS - STREAMS_PER_NODE
            assert len(world.api.sent) <= 3, "one review of each token, and another when the first is forgotten"
            for call in calls:
                call.cancel()
            await asyncio.gather(*(channel.close(None) for channel in channels))
            await world.reports_go_on(100_000)

    asyncio.run(asyncio.wait_for(scenario(), PATIENCE))


def test_a_flood_of_bad_tokens(world: World) -> None:
    """Some cost no review; of the others one address gets few."""
    bad = [unsigned(jti=str(number), node="good").rpartition(".")[0] + ".forged" for number in range(500)]
    bad += [f"guess.{number}.x" for number in range(500)]
    bad += [unsigned(jti=str(number), subject=account("default")) for number in range(500)]

    async def scenario() -> None:
        async with world.running():
            found: Counter[grpc.StatusCode] = Counter()
            async with world.channel(0) as channel, world.channel(1) as other:
                for at in range(0, len(bad), 100):
                    part = [opened(channel if n % 2 else other, each) for n, each in enumerate(bad[at : at + 100])]
                    found.update([code for code, _ in await asyncio.wait_for(asyncio.gather(*part), PATIENCE)])
                    await world.reports_go_on(2 + at)
            assert set(found) <= {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.UNAVAILABLE}
            assert found[grpc.StatusCode.UNAUTHENTICATED] >= 1000

            def count(metric: str, **labels: str) -> float:
                value = world.registry.get_sample_value(metric, {"component": "scheduler", **labels})
                assert value is not None
                return value

            by_reason = {
                reason: count("carico_tokens_refused_total", reason=reason)
                for reason in ("malformed", "account", "unknown")
            }
            later = count("carico_tokens_postponed_total")
            assert (by_reason["malformed"], by_reason["account"]) == (500, 500)
            assert by_reason["unknown"] + later == 500
            assert world.scheduler.refused.count("identity") == sum(by_reason.values())

    asyncio.run(asyncio.wait_for(scenario(), PATIENCE))
