"""Which caller may send what: replicas only where there are some, one node per stream; class costs to subscribers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import grpc
import pytest
from grpc import aio

from carico.aggregator.process import Aggregator
from carico.aggregator.service import SERVICE, AggregationService
from carico.clock import SystemClock
from carico.errors import UsageError
from carico.settings import AgentSettings, AggregatorSettings, TlsFiles
from carico.testing import ManualClock
from carico.types import ClassCost, ClassKey, LocalModel, NodeSize
from carico.wire.certificates import Authority
from carico.wire.channel import Dialer
from carico.wire.classes_client import ClassesClient
from carico.wire.codec import classes, cluster, local, replica
from carico.wire.identity import AnyCaller, Caller
from carico.wire.server import Session
from harness.aggregator.models import make_model, make_state
from harness.wire import raw_calls

T = TypeVar("T")
Costs = Mapping[ClassKey, ClassCost]
ADDRESSES: dict[str, Any] = {"listen": "127.0.0.1:0", "grpc_listen": "127.0.0.1:0"}
COST = ClassCost(
    ClassKey("a", "a/web", "r1"), 2, 5.0, (0.5, 1e8), (0.01, 1e14), (0.6, 2e8), (0.5, 1e8), 2.0
)  # fmt: skip


def service_of(*, has_peers: bool = False) -> AggregationService:
    return AggregationService(make_state(), ManualClock(), lambda: None, lambda _: None, has_peers=has_peers)


def test_without_peers_no_caller_may_act_as_a_replica() -> None:
    assert f"{SERVICE}/Peer" not in service_of().methods
    assert f"{SERVICE}/Peer" in service_of(has_peers=True).methods


def test_over_the_network_one_forged_replica_moves_nothing() -> None:
    """Plaintext, no peers: once anybody could claim a million nodes with one message."""

    async def play(aggregator: Aggregator, address: str) -> tuple[grpc.StatusCode, object]:
        forged = make_state("forged", 3)
        forged.accept(make_model(1), forged.open_stream(), 0.0)
        forged.refresh(0.0)
        async with aio.insecure_channel(address) as channel:
            call = raw_calls.stream(channel, f"{SERVICE}/Peer")
            with contextlib.suppress(aio.AioRpcError):  # the refusal may be here before the message is out
                await call.write(replica.encode(forged.own_model(0.0)))
            code = await call.code()
        return code, aggregator.state._peers

    code, peers = served(AggregatorSettings(**ADDRESSES, warmup=0.0, plaintext=True), play)
    assert code is grpc.StatusCode.UNIMPLEMENTED
    assert not peers


def test_callers_without_a_certificate_are_no_replicas() -> None:
    assert not asyncio.run(AnyCaller(plaintext=False).admit({}, {}, "")).caller.is_replica
    files: dict[str, Any] = {"tls_ca": "ca.pem", "tls_cert": "c.pem", "tls_key": "k.pem"}
    with pytest.raises(UsageError, match="peers need client_ca"):
        Aggregator(AggregatorSettings(peers=("x:1",), allow_anonymous_clients=True, **files), SystemClock())


def answered(session: Session, model: LocalModel) -> bytes:
    answer = session.answer(local.encode(model))
    assert answer is not None
    return answer


def test_a_stream_carries_one_node() -> None:
    service = service_of()
    session = service.exchange._sessions(Caller(names=None, is_replica=False))
    answered(session, make_model(1))
    refused = cluster.decode(answered(session, make_model(2)))
    assert isinstance(refused, cluster.RejectedMessage)
    assert refused.reason == "identity"
    assert len(service.state._rows) == 1
    assert not isinstance(cluster.decode(answered(session, make_model(1))), cluster.RejectedMessage)


def test_an_aggregator_that_is_late_lets_its_nodes_wait() -> None:
    service = service_of()
    session = service.exchange._sessions(Caller(names=None, is_replica=False))
    service.refresh(late=0.0)
    assert cluster.decode_next_ask(answered(session, make_model(1))) == 0.0
    service.refresh(late=0.5)
    service.refresh(late=0.5)
    assert cluster.decode_next_ask(answered(session, make_model(1))) == 1.5
    for _ in range(30):
        service.refresh(late=0.0)
    assert cluster.decode_next_ask(answered(session, make_model(1))) == 0.0


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


def served(settings: AggregatorSettings, play: Callable[[Aggregator, str], Awaitable[T]]) -> T:
    """What `play(aggregator, address)` answers. The server ends whatever happens: one that is left over hangs."""

    async def run() -> T:
        aggregator = Aggregator(settings, SystemClock())
        port, _ = await aggregator.start()
        try:
            return await asyncio.wait_for(play(aggregator, f"127.0.0.1:{port}"), 60)
        finally:
            await aggregator.stop()

    return asyncio.run(run())


def over_tls(authority: Authority) -> AggregatorSettings:
    pair = authority.issue("carico:aggregator", "127.0.0.1")
    files: dict[str, Any] = {"client_ca": authority.cert, "tls_cert": pair.cert, "tls_key": pair.key}
    return AggregatorSettings(**ADDRESSES, warmup=0.0, merge_every=0.02, **files)


def caller(authority: Authority, name: str) -> dict[str, Any]:
    pair = authority.issue(name) if name.startswith("carico:") else authority.issue_node(name)
    return {"tls_ca": authority.cert, "tls_cert": pair.cert, "tls_key": pair.key}


def test_a_scheduler_may_listen_and_say_nothing(authority: Authority) -> None:
    async def play(_: Aggregator, address: str) -> tuple[Costs, grpc.StatusCode]:
        received: asyncio.Queue[Costs] = asyncio.Queue()
        settings = AgentSettings(aggregator=address, **caller(authority, "carico:scheduler"))
        client = ClassesClient(settings, SystemClock(), lambda costs, _: received.put_nowait(costs))
        task = asyncio.create_task(client.run())
        assert await received.get() == {}
        talking = TlsFiles(**caller(authority, "node-1"))
        async with Dialer(address, talking, "a test").open(address) as channel:
            call = raw_calls.stream(channel, f"{SERVICE}/Exchange")
            model = make_model(1, size=NodeSize(8, 2.0**33), class_costs=(COST,))
            await call.write(local.encode(model))
            await call.read()
            costs = await received.get()
            call.cancel()
        listening = TlsFiles(**caller(authority, "carico:scheduler"))
        async with Dialer(address, listening, "a test").open(address) as channel:
            call = raw_calls.stream(channel, f"{SERVICE}/Exchange")
            refused = await call.code()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return costs, refused

    costs, refused = served(over_tls(authority), play)
    assert costs[COST.key].mean == COST.mean
    assert refused is grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.parametrize(
    "garbage", [b"\xff" * 10, b"x" * 600_000, classes.encode_query(classes.Query(0, 0, frozenset()))]
)
def test_a_query_that_cannot_be_ends_its_stream(authority: Authority, garbage: bytes) -> None:
    async def play(_: Aggregator, address: str) -> Any:
        async with Dialer(address, TlsFiles(**caller(authority, "node-1")), "a test").open(address) as channel:
            call = raw_calls.stream(channel, f"{SERVICE}/Classes")
            await call.write(garbage)
            try:
                answer = await call.read()
            except aio.AioRpcError as error:
                return error.code()
            finally:
                call.cancel()
        return classes.decode(answer).whole

    found = served(over_tls(authority), play)
    assert found in (grpc.StatusCode.INVALID_ARGUMENT, True)


def test_a_listener_that_does_not_read_is_dropped_and_the_others_hear(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hundreds of changes a second for a client that does not read them."""
    monkeypatch.setattr("carico.wire.server.READ_WITHIN", 3.0)

    async def play(aggregator: Aggregator, address: str) -> Costs:
        received: asyncio.Queue[Costs] = asyncio.Queue()
        settings = AgentSettings(aggregator=address, **caller(authority, "carico:scheduler"))
        good = ClassesClient(settings, SystemClock(), lambda costs, _: received.put_nowait(costs))
        task = asyncio.create_task(good.run())
        dialer = Dialer(address, TlsFiles(**caller(authority, "node-9")), "a test")
        async with dialer.open(address) as channel:
            deaf = raw_calls.stream(channel, f"{SERVICE}/Classes")
            await deaf.write(classes.encode_query(classes.Query(0, 0, frozenset())))
            subscribers = aggregator._service.subscribers
            while len(subscribers) < 2:  # noqa: ASYNC110  (there is no event for it)
                await asyncio.sleep(0.01)
            table, round_ = aggregator.state.classes, 0
            while len(subscribers) > 1:
                round_ += 1
                grown = [with_name(f"{i:0300d}", 0.1 * (1 + round_ % 7)) for i in range(500)]
                for start in range(0, 500, 50):
                    table.receive("n1", grown[start : start + 50], ("cpu", "memory"))
                await asyncio.sleep(0.02)
            while not received.empty():
                received.get_nowait()
            table.receive("n2", [with_name("last", 1.0)], ("cpu", "memory"))
            costs = await received.get()
            while not any(key.family == "last" for key in costs):
                costs = await received.get()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return costs

    assert len(served(over_tls(authority), play)) == 501


def with_name(name: str, cpu: float) -> ClassCost:
    return ClassCost(ClassKey("a", name, ""), 1, 1.0, (cpu, 1.0), (0.0, 0.0), (cpu, 1.0), (cpu, 1.0), 0.0)
