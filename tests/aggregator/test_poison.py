"""Forged data from a tenth of the nodes: NaN, infinities, wrong shapes, huge values, forged names. The model stays.

Over real gRPC and TLS with client certificates; the honest nodes' model must equal, bit for bit, that of a run without
the others.
"""

from __future__ import annotations

import asyncio
import json
import math
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from grpc import aio

from carico.aggregator.process import Aggregator
from carico.aggregator.service import LOCAL_LIMIT, SERVICE
from carico.clock import SystemClock
from carico.settings import AggregatorSettings, TlsFiles
from carico.types import ClusterModel, LocalModel
from carico.wire.certificates import Authority
from carico.wire.channel import Dialer
from carico.wire.codec import cluster, local
from carico.wire.v1.aggregation_pb2_grpc import AggregationStub
from harness.aggregator.models import make_model
from harness.wire import raw_calls

HONEST = 36


class Node:
    """A client with a certificate and one stream, which sends any bytes."""

    def __init__(self, name: str, authority: Authority, port: int) -> None:
        self.name = name
        pair = authority.issue_node(name)
        files = TlsFiles(tls_ca=authority.cert, tls_cert=pair.cert, tls_key=pair.key)
        self._channel = Dialer(f"127.0.0.1:{port}", files, "a test").open(f"127.0.0.1:{port}")
        self.call = raw_calls.stream(self._channel, f"{SERVICE}/Exchange")

    async def say(self, message: bytes) -> ClusterModel | cluster.RejectedMessage | str | None:
        await self.call.write(message)
        answer = await self.call.read()
        return cluster.decode(answer) if isinstance(answer, bytes) else "ended"

    async def close(self) -> None:
        self.call.cancel()
        await self._channel.close(None)


def mangled(model: LocalModel, **changes: Any) -> bytes:
    message = local.parse(local.encode(model))
    for field, value in changes.items():
        if isinstance(value, list):
            del getattr(message, field)[:]
            getattr(message, field).extend(value)
        else:
            setattr(message, field, value)
    data: bytes = message.SerializeToString()
    return data


async def run(tmp_path: Path, poison: bool) -> tuple[ClusterModel, str, Any, list[list[str]]]:
    authority = Authority(tmp_path)
    pair = authority.issue("carico:aggregator", "127.0.0.1")
    files: dict[str, Any] = {"client_ca": authority.cert, "tls_cert": pair.cert, "tls_key": pair.key}
    addresses: dict[str, Any] = {"listen": "127.0.0.1:0", "grpc_listen": "127.0.0.1:0"}
    aggregator = Aggregator(AggregatorSettings(warmup=0.0, merge_every=0.02, **addresses, **files), SystemClock())
    port, page = await aggregator.start()
    honest = [Node(f"node-{i}", authority, port) for i in range(HONEST)]
    liars = [Node(f"liar-{i}", authority, port) for i in range(4)] if poison else []
    try:
        answers = [await poison_words(liars[i]) for i in range(4)] if poison else []
        for i, speaker in enumerate(honest):
            await speaker.say(local.encode(make_model(i)))
        answers += [await poison_words(liar) for liar in liars[:3]] if poison else []
        model = await final_model(honest[0])
        page_text = await asyncio.to_thread(fetch, page, "/metrics")
        shown = json.loads(await asyncio.to_thread(fetch, page, "/debug/model"))
    finally:
        for speaker in honest + liars:
            await speaker.close()
        await aggregator.stop()
    return model, page_text, shown, answers


async def poison_words(liar: Node) -> list[str]:
    """Sends everything a broken or malicious node could send; returns the responses."""
    model = make_model(500, node=liar.name)
    words = [
        mangled(model, basis=[math.nan, 0.0, 0.0, 0.0]),
        mangled(model, basis=[math.inf, 0.0, 0.0, 0.0]),
        mangled(model, basis=[0.1, 0.2, 0.3]),
        mangled(model, basis=[1e300, 0.0, 1e300, 0.0]),
        mangled(model, dimensions=["cpu", "cpu"]),
        mangled(model, dimensions=["abc", "xyz"]),
        mangled(model, baseline=[-1.0, 0.0]),
        mangled(model, basis=[-0.5, 0.0, 0.5, 0.0]),
        local.encode(make_model(3, basis=np.array([[0.9], [0.9]]), sequence=10**9)),  # in the name of an honest node
    ]
    answers = [await liar.say(word) for word in words]
    return [answer.reason if isinstance(answer, cluster.RejectedMessage) else "not refused" for answer in answers]


async def final_model(speaker: Node) -> ClusterModel:
    """Asks until the model counts all honest nodes."""
    async with asyncio.timeout(30):
        while True:
            answer = await speaker.say(local.encode(make_model(0)))
            if isinstance(answer, ClusterModel) and answer.nodes == HONEST:
                return answer
            await asyncio.sleep(0.02)


def fetch(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as page:
        text: str = page.read().decode()
        return text


EXPECTED = ["not-finite", "not-finite", "shape", "range", "dimensions", "dimensions", "range", "subspace", "identity"]


def test_forged_messages_are_rejected_counted_and_leave_no_trace(tmp_path: Path) -> None:
    clean, _, _, _ = asyncio.run(run(tmp_path, poison=False))
    model, page, shown, answers = asyncio.run(run(tmp_path, poison=True))
    np.testing.assert_array_equal(model.gram, clean.gram)
    assert model.cost == clean.cost
    assert answers == [EXPECTED] * 7
    for reason in set(EXPECTED):
        counted = float(7 * EXPECTED.count(reason))
        assert f'carico_aggregator_messages_refused_total{{reason="{reason}"}} {counted}' in page
    assert sorted(shown["nodes"]) == sorted(f"node-{i}" for i in range(HONEST))
    assert shown["model"]["nodes"] == HONEST


def test_a_simple_client_needs_no_stream() -> None:
    """`Once` with generated stubs, as another program would call it."""

    async def play() -> Any:
        settings = AggregatorSettings(listen="127.0.0.1:0", grpc_listen="127.0.0.1:0", warmup=0.0, plaintext=True)
        aggregator = Aggregator(settings, SystemClock())
        port, _ = await aggregator.start()
        async with aio.insecure_channel(f"127.0.0.1:{port}") as connection:
            stub = AggregationStub(connection)
            first = await stub.Once(local.parse(local.encode(make_model(1))))
            answer = first
            for _ in range(1000):
                if answer.WhichOneof("answer") == "model":
                    break
                await asyncio.sleep(0.02)
                answer = await stub.Once(local.parse(local.encode(make_model(1))))
            refused = await stub.Once(local.parse(mangled(make_model(1), pods=2**31)))
            with pytest.raises(aio.AioRpcError, match="INVALID_ARGUMENT"):
                await raw_calls.once(connection, f"{SERVICE}/Once", b"\xff")
        await aggregator.stop()
        return first, answer, refused

    first, answer, refused = asyncio.run(asyncio.wait_for(play(), 60))
    assert first.WhichOneof("answer") == "none_yet"
    assert answer.model.nodes == 1
    assert refused.refusal.reason == "range"


@pytest.mark.parametrize("garbage", [b"\xff" * 100, b"x" * (LOCAL_LIMIT + 1), b"x" * 2**21], ids=len)
def test_garbage_ends_its_stream_and_nothing_else(tmp_path: Path, garbage: bytes) -> None:
    async def play() -> None:
        authority = Authority(tmp_path)
        pair = authority.issue("carico:aggregator", "127.0.0.1")
        files: dict[str, Any] = {"client_ca": authority.cert, "tls_cert": pair.cert, "tls_key": pair.key}
        settings = AggregatorSettings(listen="127.0.0.1:0", grpc_listen="127.0.0.1:0", warmup=0.0, **files)
        aggregator = Aggregator(settings, SystemClock())
        port, _ = await aggregator.start()
        good, bad = Node("node-1", authority, port), Node("liar", authority, port)
        assert await good.say(local.encode(make_model(1))) is None
        with pytest.raises(aio.AioRpcError, match=r"INVALID_ARGUMENT|RESOURCE_EXHAUSTED"):
            await bad.say(garbage)
        assert not isinstance(await good.say(local.encode(make_model(1))), cluster.RejectedMessage)
        await good.close()
        await bad.close()
        await aggregator.stop()

    asyncio.run(asyncio.wait_for(play(), 60))
