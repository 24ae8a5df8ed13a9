"""The API client's network without sockets: a test answers each request, and the real client does the rest.

    client = client_of(answer, clock=clock)      every request goes to `await answer(asked)`

An ApiError that `answer` raises becomes the response; any other error is one of the connection. Each request must be in
the list of calls (carico/kube/calls.py), or the test fails: no request may lack its right.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

import msgspec
import pytest
from google.protobuf.message import Message

from carico.errors import ApiError
from carico.kube import protobuf
from carico.kube.binding import rfc3339
from carico.kube.calls import CALLS
from carico.kube.client import Client
from carico.kube.credentials import fixed
from carico.kube.http import Response, ResponseHead
from carico.kube.identity import Credentials
from carico.kube.messages import objects_pb2
from harness.kube.request_log import name_of, name_of_call

LISTED = {name_of_call(call) for call in CALLS}


class Asked(NamedTuple):
    """A request as it was sent."""

    method: str
    path: str
    body: Any  # decoded, from JSON or protobuf; None if there is none


Answer = Callable[[Asked], Awaitable[bytes]]
Watch = Callable[[str], AsyncIterator[bytes]]


class PlayedNetwork:
    """`refused` may raise why no connection can be made; `kept` connections are used again, as idle ones are."""

    def __init__(
        self,
        answer: Answer,
        watch: Watch | None = None,
        *,
        refused: Callable[[], object] = lambda: None,
        kept: bool = False,
    ) -> None:
        self.answer, self.watch, self.refused, self.kept = answer, watch, refused, kept
        self.made: list[PlayedConnection] = []

    async def connect(
        self, _: Credentials, tls: ssl.SSLContext | None, session: ssl.SSLSession | None, patience: float
    ) -> PlayedConnection:
        assert tls is None
        assert session is None
        assert patience > 0
        self.refused()
        self.made.append(PlayedConnection(self))
        return self.made[-1]

    def client(self, **options: Any) -> Client:
        return Client(fixed("http://played"), connect=self.connect, **options)


def client_of(answer: Answer, watch: Watch | None = None, **options: Any) -> Client:
    return PlayedNetwork(answer, watch).client(**options)


class PlayedConnection:
    def __init__(self, network: PlayedNetwork) -> None:
        self._network = network
        self.answered = False
        self.closed = self.timed_out = False
        self.session = self.tls = None

    @property
    def open(self) -> bool:
        return self._network.kept and not self.closed

    def close(self) -> None:
        self.closed = True

    async def request(self, message: bytes) -> Response:
        try:
            return Response(200, {}, await self._network.answer(_asked(message)))
        except ApiError as error:
            return _refusal(error)

    async def stream(self, message: bytes) -> tuple[ResponseHead, AsyncIterator[bytes]]:
        asked = _asked(message)
        assert self._network.watch is not None, "nothing is watched here"
        try:
            parts = self._network.watch(asked.path)
        except ApiError as error:
            status = error.status
            return ResponseHead(status, {}, None, False, True), _once(_refusal(error).body)
        return ResponseHead(200, {}, None, True, True), parts


async def _once(body: bytes) -> AsyncIterator[bytes]:
    yield body


def _refusal(error: ApiError) -> Response:
    causes = [{"reason": reason, "message": message} for reason, message in error.causes.items()]
    said = {"kind": "Status", "reason": error.reason, "message": error.message, "details": {"causes": causes}}
    headers = {b"retry-after": b"%d" % error.retry_after} if error.retry_after else {}
    return Response(error.status, headers, msgspec.json.encode(said))


def _asked(message: bytes) -> Asked:
    head, _, body = message.partition(b"\r\n\r\n")
    method, path, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
    name = name_of(method, path)
    if name is None or name not in LISTED:
        pytest.fail(f"{method} {path} is in no list of calls")
    return Asked(method, path, _decoded(body) if body else None)


def _decoded(body: bytes) -> Any:
    if not body.startswith(protobuf.MAGIC):
        return msgspec.json.decode(body)
    envelope = objects_pb2.Unknown.FromString(body[len(protobuf.MAGIC) :])
    return _plain(getattr(objects_pb2, envelope.typeMeta.kind).FromString(envelope.raw))


def _plain(message: Message) -> Any:
    if isinstance(message, objects_pb2.MicroTime):
        return rfc3339(message.seconds + message.nanos / 1e9)
    fields = message.ListFields()
    return {field.name: _plain(value) if isinstance(value, Message) else value for field, value in fields}
