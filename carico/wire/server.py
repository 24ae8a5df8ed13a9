"""The listening side of gRPC, with bytes in and bytes out.

A service is a factory of sessions: one session per call, made for a caller that `identity` has vouched for. The session
answers messages and knows nothing of gRPC. Bytes that are no message end the call with a status, as does a caller
without an identity; everything else is the session's own affair.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol

import grpc
from grpc import aio

from carico.errors import CaricoError
from carico.settings import TlsFiles
from carico.wire import tls
from carico.wire.codec.checks import Undecodable
from carico.wire.identity import Caller, Identity, Unauthenticated

log = logging.getLogger(__name__)

MESSAGE_LIMIT = 2**20  # bytes: a replica's aggregate with all its points of cost; nodes' messages are far smaller
OPTIONS = [
    ("grpc.max_receive_message_length", MESSAGE_LIMIT),
    ("grpc.so_reuseport", 0),  # a second server on the same port is an error, not a silent partner
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
]


class Session(Protocol):
    """One call, from its opening to its end."""

    def greeting(self) -> bytes | None:
        """What to say before the first message."""

    def answer(self, message: bytes) -> bytes | None:
        """What to say to a message; raises Undecodable to end the call."""

    def closed(self) -> None:
        """Called once, whatever ended the call."""


Sessions = Callable[[Caller], Session]
Context = Any  # grpc.aio.ServicerContext, whose type needs the message types that bytes replace here


class _Open:
    """Writes to one stream, one at a time: gRPC allows no more."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._turn = asyncio.Lock()
        self.task = asyncio.current_task()

    async def write(self, message: bytes) -> None:
        async with self._turn:
            await self._context.write(message)


class StreamMethod:
    """A method that both sides stream on."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._open: set[_Open] = set()
        self._ending = False

    @property
    def streams(self) -> int:
        return len(self._open)

    async def broadcast(self, message: bytes) -> None:
        """Says `message` on every open stream; one that is just ending misses nothing."""
        await asyncio.gather(*(stream.write(message) for stream in self._open), return_exceptions=True)

    def end(self) -> None:
        """Ends every stream with a status. Left to gRPC, they would be torn down with tracebacks in the log."""
        self._ending = True
        for stream in self._open:
            if stream.task is not None:
                stream.task.cancel()

    def handler(self, identity: Identity) -> Any:
        async def handle(requests: AsyncIterator[bytes], context: Context) -> None:
            session = self._sessions(await _caller(identity, context))
            stream = _Open(context)
            self._open.add(stream)
            try:
                await _converse(session, requests, stream)
            except Undecodable as error:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            except asyncio.CancelledError:
                if not self._ending:
                    raise
                await context.abort(grpc.StatusCode.UNAVAILABLE, "this replica ends")
            finally:
                self._open.discard(stream)
                session.closed()

        return grpc.stream_stream_rpc_method_handler(handle)


class UnaryMethod:
    """A method with one question and one answer: a session of one message."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def end(self) -> None:
        """Its calls are answered at once; none is open for long."""

    def handler(self, identity: Identity) -> Any:
        async def handle(request: bytes, context: Context) -> bytes:
            session = self._sessions(await _caller(identity, context))
            try:
                return session.answer(request) or b""
            except Undecodable as error:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
                raise
            finally:
                session.closed()

        return grpc.unary_unary_rpc_method_handler(handle)


async def _converse(session: Session, requests: AsyncIterator[bytes], stream: _Open) -> None:
    greeting = session.greeting()
    if greeting is not None:
        await stream.write(greeting)
    async for message in requests:
        reply = session.answer(message)
        if reply is not None:
            await stream.write(reply)


async def _caller(identity: Identity, context: Context) -> Caller:
    metadata = {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
    try:
        return identity.caller(context.auth_context(), metadata)
    except Unauthenticated as error:
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(error))
        raise


class GrpcServer:
    """Serves methods, by path such as `/carico.wire.v1.Aggregation/Exchange`, at `address` (port 0: a free one)."""

    def __init__(self, address: str, files: TlsFiles, methods: dict[str, StreamMethod | UnaryMethod]) -> None:
        self._address = address
        self._credentials = tls.server_credentials(files, f"the gRPC server at {address}")
        self._identity = tls.identity(files)
        self._methods = methods
        self._server: aio.Server | None = None

    async def start(self) -> int:
        """Starts to listen and returns the port."""
        server = aio.server(options=OPTIONS)
        for path, method in self._methods.items():
            _, service, name = path.split("/")
            handlers = {name: method.handler(self._identity)}
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        port = self._bind(server)
        if port is None:
            del server  # gRPC's destructor needs the loop: an exception must not carry the server out of it
            raise CaricoError(f"cannot listen on {self._address} for gRPC; choose another --grpc-listen")
        await server.start()
        self._server = server
        return port

    def _bind(self, server: aio.Server) -> int | None:
        try:
            if self._credentials is None:
                return server.add_insecure_port(self._address)
            return server.add_secure_port(self._address, self._credentials)
        except RuntimeError:
            return None

    async def stop(self, grace: float = 0.2) -> None:
        """Ends all streams at once, and other calls after a grace in seconds."""
        if self._server is not None:
            for method in self._methods.values():
                method.end()
            await self._server.stop(grace)
            self._server = None
