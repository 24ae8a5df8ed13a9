"""TLS to a real HTTPS server: authorities and certificates that change, and how strictly they are checked."""

from __future__ import annotations

import asyncio
import base64
import logging
import ssl
from pathlib import Path
from typing import Any

import pytest

from carico.errors import HttpError, UsageError
from carico.kube import credentials
from carico.kube.client import Client
from carico.kube.credentials import Surroundings
from carico.kube.identity import LOOK_EVERY
from carico.testing import ManualClock
from carico.wire.certificates import Authority, Pair
from harness.kube.clients import ask, known, with_client
from harness.kube.recording import RecordingServer, until, write_kubeconfig
from harness.wire.certificates import authority_without_identifiers


def test_a_new_authority_in_the_file_is_trusted_without_a_restart(tmp_path: Path, authority: Authority) -> None:
    """A cluster whose authority is replaced: the API server comes back with a certificate of the new one."""
    (tmp_path / "new").mkdir()
    new = Authority(tmp_path / "new")
    clock = ManualClock()

    async def scenario() -> None:
        old = RecordingServer(authority.issue("server", "127.0.0.1"))
        await old.open()
        who = known(tmp_path, old, {"token": "T"}, clock)

        async def use(client: Client) -> None:
            await client.call("GET", "/version")
            await old.shut()
            server = RecordingServer(new.issue("server", "127.0.0.1"))
            server.port = old.port
            async with server:
                with pytest.raises(HttpError, match="certificate verify failed"):
                    await client.call("GET", "/version")
                authority.cert.write_bytes(b"-----BEGIN half written")
                clock.advance(LOOK_EVERY)
                with pytest.raises(HttpError, match="certificate verify failed"):  # the old one still counts
                    await client.call("GET", "/version")
                authority.cert.write_bytes(new.cert.read_bytes())
                clock.advance(LOOK_EVERY)
                await client.call("GET", "/version")

        await with_client(who, use)

    asyncio.run(scenario())


def test_a_new_client_certificate_is_shown_on_new_connections(tmp_path: Path, authority: Authority, pair: Pair) -> None:
    """kubeadm renews the certificates in /etc/kubernetes once a year."""
    clock, mine = ManualClock(), tmp_path / "mine.pem"
    first, second = authority.issue("first"), authority.issue("second")
    mine.write_bytes(first.cert.read_bytes() + first.key.read_bytes())

    async def scenario() -> None:
        async with RecordingServer(pair, authority.cert) as server:
            who = known(tmp_path, server, {"client-certificate": "mine.pem", "client-key": "mine.pem"}, clock)

            async def use(client: Client) -> None:
                await client.call("GET", "/1")
                await client.call("GET", "/2")
                assert server.connections == 1
                stream = await client.open_stream("/watch")
                mine.write_bytes(second.cert.read_bytes() + second.key.read_bytes())
                clock.advance(LOOK_EVERY)
                await client.call("GET", "/3")
                await client.call("GET", "/4")
                stream.close()
                assert server.connections == 3
                mine.write_bytes(first.cert.read_bytes() + second.key.read_bytes())  # they do not belong together
                clock.advance(LOOK_EVERY)
                await client.call("GET", "/5")

            await with_client(who, use)
            assert [asked.client for asked in server.asked] == ["first"] * 3 + ["second"] * 3

    asyncio.run(scenario())


def test_a_connection_that_was_busy_while_the_certificate_changed_is_not_kept(
    tmp_path: Path, authority: Authority, pair: Pair
) -> None:
    clock, mine = ManualClock(), tmp_path / "mine.pem"
    first, second = authority.issue("first"), authority.issue("second")
    mine.write_bytes(first.cert.read_bytes() + first.key.read_bytes())

    async def scenario() -> None:
        async with RecordingServer(pair, authority.cert) as server:
            who = known(tmp_path, server, {"client-certificate": "mine.pem", "client-key": "mine.pem"}, clock)

            async def use(client: Client) -> None:
                busy = asyncio.create_task(client.call("GET", "/busy"))
                await until(lambda: client.sent)
                mine.write_bytes(second.cert.read_bytes() + second.key.read_bytes())
                clock.advance(LOOK_EVERY)
                await asyncio.gather(busy, client.call("GET", "/meanwhile"))
                for _ in range(3):
                    await client.call("GET", "/later")

            await with_client(who, use)
            assert [asked.client for asked in server.asked if "/later" in asked.line] == ["second"] * 3

    asyncio.run(scenario())


def test_a_clients_key_is_on_no_disk(tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a temporary file was made")

    monkeypatch.setattr("tempfile.NamedTemporaryFile", refuse)
    mine = authority.issue("me")
    user = {
        "client-certificate-data": base64.b64encode(mine.cert.read_bytes()).decode(),
        "client-key-data": base64.b64encode(mine.key.read_bytes()).decode(),
    }
    who = credentials.from_kubeconfig(write_kubeconfig(tmp_path / "c", {"server": "https://x"}, user))
    assert asyncio.run(who.identity()).tls is not None


def test_an_encrypted_key_is_rejected_without_a_password_prompt(tmp_path: Path, authority: Authority) -> None:
    from cryptography.hazmat.primitives import serialization as s

    mine = authority.issue("me")
    key = s.load_pem_private_key(mine.key.read_bytes(), None)
    locked = key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.BestAvailableEncryption(b"word"))
    mine.key.write_bytes(locked)
    user = {"client-certificate": str(mine.cert), "client-key": str(mine.key)}
    with pytest.raises(UsageError, match="the key is encrypted"):
        credentials.from_kubeconfig(write_kubeconfig(tmp_path / "c", {"server": "https://x"}, user))


def test_the_name_in_the_certificate_may_be_another(tmp_path: Path, pair: Pair) -> None:
    async def scenario() -> None:
        async with RecordingServer(pair) as server:
            here = f"https://localhost:{server.port}"
            named: dict[str, Any] = {"server": here, "tls-server-name": "inside.example"}
            await with_client(known(tmp_path, server, {}, ManualClock(), named), ask)
            named["tls-server-name"] = "elsewhere.example"
            with pytest.raises(HttpError, match=r"elsewhere\.example"):
                await with_client(known(tmp_path, server, {}, ManualClock(), named), ask)
            assert server.asked[0].all("host") == [f"localhost:{server.port}"]

    asyncio.run(scenario())


def test_certificates_are_not_checked_only_with_a_warning(
    tmp_path: Path, pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with RecordingServer(pair) as server:
            entry = {"server": server.url, "insecure-skip-tls-verify": True}
            path = write_kubeconfig(tmp_path / "c", entry, {})
            await with_client(credentials.from_kubeconfig(path), ask)

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())
    assert "cluster 'k': insecure-skip-tls-verify is set: the API server's certificate is not checked" in caplog.text


def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Python 3.13 and newer make a default context."""
    make = ssl.create_default_context

    def made(*args: Any, **more: Any) -> ssl.SSLContext:
        context = make(*args, **more)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", made)


@pytest.mark.parametrize("from_pod", [False, True])
def test_an_authority_without_key_identifiers_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, from_pod: bool
) -> None:
    """EKS, microk8s and others have such authorities; Python 3.13 and newer refuse them by default."""
    strict(monkeypatch)
    (tmp_path / "pki").mkdir()
    made = authority_without_identifiers(tmp_path / "pki")

    async def scenario() -> None:
        async with RecordingServer(made.server) as server:
            if from_pod:
                (tmp_path / "token").write_text("T")
                (tmp_path / "ca.crt").write_bytes(made.root.read_bytes())
                environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(server.port)}
                who = credentials.in_cluster(Surroundings(environ, service_account=tmp_path))
            else:
                who = known(tmp_path, server, {}, ManualClock(), {"certificate-authority": str(made.root)})
            await with_client(who, ask)

    asyncio.run(scenario())


def test_an_intermediate_authority_is_an_anchor_as_in_kubectl(tmp_path: Path) -> None:
    (tmp_path / "pki").mkdir()
    made = authority_without_identifiers(tmp_path / "pki")

    async def scenario() -> None:
        async with RecordingServer(made.below_intermediate) as server:
            only = {"certificate-authority": str(made.intermediate)}
            await with_client(known(tmp_path, server, {}, ManualClock(), only), ask)

    asyncio.run(scenario())


def test_the_systems_authorities_are_checked_as_strictly_as_python_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strict(monkeypatch)
    who = credentials.from_kubeconfig(write_kubeconfig(tmp_path / "c", {"server": "https://x"}, {}))
    tls = asyncio.run(who.identity()).tls
    assert tls is not None
    assert tls.verify_flags & ssl.VERIFY_X509_STRICT
