"""Which callers are accepted over real gRPC and TLS, as what, and replaced certificates."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import shutil
from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID
from grpc import aio

from carico import config
from carico.clock import SystemClock
from carico.errors import Unauthenticated, UsageError
from carico.settings import AgentSettings, SchedulerSettings, ServerTlsFiles, TlsFiles
from carico.wire import client, tls
from carico.wire.certificates import Authority, Pair
from carico.wire.channel import Dialer
from carico.wire.identity import NODES, Caller, Certificates
from carico.wire.report_client import METHOD, ReportClient
from carico.wire.server import GrpcServer
from harness.wire import raw_calls
from harness.wire.messages import node_report
from harness.wire.report_streams import Scheduler, ended, running, with_files


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def served(authority: Authority) -> ServerTlsFiles:
    pair = authority.issue("localhost", "localhost", "127.0.0.1")
    return ServerTlsFiles(client_ca=authority.cert, tls_cert=pair.cert, tls_key=pair.key)


def files_of(authority: Authority, pair: Pair) -> TlsFiles:
    return TlsFiles(tls_ca=authority.cert, tls_cert=pair.cert, tls_key=pair.key)


async def status(files: TlsFiles, port: int) -> tuple[grpc.StatusCode, str]:
    """The first response to a caller with these files: the status of a rejection, or OK for a greeting."""
    dialer = Dialer(f"127.0.0.1:{port}", files, "a test")
    async with dialer.open(f"127.0.0.1:{port}") as channel:
        call = raw_calls.stream(channel, METHOD)
        try:
            await call.read()
        except aio.AioRpcError as error:
            return error.code(), error.details() or ""
        call.cancel()
        return grpc.StatusCode.OK, ""


@running
async def test_a_certificate_that_is_not_a_nodes_names_no_caller(authority: Authority, served: ServerTlsFiles) -> None:
    scheduler = Scheduler(served)
    port = await scheduler.start()
    for pair in (
        authority.issue("worker-3"),  # a user of that name, signed by the same authority
        authority.issue("worker-3", organisation=NODES),
        authority.issue("system:node:worker-3"),
        authority.issue("somebody", "worker-3", organisation=NODES),
        authority.issue("x,O=system:nodes", "system:node:worker-3"),
    ):
        code, detail = await status(files_of(authority, pair), port)
        assert code is grpc.StatusCode.UNAUTHENTICATED, pair
        assert "names no node, replica or scheduler; a node's has the organisation system:nodes" in detail
    assert scheduler.refused == ["identity"] * 5
    assert (await status(files_of(authority, authority.issue_node("worker-3")), port))[0] is grpc.StatusCode.OK
    assert (await status(TlsFiles(tls_ca=authority.cert), port))[0] is grpc.StatusCode.UNAVAILABLE
    await scheduler.stop()


@running
async def test_a_certificate_for_servers_only_is_no_callers(authority: Authority, served: ServerTlsFiles) -> None:
    """A kubelet's serving certificate has the organisation and the name of its node, too."""
    builder = authority._leaf("system:node:n1", ("system:node:n2",), NODES, authority._key)
    servers_only = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    builder._extensions = [
        x509.Extension(one.oid, one.critical, servers_only) if one.oid == servers_only.oid else one
        for one in builder._extensions
    ]
    pair = authority.issue_node("n1")
    pair.cert.write_bytes(authority._pem(builder))
    pair.key.write_bytes(authority._key_pem(authority._key))
    scheduler = Scheduler(served)
    port = await scheduler.start()
    assert (await status(files_of(authority, pair), port))[0] is grpc.StatusCode.UNAVAILABLE
    await scheduler.stop()


@running
async def test_a_long_name_of_a_node_is_an_alternative_name(authority: Authority, served: ServerTlsFiles) -> None:
    name = "ip-10-0-0-1." + "very-long-region-" * 4 + "compute.internal"
    scheduler = Scheduler(served)
    port = await scheduler.start()
    files = files_of(authority, authority.issue_node(name))
    agent = ReportClient(with_files(files, f"127.0.0.1:{port}"), SystemClock())
    task = asyncio.create_task(agent.run())
    agent.offer(node_report(node=name))
    await scheduler.until(lambda: scheduler.reports)
    assert scheduler.reports[0].node == name
    await ended(task)
    await scheduler.stop()


def test_the_names_in_a_certificate() -> None:
    def names(subject: bytes, *alternatives: bytes, common: bytes = b"system:node:n1") -> Caller:
        facts = {"x509_subject": [subject], "x509_common_name": [common], "x509_subject_alternative_name": alternatives}
        return Certificates.caller(facts)

    assert names(b"CN=system:node:n1,O=system:nodes").names == frozenset({"n1"})
    assert names(b"O=a\\,b+O=system:nodes,CN=system:node:n1", b"system:node:n2", b"n3").names == frozenset({"n1", "n2"})
    assert not names(b"CN=system:node:n1,O=system:nodes").is_replica
    replica = names(b"CN=carico:aggregator", b"system:node:n1", common=b"carico:aggregator")
    assert (replica.names, replica.is_replica) == (frozenset(), True)
    for subject in (b"CN=system:node:n1\\,O=system:nodes", b"OU=system:nodes,CN=x", b"O=system:nodes\\", b""):
        with pytest.raises(Unauthenticated, match="names no node"):
            names(subject)
    with pytest.raises(Unauthenticated, match="a client certificate with a common name"):
        Certificates.caller({})


# --- who is let in without a certificate ---


def test_tls_without_client_certificates_is_opt_in_and_logs_a_warning(
    served: ServerTlsFiles, caplog: pytest.LogCaptureFixture
) -> None:
    alone = dataclasses.replace(served, client_ca=None)
    with pytest.raises(UsageError, match="name the authority of the callers' certificates with client_ca"):
        GrpcServer("127.0.0.1:0", alone, {})
    with pytest.raises(UsageError, match=r"tls_ca is the authority of servers that are called; name .* client_ca"):
        GrpcServer("127.0.0.1:0", dataclasses.replace(alone, tls_ca=served.client_ca), {})
    with pytest.raises(UsageError, match="exclude each other"):
        GrpcServer("127.0.0.1:0", dataclasses.replace(served, allow_anonymous_clients=True), {})
    assert not caplog.records
    anonymous = dataclasses.replace(alone, allow_anonymous_clients=True)
    GrpcServer("127.0.0.1:0", anonymous, {})
    assert caplog.messages == [
        "the gRPC server at 127.0.0.1:0 accepts callers without a certificate: any client can report for any node"
    ]
    assert asyncio.run(tls.identity(anonymous).admit({}, {}, "")).caller.names is None


def test_a_schedulers_tls_ca_is_the_authority_of_its_aggregator() -> None:
    flags = {"tls_ca": "/ca", "aggregator": "aggregator:9466"}
    found = config.load(SchedulerSettings, "scheduler", file=None, environ={}, flags=flags)
    assert (found.tls_ca, found.aggregator) == (Path("/ca"), "aggregator:9466")
    assert config.load(AgentSettings, "agent", file=None, environ={}, flags={"tls_ca": "/ca"}).tls_ca == Path("/ca")


# --- certificates that are replaced ---


def path_of(path: Path | None) -> Path:
    assert path is not None
    return path


def replace(files: TlsFiles, pair: Pair, authority: Authority | None = None) -> None:
    """As cert-manager does it: new contents under the same names."""
    shutil.copy(pair.key, path_of(files.tls_key))
    shutil.copy(pair.cert, path_of(files.tls_cert))
    if authority is not None:
        assert isinstance(files, ServerTlsFiles)
        shutil.copy(authority.cert, path_of(files.client_ca))


@pytest.fixture
def other(tmp_path: Path) -> SimpleNamespace:
    """Another authority, with a server's and a node's certificate."""
    folder = tmp_path / "other"
    folder.mkdir()
    authority = Authority(folder)
    return SimpleNamespace(
        authority=authority,
        server=authority.issue("localhost", "localhost", "127.0.0.1"),
        node=authority.issue_node("n1"),
    )


@running
async def test_certificates_are_replaced_under_a_running_stream(
    authority: Authority, served: ServerTlsFiles, other: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "LONGEST_PAUSE", 0.2)
    scheduler = Scheduler(served)
    port = await scheduler.start()
    files = files_of(authority, authority.issue_node("n1"))
    files = dataclasses.replace(
        files, tls_ca=Path(shutil.copy(authority.cert, authority.cert.with_name("trusted.pem")))
    )
    agent = ReportClient(with_files(files, f"127.0.0.1:{port}"), SystemClock())
    task = asyncio.create_task(agent.run())
    agent.offer(node_report(pods=1))
    await scheduler.until(lambda: scheduler.reports)

    old = dataclasses.replace(files_of(authority, authority.issue_node("n2")), tls_ca=other.authority.cert)
    replace(served, other.server, other.authority)  # the server's side, authority and all
    agent.offer(node_report(pods=2))
    await scheduler.until(lambda: scheduler.reports[-1].estimate.pods == 2)
    assert not scheduler.silent, "a stream that is open stays open"
    assert (await status(old, port))[0] is grpc.StatusCode.UNAVAILABLE, "the old authority is not known any more"
    assert (await status(files_of(other.authority, other.node), port))[0] is grpc.StatusCode.OK

    replace(files, other.node)  # the agent's side
    shutil.copy(other.authority.cert, path_of(files.tls_ca))
    scheduler.service.method.end()  # its connection breaks
    agent.offer(node_report(pods=3))
    await scheduler.until(lambda: scheduler.reports[-1].estimate.pods == 3)
    await ended(task)
    await scheduler.stop()


@running
async def test_files_that_do_not_fit_together_are_left_until_they_do(
    authority: Authority, served: ServerTlsFiles, other: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="carico.tls")
    scheduler = Scheduler(served)
    port = await scheduler.start()
    node = files_of(authority, authority.issue_node("n1"))
    shutil.copy(other.server.cert, path_of(served.tls_cert))  # its key is still on its way
    for _ in range(2):
        assert (await status(node, port))[0] is grpc.StatusCode.OK
    complaints = [line for line in caplog.messages if "goes on with the certificates that it has" in line]
    assert len(complaints) == 1
    assert "tls_cert and tls_key do not fit together" in complaints[0]
    shutil.copy(other.server.key, path_of(served.tls_key))
    trusting = dataclasses.replace(node, tls_ca=other.authority.cert)
    assert (await status(trusting, port))[0] is grpc.StatusCode.OK
    assert any("has new certificates" in line for line in caplog.messages)
    path_of(served.client_ca).unlink()
    assert (await status(trusting, port))[0] is grpc.StatusCode.OK
    await scheduler.stop()


def test_a_key_of_another_certificate_is_an_error_at_the_start(served: ServerTlsFiles, other: SimpleNamespace) -> None:
    wrong = dataclasses.replace(served, tls_key=other.server.key)
    with pytest.raises(UsageError, match="do not fit together"):
        GrpcServer("127.0.0.1:0", wrong, {})
    with pytest.raises(UsageError, match=r"tls_ca: .* holds no certificate"):
        Dialer("127.0.0.1:1", TlsFiles(tls_ca=served.tls_key), "a test")
