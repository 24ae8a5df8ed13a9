"""Calls of a real gRPC server as go-grpc-prometheus counts them."""

from __future__ import annotations

import asyncio
import functools

import grpc
import pytest
from grpc import aio
from prometheus_client import CollectorRegistry

from carico.errors import UndecodableMessage
from carico.wire.metrics import GrpcServerMetrics
from carico.wire.server import GrpcServer, StreamMethod, UnaryMethod
from harness.wire import raw_calls
from harness.wire.report_streams import PLAIN, running

SERVICE = "carico.test.Service"


class Echo:
    def greeting(self) -> bytes | None:
        return b"welcome"

    def answer(self, message: bytes) -> bytes | None:
        if message == b"bad":
            raise UndecodableMessage("no message")
        if message == b"worse":
            raise RuntimeError("a fault of the server")
        return message

    def on_close(self) -> None:
        pass


class Counted:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        methods: dict[str, StreamMethod | UnaryMethod] = {
            f"/{SERVICE}/Stream": StreamMethod(lambda _: Echo(), lambda _: None),
            f"/{SERVICE}/Once": UnaryMethod(lambda _: Echo(), lambda _: None),
        }
        self.server = GrpcServer("127.0.0.1:0", PLAIN, methods, GrpcServerMetrics(self.registry))

    def started(self, kind: str, method: str) -> float | None:
        labels = {"grpc_type": kind, "grpc_service": SERVICE, "grpc_method": method}
        return self.registry.get_sample_value("grpc_server_started_total", labels)

    def handled(self, kind: str, method: str, code: str) -> float | None:
        labels = {"grpc_type": kind, "grpc_service": SERVICE, "grpc_method": method, "grpc_code": code}
        return self.registry.get_sample_value("grpc_server_handled_total", labels)

    async def until(self, kind: str, method: str, code: str, count: int) -> None:
        """The server sees the end of a call after the client."""
        async with asyncio.timeout(30):
            while self.handled(kind, method, code) != count:  # noqa: ASYNC110 - gRPC has no event for it
                await asyncio.sleep(0.01)


@running
async def test_calls_are_counted_by_method_and_status() -> None:
    counted = Counted()
    port = await counted.server.start()
    assert counted.handled("unary", "Once", "OK") == 0, "the series is there before the first call"
    async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        once = functools.partial(raw_calls.once, channel, f"/{SERVICE}/Once")
        assert await once(b"good") == b"good"
        for message, code in ((b"bad", grpc.StatusCode.INVALID_ARGUMENT), (b"worse", grpc.StatusCode.UNKNOWN)):
            with pytest.raises(aio.AioRpcError) as error:
                await once(message)
            assert error.value.code() is code
        await counted.until("unary", "Once", "OK", 1)
        await counted.until("unary", "Once", "InvalidArgument", 1)
        await counted.until("unary", "Once", "Unknown", 1)
        assert counted.started("unary", "Once") == 3

        whole, standing = (raw_calls.stream(channel, f"/{SERVICE}/Stream") for _ in range(2))
        for call in (whole, standing):
            assert await call.read() == b"welcome"
        assert counted.started("bidi_stream", "Stream") == 2
        await whole.done_writing()
        assert await whole.code() is grpc.StatusCode.OK
        await counted.until("bidi_stream", "Stream", "OK", 1)

        with pytest.raises(aio.AioRpcError):
            await raw_calls.once(channel, f"/{SERVICE}/Nothing", b"")
        await counted.server.stop()
        assert await standing.code() is grpc.StatusCode.UNAVAILABLE
        await counted.until("bidi_stream", "Stream", "Unavailable", 1)
    methods = {s.labels["grpc_method"] for family in counted.registry.collect() for s in family.samples}
    assert methods == {"Once", "Stream"}, "a call of a method that is not served makes no series"
