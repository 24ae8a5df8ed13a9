"""The table of class costs at a client: whole, by changes, in parts; and streams that outlive faults."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import grpc
import pytest
from grpc import aio

from carico.clock import SystemClock
from carico.errors import InvalidMessage
from carico.types import ClassCost, ClassKey
from carico.wire import client
from carico.wire.channel import Dialer
from carico.wire.classes_client import ClassesPolicy
from carico.wire.client import StreamClient, StreamPolicy
from carico.wire.codec import classes
from carico.wire.codec.classes import ClassName
from carico.wire.server import GrpcServer, StreamMethod
from harness.wire.messages import class_cost
from harness.wire.report_streams import PLAIN, running

RESOURCES = ("cpu", "memory")
Received = list[tuple[Mapping[ClassKey, ClassCost], tuple[str, ...]]]


@pytest.fixture
def received() -> Received:
    return []


@pytest.fixture
def policy(received: Received) -> ClassesPolicy:
    policy = ClassesPolicy(lambda costs, resources: received.append((costs, resources)), limit=256)
    policy.on_open(0.0)
    return policy


def tell(
    policy: ClassesPolicy,
    version: int,
    costs: Sequence[ClassCost],
    gone: Sequence[ClassName] = (),
    *,
    whole: bool = False,
) -> None:
    for part in classes.encode(version, RESOURCES, [classes.chunk(cost) for cost in costs], gone, whole=whole):
        policy.on_message(part, 1.0)


def test_the_first_message_has_the_clients_version(policy: ClassesPolicy) -> None:
    assert policy.delay(0.0) == 0.0
    assert classes.decode_query(policy.next_message(0.0)) == classes.Query(0, 256, frozenset())
    assert policy.delay(0.0) == math.inf
    tell(policy, 12, [class_cost()], whole=True)
    policy.on_open(5.0)
    assert classes.decode_query(policy.next_message(5.0)).version == 12


def test_changes_are_put_into_the_table(policy: ClassesPolicy, received: Received) -> None:
    tell(policy, 10, [class_cost("web"), class_cost("db")], whole=True)
    tell(policy, 11, [class_cost("web", mean=(0.9, 1.0))], [ClassName("team-a/db", "5d9c")])
    costs, resources = received[-1]
    assert {key.family: cost.mean for key, cost in costs.items()} == {"team-a/web": (0.9, 1.0)}
    assert resources == RESOURCES
    tell(policy, 3, [class_cost("other")], whole=True)
    assert [key.family for key in received[-1][0]] == ["team-a/other"], "another replica, another table"


def test_what_a_rejected_part_held_is_requested_again(policy: ClassesPolicy, received: Received) -> None:
    tell(policy, 10, [class_cost("web")], whole=True)
    parts = classes.encode(20, RESOURCES, [classes.chunk(class_cost(f"c{i}")) for i in range(1500)], whole=True)
    wrong = classes.encode(0, RESOURCES, [classes.chunk(class_cost(mean=(-1.0, 1.0)))], whole=True)
    with pytest.raises(InvalidMessage):
        policy.on_message(wrong[0], 2.0)
    policy.on_message(parts[1], 2.0)
    assert len(received[-1][0]) == 501, "what is known stays"
    policy.on_open(3.0)
    assert classes.decode_query(policy.next_message(3.0)).version == 10


def test_a_table_in_parts_is_shown_when_it_is_complete(policy: ClassesPolicy, received: Received) -> None:
    tell(policy, 10, [class_cost("web")], whole=True)
    parts = classes.encode(20, RESOURCES, [classes.chunk(class_cost(f"c{i}")) for i in range(1500)], whole=True)
    policy.on_message(parts[0], 2.0)
    assert len(received) == 1, "the classes of the second part are not gone meanwhile"
    policy.on_message(parts[1], 2.0)
    assert len(received[-1][0]) == 1500


def test_classes_of_new_pods_are_named_at_most_once_a_second(policy: ClassesPolicy) -> None:
    policy.next_message(0.0)
    assert policy.want({ClassKey("a", "a/web", "r1")})
    assert not policy.want({ClassKey("a", "a/web", "r1")})
    assert policy.delay(0.25) == 0.75
    assert classes.decode_query(policy.next_message(1.0)).wanted == {ClassName("a/web", "r1")}
    assert policy.delay(1.0) == math.inf


def test_an_invalid_message_leaves_the_table_unchanged(policy: ClassesPolicy, received: Received) -> None:
    tell(policy, 10, [class_cost()], whole=True)
    with pytest.raises(InvalidMessage):
        tell(policy, 11, [class_cost(mean=(math.nan, 1.0))])
    assert len(received) == 1


class Echo:
    """A session that answers every message, or none."""

    def __init__(self, deaf: Callable[[], bool]) -> None:
        self._deaf = deaf

    def greeting(self) -> bytes | None:
        return None

    def answer(self, message: bytes) -> bytes | None:
        return None if self._deaf() else message

    def on_close(self) -> None:
        pass


class Chatter:
    """Sends a message whenever it may."""

    def __init__(self, on_receive: Callable[[], None] = lambda: None, every: float = 0.0) -> None:
        self.received_count, self.opened_count, self._on_receive, self._every, self._sent_at = (
            0,
            0,
            on_receive,
            every,
            -math.inf,
        )

    def on_open(self, now: float) -> None:  # noqa: ARG002
        self.opened_count += 1

    def delay(self, now: float) -> float:
        return max(0.0, self._sent_at + self._every - now)

    def next_message(self, now: float) -> bytes:
        self._sent_at = now
        return b"word"

    def on_message(self, message: bytes, now: float) -> None:  # noqa: ARG002
        self.received_count += 1
        self._on_receive()


async def served(deaf: Callable[[], bool] = lambda: False) -> tuple[GrpcServer, str]:
    server = GrpcServer("127.0.0.1:0", PLAIN, {"/test.Echo/Talk": StreamMethod(lambda _: Echo(deaf), lambda _: None)})
    return server, f"127.0.0.1:{await server.start()}"


def stream_to(address: str, policy: StreamPolicy, **settings: Any) -> StreamClient:
    async def choose() -> str:
        return address

    dialer = Dialer(address, PLAIN, "a test")
    return StreamClient(dialer, "/test.Echo/Talk", policy, SystemClock(), choose=choose, **settings)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110  (what is waited for is on a stream)
            await asyncio.sleep(0.01)


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@running
async def test_a_policy_that_fails_at_an_answer_keeps_its_stream(caplog: pytest.LogCaptureFixture) -> None:
    """A model that the pipeline cannot take raises ValueError; once that ended the stream, again and again."""

    def fail() -> None:
        raise ValueError("a Gram matrix that is not 2 × 2 numbers of plausible size")

    server, address = await served()
    policy = Chatter(fail, every=0.02)
    with caplog.at_level(logging.WARNING):
        task = asyncio.create_task(stream_to(address, policy, patience=20.0).run())
        await until(lambda: policy.received_count >= 10)
    assert policy.opened_count == 1
    assert any(": a Gram matrix" in line for line in caplog.messages)
    await ended(task)
    await server.stop()


@running
async def test_patience_grows_with_each_silence_and_comes_back_with_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PAUSE_AFTER_SILENCE", 0.01)
    silent = True
    server, address = await served(lambda: silent)
    policy = Chatter(every=0.01)
    stream = stream_to(address, policy, patience=0.05)
    task = asyncio.create_task(stream.run())
    await until(lambda: stream._silences >= 3)
    assert stream._patience_now() >= 0.4
    assert stream._pause_after_silence() >= 0.04
    silent = False
    await until(lambda: policy.received_count)
    assert stream._silences == 0
    assert stream._patience_now() == 0.05
    await ended(task)
    await server.stop()


@running
async def test_a_stream_that_is_refused_is_not_tried_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that has too many streams: every further connection costs it more than an answer."""
    monkeypatch.setattr(client, "PAUSE_AFTER_SILENCE", 0.01)
    refuses = True

    async def handle(requests: AsyncIterator[bytes], context: Any) -> None:
        if refuses:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many streams at once")
        async for message in requests:
            await context.write(message)

    server = aio.server()
    handlers = {"Talk": grpc.stream_stream_rpc_method_handler(handle)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Echo", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    policy = Chatter(every=0.01)
    stream = stream_to(f"127.0.0.1:{port}", policy, patience=None)
    task = asyncio.create_task(stream.run())
    await until(lambda: stream._silences >= 3)
    assert stream._pause_after_silence() >= 0.04
    refuses = False
    await until(lambda: policy.received_count)
    assert stream._silences == 0
    await ended(task)
    await server.stop(None)


@running
async def test_an_old_stream_is_replaced_without_a_log_line(caplog: pytest.LogCaptureFixture) -> None:
    server, address = await served()
    policy = Chatter(every=0.01)
    with caplog.at_level(logging.WARNING):
        caplog.clear()
        task = asyncio.create_task(stream_to(address, policy, patience=20.0, longest=0.1).run())
        await until(lambda: policy.opened_count >= 4)
    assert not [line for line in caplog.messages if "no stream" in line]
    await ended(task)
    await server.stop()
