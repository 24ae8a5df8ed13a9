"""Callers that are identified by ServiceAccount tokens, over real gRPC and TLS; the review itself is a stand-in.

tests/kube/test_token_reviews.py has the review, and tests/scheduler/test_tokens_real.py both on a real API server.
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from grpc import aio

from carico import token_claims
from carico.aggregator.service import AggregationService
from carico.aggregator.state import AggregatorState
from carico.clock import SystemClock
from carico.errors import InvalidMessage, TokenRefused, TryAgain, UsageError
from carico.settings import AggregatorSettings, ServerTlsFiles, TlsFiles
from carico.types import ReviewedToken
from carico.wire import client, report_server, stream_end
from carico.wire.certificates import Authority
from carico.wire.channel import Dialer
from carico.wire.identity import Admission
from carico.wire.report_client import ReportClient
from carico.wire.server import MESSAGE_LIMIT, GrpcServer, StreamMethod, UnaryMethod
from carico.wire.tokens import Accounts, Tokens
from harness.kube.made_tokens import NAMESPACE, account, unsigned
from harness.wire import raw_calls
from harness.wire.messages import node_report
from harness.wire.report_streams import PLAIN, Scheduler, ended, running, with_files

REPORT = report_server.METHOD
AGGREGATION = "/carico.wire.v1.Aggregation"


class Reviewer:
    """Believes what a token claims."""

    def __init__(self) -> None:
        self.refused: list[str] = []
        self.away = False

    async def review(self, token: str, address: str) -> ReviewedToken:  # noqa: ARG002
        if self.away:
            raise TryAgain("the API server does not review this token now; try again")
        try:
            found = token_claims.read(token)
        except TokenRefused as error:
            self.refuse(error.reason)
            raise
        return ReviewedToken(found.subject, found.node, found.ends_at)

    def refuse(self, reason: str) -> None:
        self.refused.append(reason)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def served(authority: Authority) -> ServerTlsFiles:
    pair = authority.issue("localhost", "localhost", "127.0.0.1")
    return ServerTlsFiles(tls_cert=pair.cert, tls_key=pair.key, token_audience="carico")


@pytest.fixture
def reviewer() -> Reviewer:
    return Reviewer()


class TokenScheduler(Scheduler):
    def __init__(self, files: ServerTlsFiles, reviewer: Reviewer) -> None:
        super().__init__(files)
        self._tokens = Tokens(Accounts.of(files, NAMESPACE), reviewer, SystemClock())

    async def start(self, port: int = 0) -> int:
        methods: dict[str, StreamMethod | UnaryMethod] = {REPORT: self.service.method}
        self.server = GrpcServer(f"127.0.0.1:{port}", self._files, methods, tokens=self._tokens)
        return await self.server.start()


async def status(
    authority: Authority, port: int, token: str | None, method: str = REPORT, key: str = "authorization"
) -> tuple[grpc.StatusCode, str]:
    """Of a call with this token: OK if it stays open for its greeting."""
    dialer = Dialer(f"127.0.0.1:{port}", TlsFiles(tls_ca=authority.cert), "a test")
    async with dialer.open(f"127.0.0.1:{port}") as channel:
        metadata = () if token is None else ((key, token),)
        call = raw_calls.stream(channel, method, metadata)
        try:
            await asyncio.wait_for(call.read(), 1.0 if method != REPORT else 30.0)
        except aio.AioRpcError as error:
            return error.code(), error.details() or ""
        except TimeoutError:
            pass
        call.cancel()
        return grpc.StatusCode.OK, ""


def agent_of(authority: Authority, port: int, token_file: Path, **changes: Any) -> ReportClient:
    files = TlsFiles(tls_ca=authority.cert, token_file=token_file)
    agent = ReportClient(with_files(files, f"127.0.0.1:{port}"), SystemClock())
    agent.offer(node_report(**changes))
    return agent


@running
async def test_only_agents_with_a_node_report(authority: Authority, served: ServerTlsFiles, reviewer: Reviewer) -> None:
    scheduler = TokenScheduler(served, reviewer)
    port = await scheduler.start()
    assert (await status(authority, port, f"Bearer {unsigned()}"))[0] is grpc.StatusCode.OK
    refused = {
        None: (grpc.StatusCode.UNAUTHENTICATED, "no-token"),
        "Basic eDp5": (grpc.StatusCode.UNAUTHENTICATED, "no-token"),
        "Bearer x.y.z": (grpc.StatusCode.UNAUTHENTICATED, "malformed"),
        f"Bearer {unsigned(node='')}": (grpc.StatusCode.UNAUTHENTICATED, "before Kubernetes 1.30"),
        f"Bearer {unsigned(life=-1.0)}": (grpc.StatusCode.UNAVAILABLE, "the token of this stream ends"),
        f"Bearer {unsigned(subject=account('carico-scheduler'))}": (grpc.StatusCode.PERMISSION_DENIED, "no right"),
        f"Bearer {unsigned(subject=account('carico-aggregator'))}": (grpc.StatusCode.PERMISSION_DENIED, "no right"),
        f"Bearer {unsigned(subject=account('carico-agent', 'other'))}": (grpc.StatusCode.PERMISSION_DENIED, "no right"),
    }
    for token, (code, why) in refused.items():
        found = await status(authority, port, token)
        if "ends" not in why:
            assert found[0] is code, (token, found)
            assert why in found[1]
    assert reviewer.refused == ["no-token", "no-token", "malformed", "no-node"]
    assert scheduler.refused.count("identity") == 7
    reviewer.away = True
    code, why = await status(authority, port, f"Bearer {unsigned()}")
    assert (code, "does not review" in why) == (grpc.StatusCode.UNAVAILABLE, True)
    await scheduler.stop()


@running
async def test_each_method_is_for_its_accounts(
    authority: Authority, served: ServerTlsFiles, reviewer: Reviewer
) -> None:
    settings = AggregatorSettings(token_audience="carico", peers=("x:1",))
    state = AggregatorState(settings, "r", start_id=1)
    refused: list[str] = []
    service = AggregationService(state, SystemClock(), lambda: None, refused.append, has_peers=True)
    tokens = Tokens(Accounts.of(served, NAMESPACE), reviewer, SystemClock())
    server = GrpcServer("127.0.0.1:0", served, service.methods, tokens=tokens)
    port = await server.start()
    may: dict[str, set[str]] = {
        "carico-agent": {"Exchange", "Classes"},
        "carico-aggregator": {"Peer"},
        "carico-scheduler": {"Classes"},
        "default": set(),
    }
    for name, methods in may.items():
        for method in ("Exchange", "Classes", "Peer"):
            token = f"Bearer {unsigned(subject=account(name))}"
            code, _ = await status(authority, port, token, f"{AGGREGATION}/{method}")
            expected = grpc.StatusCode.OK if method in methods else grpc.StatusCode.PERMISSION_DENIED
            assert code is expected, (name, method)
    assert refused == ["identity"] * 8
    await server.stop()


@running
async def test_a_message_for_another_node_is_refused(
    authority: Authority, served: ServerTlsFiles, reviewer: Reviewer, tmp_path: Path
) -> None:
    scheduler = TokenScheduler(served, reviewer)
    port = await scheduler.start()
    (tmp_path / "token").write_text(unsigned(node="n2"))
    agent = agent_of(authority, port, tmp_path / "token", node="n1")
    task = asyncio.create_task(agent.run())
    await scheduler.until(lambda: "identity" in scheduler.refused)
    agent.offer(node_report(node="n2"))
    await scheduler.until(lambda: scheduler.reports)
    assert {report.node for report in scheduler.reports} == {"n2"}
    await ended(task)
    await scheduler.stop()


@running
async def test_a_stream_ends_with_its_token_and_the_next_one_has_the_new_token(
    authority: Authority, served: ServerTlsFiles, reviewer: Reviewer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node is never silent: its reports continue at once."""
    monkeypatch.setattr(client, "SOONEST", 0.5)
    scheduler = TokenScheduler(served, reviewer)
    port = await scheduler.start()
    file = tmp_path / "token"
    file.write_text(unsigned(life=2.0))
    agent = agent_of(authority, port, file, pods=1)
    task = asyncio.create_task(agent.run())
    await scheduler.until(lambda: scheduler.reports)
    file.write_text(unsigned(life=3600.0))
    await scheduler.until(lambda: len(scheduler.reports) > 1)  # nothing moved: it is the first report of a new stream
    agent.offer(node_report(pods=2))
    await scheduler.until(lambda: scheduler.reports[-1].estimate.pods == 2)
    assert scheduler.silent == []
    await ended(task)
    await scheduler.until(lambda: scheduler.silent == ["n1"])
    await scheduler.stop()


@running
async def test_a_client_without_a_newer_token_is_refused_until_it_has_one(
    authority: Authority, served: ServerTlsFiles, reviewer: Reviewer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "LONGEST_PAUSE", 0.2)
    scheduler = TokenScheduler(served, reviewer)
    port = await scheduler.start()
    file = tmp_path / "token"
    file.write_text(unsigned(life=0.5))
    agent = agent_of(authority, port, file)
    task = asyncio.create_task(agent.run())
    await scheduler.until(lambda: scheduler.reports)
    file.write_text("")  # half written
    await asyncio.sleep(1.0)
    assert agent.connected == 0
    file.write_text(unsigned())
    before = len(scheduler.reports)
    await scheduler.until(lambda: len(scheduler.reports) > before)
    await ended(task)
    await scheduler.stop()


@running
async def test_what_is_too_large_or_too_fast(
    authority: Authority, served: ServerTlsFiles, reviewer: Reviewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = TokenScheduler(served, reviewer)
    port = await scheduler.start()
    monkeypatch.setattr("carico.wire.message_rate.MESSAGES_AT_ONCE", 5.0)
    dialer = Dialer(f"127.0.0.1:{port}", TlsFiles(tls_ca=authority.cert), "a test")
    metadata = (("authorization", f"Bearer {unsigned()}"),)
    async with dialer.open(dialer.target) as channel:
        call = raw_calls.stream(channel, REPORT, metadata)
        await call.read()  # the greeting; without it the status does not come
        await call.write(bytes(MESSAGE_LIMIT + 1))
        assert await call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        call = raw_calls.stream(channel, REPORT, metadata)
        for _ in range(8):
            await call.write(b"")  # an empty report: rejected, and the stream goes on
        await scheduler.until(lambda: len(scheduler.refused) == 9)
    assert scheduler.refused.count("rate") == 1
    await scheduler.stop()


# --- plaintext ---


@running
async def test_no_token_over_plaintext(served: ServerTlsFiles, reviewer: Reviewer, tmp_path: Path) -> None:
    scheduler = TokenScheduler(served, reviewer)
    port = await scheduler.start()
    async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:  # against a TLS port
        call = raw_calls.stream(channel, REPORT, (("authorization", f"Bearer {unsigned()}"),))
        assert await call.code() is grpc.StatusCode.UNAVAILABLE
    await scheduler.stop()
    open_one = Scheduler(PLAIN)
    port = await open_one.start()
    async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:  # a token against a plaintext port
        call = raw_calls.stream(channel, REPORT, (("authorization", f"Bearer {unsigned()}"),))
        assert await call.code() is grpc.StatusCode.UNAUTHENTICATED
    assert open_one.refused == ["identity"]
    await open_one.stop()
    (tmp_path / "token").write_text(unsigned())
    with pytest.raises(UsageError, match="token_file needs TLS"):
        Dialer("x:1", TlsFiles(plaintext=True, token_file=tmp_path / "token"), "a test")
    with pytest.raises(UsageError, match="token_audience needs TLS"):
        GrpcServer("127.0.0.1:0", ServerTlsFiles(plaintext=True, token_audience="carico"), {})


def test_one_way_to_identify_callers(authority: Authority, served: ServerTlsFiles) -> None:
    for changes in ({"client_ca": authority.cert}, {"allow_anonymous_clients": True}):
        with pytest.raises(UsageError, match="exclude each other"):
            GrpcServer("127.0.0.1:0", dataclasses.replace(served, **changes), {})
    for file, why in ((Path("/none"), "cannot read /none"), (authority.cert, "holds no ServiceAccount token")):
        with pytest.raises(UsageError, match=why):
            Dialer("x:1", TlsFiles(tls_ca=authority.cert, token_file=file), "a test")


# --- the rules, without a network ---


def test_the_credential_decides_and_not_the_message() -> None:
    facts, files = {"transport_security_type": [b"ssl"]}, ServerTlsFiles(agent_account="team/measures")
    tokens = Tokens(Accounts.of(files, NAMESPACE), Reviewer(), SystemClock())

    def admitted(**changes: Any) -> Admission:
        return asyncio.run(tokens.admit(facts, {"authorization": f"Bearer {unsigned(**changes)}"}, "ipv4:10.0.0.1"))

    found = admitted(subject=account("measures", "team"), node="worker-3", life=100.0)
    assert found.caller.names == frozenset({"worker-3"})
    assert 90 < found.ends_in <= 100
    with pytest.raises(InvalidMessage):
        found.caller.authorize_node("worker-4")
    assert admitted().caller.names == frozenset()  # the default account of another installation
    for wrong in ("", "/x", "a/", "a/b/c", "system:serviceaccount:a:b"):
        with pytest.raises(UsageError, match="is no ServiceAccount"):
            Accounts.of(ServerTlsFiles(agent_account=wrong), NAMESPACE)


def test_streams_that_open_together_end_apart() -> None:
    found = [stream_end.lifetime(3600.0) for _ in range(1000)]
    assert min(found) >= 3300
    assert max(found) <= 3600
    assert max(found) - min(found) > 200
    assert stream_end.lifetime(-5.0) == 0.0
    assert math.isclose(stream_end.lifetime(30.0), 30.0)


def test_what_is_no_token() -> None:
    for text in (
        "",
        "a.b",
        "a.b.c.d",
        "ä.b.c",
        "x" * 9000,
        "e30.e30.e30",
        "e30.W10.e30",
        "e30.bm9uZQ.e30",
        "e30.MQ.e30",
    ):
        with pytest.raises(TokenRefused, match="malformed"):
            token_claims.read(text)
    for wrong in ({"exp": None}, {"exp": "soon"}, {"exp": 1e300}, {"exp": True}, {"exp": -1}, {"sub": 3}):
        with pytest.raises(TokenRefused, match="malformed"):
            token_claims.read(unsigned(**wrong))
    odd = token_claims.read(unsigned(**{"aud": "carico", "kubernetes.io": {"node": ["n1"]}}))
    assert (odd.audiences, odd.node) == (("carico",), "")
    assert token_claims.read(unsigned(aud=[1, None])).audiences == ()
    assert SimpleNamespace(**token_claims.read(unsigned())._asdict()).node == "n1"
