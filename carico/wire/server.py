"""The gRPC server, with bytes in and bytes out.

A service is a factory of sessions: one session per call, made for a caller that `identity` has accepted. The session
answers messages and is independent of gRPC. Bytes that are not a message end the call with a status, as does a caller
without an identity; everything else is up to the session.

A client that does not read what is written to it loses its stream, and no other client waits for it.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any, Protocol, runtime_checkable

import grpc
from grpc import aio

from carico.errors import CaricoError, InvalidMessage, TryAgain, Unauthenticated, UndecodableMessage
from carico.settings import ServerTlsFiles
from carico.wire import tls
from carico.wire.identity import Admission, Caller, CallerIdentity
from carico.wire.message_rate import MessageRate
from carico.wire.metrics import GrpcServerMetrics
from carico.wire.stream_end import NOT_ALLOWED, NOT_READING, SERVER_ENDS, TOKEN_ENDS, TOO_MANY, StreamEnd, lifetime
from carico.wire.turns import MessageTurns

MESSAGE_LIMIT = 2**20  # bytes: a replica's aggregate with all its points of cost; nodes' messages are far smaller
STREAMS_PER_CONNECTION = 256  # an agent has one; the simulated nodes share a connection among 250 of them
# An agent has one. More remain from machines that vanished, until a ping detects that.
STREAMS_PER_NODE = 8
STREAMS_OF_REPLICAS = 64  # all replicas of the aggregator have one identity, and all schedulers another
READ_WITHIN = 5.0  # s in which the other side must make room for a message
LOOK_EVERY = 1.0  # s between two checks of the messages that wait for room
LATE = 0.5  # s by which a check may be late; beyond it the delay may be this process's own
# Where more streams than FEW wait, and more than this share of all, a few slow readers are not the cause, but this
# machine, the network or one program behind all of them: then the time is CROWD_TIMES as long.
CROWD = 0.1
FEW = 16
CROWD_TIMES = 12
ANSWERS_AT_ONCE = 16  # messages of a method in one iteration of the event loop: a few milliseconds
ANNOUNCEMENTS_AT_ONCE = 8
CONNECTION_AGE = 6 * 3600  # s; then a new one is made, and certificates are verified again
OPTIONS = [
    ("grpc.max_receive_message_length", MESSAGE_LIMIT),
    ("grpc.so_reuseport", 0),  # a second server on the same port is an error, not a silent share of its calls
    ("grpc.max_concurrent_streams", STREAMS_PER_CONNECTION),
    # New streams that wait to be accepted, which takes two or three iterations of the event loop for each. gRPC cancels
    # some beyond the first number and all beyond the second. Its own are 1,000 and 3,000, but thousands of nodes return
    # at once after a restart.
    ("grpc.server.max_pending_requests", 5_000),
    ("grpc.server.max_pending_requests_hard_limit", 10_000),
    ("grpc.max_connection_idle_ms", 300_000),  # without a stream
    ("grpc.max_connection_age_ms", CONNECTION_AGE * 1000),
    ("grpc.max_connection_age_grace_ms", 5_000),
    # Clients ping every 10 s (channel.py). The third that comes sooner than after 5 s ends the connection.
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 2),
    # A machine that vanished closes no connection.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
]


class Session(Protocol):
    """One call, from its opening to its end."""

    def greeting(self) -> bytes | None:
        """The message to send before the first one is received."""

    def answer(self, message: bytes) -> bytes | None:
        """The response to a message; raises UndecodableMessage to end the call."""

    def on_close(self) -> None:
        """Called once, whatever ended the call."""


@runtime_checkable
class ReturningSession(Protocol):
    """A session that distinguishes a stream that this server ended and that its client opens again at once."""

    def on_return(self) -> None:
        """Called once instead of `on_close`."""


class Outlet(Protocol):
    """A stream as seen by a session that sends unrequested messages."""

    @property
    def pending(self) -> int:
        """Messages that the other side has not made room for yet."""

    def announce(self, message: bytes) -> None:
        """Sends `message` as soon as the other side has room for it; returns immediately."""


@runtime_checkable
class AnnouncingSession(Protocol):
    """A session that also sends messages without a request."""

    def attach(self, outlet: Outlet) -> None:
        """Called once, before the greeting."""


Sessions = Callable[[Caller], Session]
Admits = Callable[[Caller], bool]  # whether a caller may use a method at all
Refuse = Callable[[InvalidMessage], None]  # counts and logs what is rejected before it reaches a session
Context = Any  # grpc.aio.ServicerContext, whose type needs the message types that bytes replace here


def anyone(_: Caller) -> bool:
    return True


class _Stream:
    """One open stream: its requests and responses, and announcements in between."""

    def __init__(
        self,
        context: Context,
        waiting: dict[_Stream, int],
        answering: MessageTurns,
        announcing: MessageTurns,
        on_rate: Callable[[], None],
    ) -> None:
        self._context, self._on_rate = context, on_rate
        self._waiting = waiting  # streams with a message that waits for room, and for how many checks it has
        self._answering, self._announcing = answering, announcing
        self._turn = asyncio.Lock()  # gRPC allows one write at a time
        self._task = asyncio.current_task()
        self._rate = MessageRate(asyncio.get_running_loop().time())
        self._end: StreamEnd | None = None
        self._announcements: set[asyncio.Task[None]] = set()

    async def converse(self, session: Session, requests: AsyncIterator[bytes]) -> StreamEnd | None:
        """Runs until the other side has sent everything, or something ends the stream before: then returns why."""
        try:
            greeting = session.greeting()
            if greeting is not None:
                await self._write(greeting)
            async for message in requests:
                await self._limit()
                await self._answering.take()
                reply = session.answer(message)
                if reply is not None:
                    await self._write(reply)
        except UndecodableMessage as error:
            return StreamEnd(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except asyncio.CancelledError:
            if self._end is None:
                raise
            return self._end
        finally:
            for task in self._announcements:
                task.cancel()
        return None

    async def _limit(self) -> None:
        was_exceeded = self._rate.exceeded
        wait = self._rate.wait(asyncio.get_running_loop().time())
        if wait > 0:
            if not was_exceeded:
                self._on_rate()
            await asyncio.sleep(wait)

    @property
    def pending(self) -> int:
        return len(self._announcements)

    def announce(self, message: bytes) -> None:
        """Sends `message` as soon as the other side has room for it; returns immediately."""
        task = asyncio.create_task(self._announce(message))
        self._announcements.add(task)
        task.add_done_callback(self._announcements.discard)

    def end(self, end: StreamEnd) -> None:
        self._end = end
        if self._task is not None:
            self._task.cancel()

    async def _announce(self, message: bytes) -> None:
        await self._announcing.take()
        with suppress(aio.BaseError):  # the stream is just ending: its next one begins with a greeting
            await self._write(message)

    async def _write(self, message: bytes) -> None:
        """Waits until the other side makes room; StreamMethod.look ends a stream that waits for too long."""
        async with self._turn:
            self._waiting[self] = 0
            try:
                await self._context.write(message)
            finally:
                self._waiting.pop(self, None)


class StreamMethod:
    """A bidirectional streaming method."""

    def __init__(self, sessions: Sessions, refuse: Refuse, admits: Admits = anyone) -> None:
        self._sessions, self._refuse, self._admits = sessions, refuse, admits
        self._open: set[_Stream] = set()
        self._waiting: dict[_Stream, int] = {}
        self._answering, self._announcing = MessageTurns(ANSWERS_AT_ONCE), MessageTurns(ANNOUNCEMENTS_AT_ONCE)
        self._of_caller: Counter[Caller] = Counter()  # streams, including those whose end has not been received

    @property
    def streams(self) -> int:
        return len(self._open)

    def broadcast(self, message: bytes) -> None:
        """Sends `message` on every open stream, without waiting for any; one that is just ending misses nothing."""
        for stream in self._open:
            stream.announce(message)

    def look(self) -> None:
        """Ends streams whose message has waited for room for too many checks.

        Checks are counted, not seconds: if this process itself was paused, thousands of messages are late at once, and
        no reader is the cause. What they have read meanwhile is processed before the next check.
        """
        is_crowd = len(self._waiting) > max(FEW, CROWD * len(self._open))
        within = READ_WITHIN * (CROWD_TIMES if is_crowd else 1)
        for stream, looks in list(self._waiting.items()):
            self._waiting[stream] = looks + 1
            if looks * LOOK_EVERY >= within:
                stream.end(NOT_READING)

    def end(self) -> None:
        """Ends every stream with a status. Otherwise gRPC would end them with tracebacks in the log."""
        for stream in self._open:
            stream.end(SERVER_ENDS)

    def handler(self, identity: CallerIdentity) -> Any:
        async def handle(requests: AsyncIterator[bytes], context: Context) -> None:
            caller, ends_in = await _admission(identity, context, self._refuse)
            self._of_caller[caller] += 1
            try:
                end = await self._serve(caller, ends_in, requests, context)
                if end is not None:
                    # Takes until the other side has read what came before, or is gone.
                    await context.abort(end.code, end.detail, end.metadata)
            except aio.InternalError:  # it is gone; gRPC itself would log a traceback
                raise asyncio.CancelledError from None
            finally:
                self._of_caller[caller] -= 1
                if not self._of_caller[caller]:
                    del self._of_caller[caller]

        return grpc.stream_stream_rpc_method_handler(handle)

    async def _serve(
        self, caller: Caller, ends_in: float, requests: AsyncIterator[bytes], context: Context
    ) -> StreamEnd | None:
        if not self._admits(caller):
            return self._refused("identity", caller, NOT_ALLOWED)
        if self._of_caller[caller] > _streams_of(caller):
            return self._refused("streams", caller, TOO_MANY)
        session = self._sessions(caller)
        stream = _Stream(context, self._waiting, self._answering, self._announcing, lambda: self._note_rate(caller))
        self._open.add(stream)
        if isinstance(session, AnnouncingSession):
            session.attach(stream)
        call_off = _end_after(stream, ends_in)
        end = None
        try:
            end = await stream.converse(session, requests)
        finally:
            call_off()
            self._open.discard(stream)
            if end is TOKEN_ENDS and isinstance(session, ReturningSession):
                session.on_return()
            else:
                session.on_close()
        return self._refused("not-reading", caller, end) if end is NOT_READING else end

    def _note_rate(self, caller: Caller) -> None:
        self._refuse(InvalidMessage("rate", f"a stream of {caller} sends more than is read; it has to wait"))

    def _refused(self, reason: str, caller: Caller, end: StreamEnd) -> StreamEnd:
        self._refuse(InvalidMessage(reason, f"a stream of {caller}: {end.detail}"))
        return end


def _end_after(stream: _Stream, seconds: float) -> Callable[[], object]:
    """Ends a stream with its caller's credential; returns a cancel function."""
    if seconds == math.inf:
        return lambda: None
    return asyncio.get_running_loop().call_later(lifetime(seconds), stream.end, TOKEN_ENDS).cancel


def _streams_of(caller: Caller) -> float:
    """How many streams a caller may have at once. Unauthenticated callers cannot be distinguished."""
    if caller.names is None:
        return float("inf")
    shared = caller.is_replica or caller.is_scheduler
    return STREAMS_OF_REPLICAS * shared + STREAMS_PER_NODE * len(caller.names)


class UnaryMethod:
    """A unary method: a session of one message."""

    def __init__(self, sessions: Sessions, refuse: Refuse, admits: Admits = anyone) -> None:
        self._sessions, self._refuse, self._admits = sessions, refuse, admits

    def end(self) -> None:
        """Its calls are answered immediately; none is open for long."""

    def handler(self, identity: CallerIdentity) -> Any:
        async def handle(request: bytes, context: Context) -> bytes:
            caller, _ = await _admission(identity, context, self._refuse)
            if not self._admits(caller):
                self._refuse(InvalidMessage("identity", f"a call of {caller}: {NOT_ALLOWED.detail}"))
                await context.abort(NOT_ALLOWED.code, NOT_ALLOWED.detail)
            session = self._sessions(caller)
            try:
                return session.answer(request) or b""
            except UndecodableMessage as error:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
                raise
            finally:
                session.on_close()

        return grpc.unary_unary_rpc_method_handler(handle)


async def _admission(identity: CallerIdentity, context: Context, refuse: Refuse) -> Admission:
    metadata = {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
    address = context.peer().rpartition(":")[0]  # without the port
    try:
        return await identity.admit(context.auth_context(), metadata, address)
    except Unauthenticated as error:
        refuse(InvalidMessage("identity", str(error)))
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(error))
        raise
    except TryAgain as error:
        await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        raise


class GrpcServer:
    """Serves methods, by path such as `/carico.wire.v1.Aggregation/Exchange`, at `address` (port 0: a free one)."""

    def __init__(
        self,
        address: str,
        files: ServerTlsFiles,
        methods: dict[str, StreamMethod | UnaryMethod],
        metrics: GrpcServerMetrics | None = None,
        tokens: CallerIdentity | None = None,
    ) -> None:
        """`tokens` identifies callers by theirs; needed with `token_audience`."""
        self._address, self._metrics = address, metrics
        self._credentials = tls.server_credentials(files, f"the gRPC server at {address}")
        self._identity = tls.identity(files, tokens)
        self._methods = methods
        self._server: aio.Server | None = None
        self._looking: asyncio.Task[None] | None = None

    async def start(self) -> int:
        """Starts to listen and returns the port."""
        server = aio.server(options=OPTIONS)
        for path, method in self._methods.items():
            _, service, name = path.split("/")
            handler = method.handler(self._identity)
            if self._metrics is not None:
                handler = self._metrics.counted(handler, service, name)
            handlers = {name: handler}
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        port = self._bind(server)
        if port is None:
            del server  # gRPC's destructor needs the loop: an exception must not carry the server out of it
            raise CaricoError(f"cannot listen on {self._address} for gRPC; choose another --grpc-listen")
        await server.start()
        self._server = server
        self._looking = asyncio.create_task(self._look())
        return port

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LOOK_EVERY
            await asyncio.sleep(LOOK_EVERY)
            if loop.time() > due + LATE:
                continue
            for method in self._methods.values():
                if isinstance(method, StreamMethod):
                    method.look()

    def _bind(self, server: aio.Server) -> int | None:
        try:
            if self._credentials is None:
                return server.add_insecure_port(self._address)
            return server.add_secure_port(self._address, self._credentials)
        except RuntimeError:
            return None

    async def stop(self, grace: float = 0.2) -> None:
        """Ends all streams immediately, and other calls after a grace in seconds."""
        if self._looking is not None:
            self._looking.cancel()
        if self._server is not None:
            for method in self._methods.values():
                method.end()
            await self._server.stop(grace)
            self._server = None
