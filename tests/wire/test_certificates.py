"""The self-made authority under the strict checks of Python 3.13, and foreign authorities that would not pass them."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from carico.clock import SystemClock
from carico.embedded.apiserver.server import ApiServer
from carico.kube import credentials
from carico.kube.client import Client
from carico.tls import lenient_context
from carico.wire.certificates import Authority, Pair
from harness.wire.minimal_authority import minimal_authority


def handshake(server: Pair, context: ssl.SSLContext, name: str = "localhost", client_ca: Path | None = None) -> None:
    """In memory; raises ssl.SSLError when one side does not like the other."""
    listening = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    listening.load_cert_chain(server.cert, server.key)
    if client_ca is not None:
        listening.verify_mode = ssl.CERT_REQUIRED
        listening.verify_flags |= ssl.VERIFY_X509_STRICT
        listening.load_verify_locations(client_ca)
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        context.wrap_bio(to_client, to_server, server_hostname=name),
        listening.wrap_bio(to_server, to_client, server_side=True),
    ]
    while sides:
        for side in list(sides):
            try:
                side.do_handshake()
                sides.remove(side)
            except ssl.SSLWantReadError:
                continue


def strict_context(authority: Authority) -> ssl.SSLContext:
    """What `create_default_context` gives since Python 3.13."""
    context = ssl.create_default_context(cafile=str(authority.cert))
    context.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def test_both_sides_pass_the_strict_checks(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server, node = authority.issue("localhost", "localhost", "127.0.0.1"), authority.issue_node("n1")
    context = strict_context(authority)
    context.load_cert_chain(node.cert, node.key)
    handshake(server, context, client_ca=authority.cert)
    handshake(server, strict_context(authority), "127.0.0.1")
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(server, strict_context(authority), "elsewhere")


def carico(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "carico.cli", "certificates", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_the_command_makes_what_a_cluster_needs_and_can_be_called_again(tmp_path: Path) -> None:
    folder = tmp_path / "tls"
    first = carico("--dir", str(folder), "--servers", "localhost,127.0.0.1", "--nodes", "n1")
    assert (first.returncode, first.stderr) == (0, "")
    authority = (folder / "ca.pem").read_bytes()
    again = carico("--dir", str(folder), "--nodes", "n2")
    assert again.stdout.splitlines() == [
        f"agent on n2  --tls-ca {folder}/ca.pem --tls-cert {folder}/system-node-n2.pem"
        f" --tls-key {folder}/system-node-n2.key",
        f"{folder}/ca.key signs for every node: keep it off the cluster.",
    ]
    assert (folder / "ca.pem").read_bytes() == authority
    assert [file.stat().st_mode & 0o777 for file in folder.glob("*.key")] == [0o600] * 5
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    server = Pair(folder / "carico-scheduler.pem", folder / "carico-scheduler.key")
    for node in ("n1", "n2"):
        context.load_cert_chain(folder / f"system-node-{node}.pem", folder / f"system-node-{node}.key")
        handshake(server, context, client_ca=folder / "ca.pem")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "name --servers, --nodes or both"),
        (["--nodes", "../n1"], "'../n1' is not a valid name of a node"),
        (["--nodes", "n1", "--days", "0"], "--days 0 is less than 1"),
    ],
)
def test_what_the_command_cannot_create_is_reported_in_one_line(
    tmp_path: Path, words: list[str], complaint: str
) -> None:
    done = carico("--dir", str(tmp_path), *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_client_of_the_embedded_api_server_comes_in_with_any_python(tmp_path: Path) -> None:
    async def scenario() -> bytes:
        async with ApiServer(SystemClock()) as server:
            server.kubeconfig(tmp_path / "kubeconfig")
            found = credentials.from_kubeconfig(tmp_path / "kubeconfig")
            identity = found._identity
            assert identity is not None
            assert identity.tls is not None
            identity.tls.verify_flags |= ssl.VERIFY_X509_STRICT
            client = Client(found)
            try:
                return await client.call("GET", "/api/v1/nodes")
            finally:
                await client.close()

    assert b"NodeList" in asyncio.run(scenario())


def test_an_authority_without_key_identifiers_is_trusted_and_everything_else_is_checked(tmp_path: Path) -> None:
    authority, server = minimal_authority(tmp_path)
    context = lenient_context(cafile=str(authority))
    handshake(server, context, "127.0.0.1")
    handshake(server, lenient_context(cadata=authority.read_text()), "127.0.0.1")
    with pytest.raises(ssl.SSLCertVerificationError, match="IP address mismatch"):
        handshake(server, context, "127.0.0.2")
    (tmp_path / "other").mkdir()
    stranger = lenient_context(cafile=str(Authority(tmp_path / "other").cert))
    with pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer"):
        handshake(server, stranger, "127.0.0.1")
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    with pytest.raises(ssl.SSLCertVerificationError, match="Missing Authority Key Identifier"):
        handshake(server, context, "127.0.0.1")
