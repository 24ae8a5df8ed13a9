"""Metrics of the calls that a gRPC server handles, under the names of go-grpc-prometheus, as in etcd and others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from prometheus_client import CollectorRegistry, Counter

CALL = ("grpc_type", "grpc_service", "grpc_method")
# Go's spelling.
CODES = {code: "".join(word.title() for word in code.name.split("_")) for code in grpc.StatusCode} | {
    grpc.StatusCode.OK: "OK",
    grpc.StatusCode.CANCELLED: "Canceled",
}


class GrpcServerMetrics:
    """Only methods that are served are counted, so that no caller can create a new series."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._started = Counter("grpc_server_started", "Calls that began on the server.", CALL, registry=registry)
        self._handled = Counter(
            "grpc_server_handled",
            "Calls that ended on the server, by the status with which it ended them.",
            (*CALL, "grpc_code"),
            registry=registry,
        )

    def counted(self, handler: Any, service: str, method: str) -> Any:
        """A method's handler that counts its calls."""
        kind, attribute = ("bidi_stream", "stream_stream") if handler.request_streaming else ("unary", "unary_unary")
        call = (kind, service, method)
        started = self._started.labels(*call)
        self._handled.labels(*call, "OK")  # a rate needs the series to exist before the first event
        answer: Callable[[Any, Any], Awaitable[Any]] = getattr(handler, attribute)

        async def handle(request: Any, context: Any) -> Any:
            started.inc()
            status = grpc.StatusCode.UNKNOWN
            try:
                reply = await answer(request, context)
                status = grpc.StatusCode.OK
                return reply
            except asyncio.CancelledError:
                status = grpc.StatusCode.CANCELLED
                raise
            finally:
                ended = context.code() or status  # gRPC's own is that of an abort, else None
                self._handled.labels(*call, CODES[ended]).inc()

        return handler._replace(**{attribute: handle})
