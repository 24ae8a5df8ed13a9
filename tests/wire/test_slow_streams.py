"""Streams whose other side does not read, opens too many or pings too often: others are unaffected (real gRPC)."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from grpc import aio

from carico.settings import TlsFiles
from carico.wire import server
from carico.wire.channel import Dialer
from carico.wire.codec import report as codec
from carico.wire.report_server import METHOD
from carico.wire.v1 import capacity_pb2 as pb
from harness.wire import raw_calls
from harness.wire.messages import node_report
from harness.wire.report_streams import PLAIN, Scheduler, running
from harness.wire.tls import Tls

# A client that makes no room for more than a few messages and reads none.
SMALL_WINDOW = [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 1024)]


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  (gRPC has no event for it)
            await asyncio.sleep(0.01)


async def dropped(call: Any) -> grpc.StatusCode:
    """Reads what is left: the status comes behind it."""
    with contextlib.suppress(aio.AioRpcError):
        while isinstance(await call.read(), bytes):
            pass
    code: grpc.StatusCode = await call.code()
    return code


@running
async def test_a_stream_that_does_not_read_its_answers_is_dropped() -> None:
    scheduler = Scheduler(PLAIN)
    port = await scheduler.start()
    method = scheduler.service.method
    async with aio.insecure_channel(f"127.0.0.1:{port}", options=SMALL_WINDOW) as channel:
        call = raw_calls.stream(channel, METHOD)
        await call.write(codec.encode(node_report(sequence=1)))
        await scheduler.until(lambda: scheduler.reports)
        refused = pb.NodeReport(node="n1").SerializeToString()  # each gets an answer, and none is read

        async def flood() -> None:
            while True:
                await call.write(refused)

        flooding = asyncio.create_task(flood())
        await scheduler.until(lambda: scheduler.silent)  # dropped
        assert method.streams == 0
        await scheduler.until(lambda: "not-reading" in scheduler.refused)
        call.cancel()
        await asyncio.gather(flooding, return_exceptions=True)
    await scheduler.stop()


@running
async def test_an_announcement_waits_for_no_stream() -> None:
    """A new leader announces to all agents that it leads, before it schedules."""
    scheduler = Scheduler(PLAIN)
    port = await scheduler.start()
    service = scheduler.service
    announce: Callable[[], object] = service.announce
    async with (
        aio.insecure_channel(f"127.0.0.1:{port}", options=SMALL_WINDOW) as slow,
        aio.insecure_channel(f"127.0.0.1:{port}") as quick,
    ):
        deaf = raw_calls.stream(slow, METHOD)
        await deaf.write(codec.encode(node_report(sequence=1)))
        await scheduler.until(lambda: scheduler.reports)
        for _ in range(5_000):  # more than the other side makes room for
            assert announce() is None, "it is a call that returns, nothing to be awaited"
        good = raw_calls.stream(quick, METHOD)
        await good.read()
        assert service.method.streams == 2
        service.announce()
        assert codec.decode_ack(await good.read()).leader, "the other stream hears it while the first one is stuck"
        await scheduler.until(lambda: scheduler.silent)
        assert service.method.streams == 1
        assert await dropped(deaf) is grpc.StatusCode.RESOURCE_EXHAUSTED
        good.cancel()
    await scheduler.stop()


@running
async def test_many_slow_streams_at_once_are_not_dropped_as_a_few_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loaded machine or network, or one program behind all of them: dropping them would make them all return."""
    monkeypatch.setattr(server, "LOOK_EVERY", 3600.0)  # the checks are made by hand
    scheduler = Scheduler(PLAIN)
    port = await scheduler.start()
    method = scheduler.service.method

    def look(times: int) -> None:
        monkeypatch.setattr(server, "LOOK_EVERY", 1.0)
        for _ in range(times):
            method.look()
        monkeypatch.setattr(server, "LOOK_EVERY", 3600.0)

    async with aio.insecure_channel(f"127.0.0.1:{port}", options=SMALL_WINDOW) as channel:
        calls = [raw_calls.stream(channel, METHOD) for _ in range(server.FEW + 2)]
        for number, call in enumerate(calls):
            await call.write(codec.encode(node_report(node=f"n{number}", sequence=1)))
        await scheduler.until(lambda: len(scheduler.reports) == len(calls))
        method.broadcast(bytes(2**20))  # more than the other side makes room for
        await until(lambda: len(method._waiting) == len(calls))
        look(int(server.READ_WITHIN) * 3)
        await asyncio.sleep(0)
        assert method.streams == len(calls)
        for call in calls[2:]:
            call.cancel()
        await until(lambda: method.streams == len(method._waiting) == 2)
        look(1)  # two are few, and have waited for long
        await until(lambda: method.streams == 0)
        assert scheduler.refused == ["not-reading"] * 2
        for call in calls:
            call.cancel()
    await scheduler.stop()


@running
async def test_thousands_of_new_streams_wait_instead_of_being_cancelled() -> None:
    """After a restart all nodes return at once; gRPC's own limit is 1,000 of them."""
    scheduler = Scheduler(PLAIN)
    port = await scheduler.start()
    async with contextlib.AsyncExitStack() as stack:
        channels = [
            await stack.enter_async_context(aio.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.channel_id", i)]))
            for i in range(8)
        ]
        calls = [raw_calls.stream(channel, METHOD) for channel in channels for _ in range(250)]
        for answer in await asyncio.gather(*(call.read() for call in calls)):
            assert isinstance(answer, bytes)
        assert scheduler.service.method.streams == len(calls)
        for call in calls:
            call.cancel()
    await scheduler.stop()


@running
async def test_a_dropped_stream_leaves_no_traceback_when_its_client_goes(caplog: pytest.LogCaptureFixture) -> None:
    scheduler = Scheduler(PLAIN)
    port = await scheduler.start()
    async with aio.insecure_channel(f"127.0.0.1:{port}", options=SMALL_WINDOW) as channel:
        call = raw_calls.stream(channel, METHOD)
        await call.write(codec.encode(node_report(sequence=1)))
        await scheduler.until(lambda: scheduler.reports)
        for _ in range(5_000):
            scheduler.service.announce()
        await scheduler.until(lambda: scheduler.silent)
    await until(lambda: not scheduler.service.method._of_caller)  # gRPC has let go of it too
    await scheduler.stop()
    assert [record.message for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == [
        "the gRPC server at 127.0.0.1:0 uses plaintext: any host on this network can read and forge it",
        "refused, not-reading: a stream of an unknown caller: this stream does not read what is sent to it"
        " (and 0 more before)",
    ]


@running
async def test_a_node_has_so_many_streams_and_no_more(tls: Tls) -> None:
    scheduler = Scheduler(tls.server)
    port = await scheduler.start()
    address = f"127.0.0.1:{port}"
    async with contextlib.AsyncExitStack() as stack:

        async def opened(name: str) -> tuple[Any, Any]:
            channel = Dialer(address, tls.node(name), "a test").open(address)
            await stack.enter_async_context(channel)
            call = raw_calls.stream(channel, METHOD)
            return call, await call.read()

        first, _ = await opened("n1")
        for _ in range(server.STREAMS_PER_NODE - 1):
            await opened("n1")
        with pytest.raises(aio.AioRpcError, match="too many streams at once"):
            await opened("n1")
        assert scheduler.refused == ["streams"]
        await opened("n2")
        first.cancel()
        await until(lambda: scheduler.service.method.streams == server.STREAMS_PER_NODE)
        await opened("n1")  # one went, one may come
    await scheduler.stop()


@running
async def test_a_connection_carries_so_many_streams_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        server, "OPTIONS", [(name, 3 if "concurrent_streams" in name else v) for name, v in server.OPTIONS]
    )
    scheduler = Scheduler(PLAIN)
    address = f"127.0.0.1:{await scheduler.start()}"
    async with Dialer(address, TlsFiles(plaintext=True), "a test").open(address) as channel:
        calls = [raw_calls.stream(channel, METHOD) for _ in range(4)]
        reads = [asyncio.create_task(call.read()) for call in calls]
        done, waiting = await asyncio.wait(reads, return_when=asyncio.FIRST_COMPLETED)
        while len(done) < 3:
            more, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            done |= more
        assert scheduler.service.method.streams == 3
        calls[reads.index(next(iter(done)))].cancel()  # makes room for the fourth
        async with asyncio.timeout(30):
            await asyncio.wait(waiting)
        for call in calls:
            call.cancel()
    await scheduler.stop()


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)
PING = b"\x00\x00\x08\x06\x00" + bytes(4) + b"8 bytes "
GOAWAY = 7


def frames(data: bytes) -> list[int]:
    """The types of the HTTP/2 frames in it."""
    found = []
    while len(data) >= 9:
        found.append(data[3])
        data = data[9 + int.from_bytes(data[:3], "big") :]
    return found


@running
async def test_a_client_that_pings_all_the_time_loses_its_connection() -> None:
    scheduler = Scheduler(PLAIN)
    port = await scheduler.start()

    def received() -> list[int]:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
            connection.sendall(PREFACE + 10 * PING)
            data = b""
            while GOAWAY not in frames(data) and (more := connection.recv(65536)):
                data += more
            return frames(data)

    assert GOAWAY in await asyncio.to_thread(received)
    await scheduler.stop()
