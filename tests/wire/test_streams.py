"""Real gRPC over real TLS: who may call, what ends a stream and what does not, and reconnecting after an outage."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio

from carico.clock import SystemClock
from carico.errors import CaricoError, UsageError
from carico.settings import ServerTlsFiles, TlsFiles
from carico.wire import channel, client
from carico.wire.channel import Dialer
from carico.wire.codec import report as codec
from carico.wire.report_client import METHOD, ReportClient
from carico.wire.server import GrpcServer
from harness.cluster.ports import free_port
from harness.wire import raw_calls
from harness.wire.messages import node_report
from harness.wire.report_streams import PLAIN, Scheduler, ended, running, with_files
from harness.wire.tls import Tls


@running
async def test_a_report_arrives_and_a_forged_name_is_refused_in_band(tls: Tls) -> None:
    scheduler = Scheduler(tls.server)
    port = await scheduler.start()
    refusals = []

    def refused(reason: str) -> None:
        refusals.append(reason)
        scheduler.news.set()

    agent = ReportClient(with_files(tls.node("n1"), f"localhost:{port}"), SystemClock(), refused)
    task = asyncio.create_task(agent.run())
    agent.offer(node_report())
    await scheduler.until(lambda: scheduler.reports)
    agent.offer(node_report(node="n2", pods=8))
    await scheduler.until(lambda: scheduler.refused and refusals)
    agent.offer(node_report(pods=9))
    await scheduler.until(lambda: len(scheduler.reports) == 2)
    assert scheduler.refused == ["identity"]
    assert [report.node for report in scheduler.reports] == ["n1", "n1"]
    assert refusals == ["identity"]
    await ended(task)
    await scheduler.until(lambda: scheduler.silent)
    assert scheduler.silent == ["n1"]
    await scheduler.stop()


@running
async def test_after_a_restart_the_newest_report_comes_with_its_sets(tls: Tls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "LONGEST_PAUSE", 0.2)
    scheduler = Scheduler(tls.server)
    port = await scheduler.start(free_port())  # that the kernel gives to no other process before it starts again
    agent = ReportClient(with_files(tls.node("n1"), f"127.0.0.1:{port}"), SystemClock())
    task = asyncio.create_task(agent.run())
    agent.offer(node_report(pod_capacity=1.0))
    await scheduler.until(lambda: scheduler.reports)
    await scheduler.stop(0)
    for capacity in range(2, 50):
        agent.offer(node_report(pod_capacity=float(capacity)))
    again = Scheduler(tls.server)
    await again.start(port)
    await again.until(lambda: again.reports)
    assert again.reports[0].estimate.pod_capacity == 49.0, "what was not sent during the outage is not made up for"
    assert again.reports[0].counted == frozenset({"uid-1", "uid-2"})
    await ended(task)
    await again.stop()


@running
async def test_every_address_behind_a_name_gets_the_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Scheduler(PLAIN), Scheduler(PLAIN)
    ports = [await first.start(), await second.start()]

    async def two(_: object) -> list[str]:
        return [f"127.0.0.1:{port}" for port in ports]

    monkeypatch.setattr(channel.Dialer, "addresses", two)
    agent = ReportClient(with_files(PLAIN, "schedulers:1"), SystemClock())
    task = asyncio.create_task(agent.run())
    agent.offer(node_report())
    await first.until(lambda: first.reports)
    await second.until(lambda: second.reports)
    assert agent.connected == 2
    await ended(task)
    await asyncio.gather(first.stop(), second.stop())


@running
async def test_garbage_ends_its_own_stream_with_a_status_and_no_other() -> None:
    scheduler = Scheduler(PLAIN)
    port = await scheduler.start()
    async with aio.insecure_channel(f"127.0.0.1:{port}") as to_server:
        good, bad = raw_calls.stream(to_server, METHOD), raw_calls.stream(to_server, METHOD)
        await bad.read()  # gRPC returns a status only when everything before it has been read
        await bad.write(b"\xff\xff\xff garbage")
        assert await bad.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert codec.decode_ack(await good.read()).heartbeat == 5.0, "the greeting"
        await good.write(codec.encode(node_report(sequence=1)))
        await scheduler.until(lambda: scheduler.reports)
        await good.write(codec.encode(node_report(sequence=1)))
        refused = codec.decode_ack(await good.read()).refused
        assert refused is not None
        assert (refused.sequence, refused.reason) == (1, "order")
        scheduler.service.announce()
        assert codec.decode_ack(await good.read()).leader
        good.cancel()
    assert scheduler.refused == ["undecodable", "order"]
    await scheduler.stop()


@running
async def test_a_client_without_a_certificate_is_not_let_in(tls: Tls) -> None:
    scheduler = Scheduler(tls.server)
    port = await scheduler.start()
    stranger = TlsFiles(tls_ca=tls.server.client_ca)
    async with Dialer(f"127.0.0.1:{port}", stranger, "a test").open(f"127.0.0.1:{port}") as to_server:
        call = raw_calls.stream(to_server, METHOD)
        with pytest.raises(aio.AioRpcError, match="UNAVAILABLE"):
            await call.read()
    assert not scheduler.reports
    await scheduler.stop()


@running
async def test_a_server_of_another_name_is_not_trusted(tls: Tls) -> None:
    scheduler = Scheduler(tls.server)
    port = await scheduler.start()
    dialer = Dialer(f"elsewhere.example:{port}", tls.node("n1"), "a test")
    async with dialer.open(f"127.0.0.1:{port}") as to_server:
        with pytest.raises(aio.AioRpcError, match="UNAVAILABLE"):
            await raw_calls.stream(to_server, METHOD).read()
    await scheduler.stop()


def test_plaintext_is_opt_in_and_logs_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(UsageError, match="tls_cert and tls_key, or plaintext"):
        GrpcServer("127.0.0.1:0", ServerTlsFiles(), {})
    with pytest.raises(UsageError, match="tls_ca, or plaintext"):
        Dialer("127.0.0.1:1", TlsFiles(), "a test")
    with caplog.at_level(logging.WARNING):
        GrpcServer("127.0.0.1:0", PLAIN, {})
        Dialer("127.0.0.1:1", PLAIN, "a test")
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert all("uses plaintext" in line for line in caplog.messages)


def test_a_certificate_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "no.pem"
    with pytest.raises(UsageError, match=r"tls_cert: cannot read .*no\.pem"):
        GrpcServer("127.0.0.1:0", ServerTlsFiles(tls_cert=missing, tls_key=missing, client_ca=missing), {})


@running
async def test_a_port_that_is_taken_is_an_error() -> None:
    first = GrpcServer("127.0.0.1:0", PLAIN, {})
    port = await first.start()
    with pytest.raises(CaricoError, match="cannot listen"):
        await GrpcServer(f"127.0.0.1:{port}", PLAIN, {}).start()
    await first.stop()


class Patient:
    """A policy whose next message falls due at `due` (s, monotonic)."""

    def __init__(self, due: float) -> None:
        self.due = due

    def delay(self, now: float) -> float:
        return max(0.0, self.due - now)


@running
async def test_only_what_is_due_earlier_breaks_off_a_pause() -> None:
    clock = SystemClock()
    policy: Any = Patient(clock.monotonic() + 20.0)
    unused: Any = None
    stream = client.StreamClient(unused, METHOD, policy, clock, choose=unused, patience=None)
    pause = asyncio.create_task(stream._pause(clock.monotonic()))
    await asyncio.sleep(0)
    stream.wake()  # news, but due when the pause ends anyway
    await asyncio.sleep(0.01)
    assert not pause.done()
    policy.due = clock.monotonic() + 0.2
    stream.wake()
    await pause
    stream._woken.clear()
    stream.wake()  # no pause now: the next one must see it
    assert stream._woken.is_set()
