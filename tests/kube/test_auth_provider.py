"""`auth-provider: oidc`, through the package `kubernetes`, with an OpenID provider that this test plays."""

from __future__ import annotations

import asyncio
import base64
import importlib.util
import json
import ssl
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
import yaml

from carico.errors import CredentialError, UsageError
from carico.kube import credentials
from carico.wire.certificates import Authority
from harness.kube.recording import write_kubeconfig

HOUR = 3600


def web_token(end: float, name: str = "t") -> str:
    def part(content: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")

    return f"{part({'alg': 'none'})}.{part({'exp': int(end), 'sub': name})}.c2ln"


class Provider(ThreadingHTTPServer):
    """Gives tokens for an hour; each refresh-token is good for one time."""

    daemon_threads = True

    def __init__(self, authority: Authority) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        pair = authority.issue("provider", "127.0.0.1")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.cert, pair.key)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.good = "refresh-0"
        self.given = 0
        self.url = f"https://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, *_: object) -> None: ...  # a client that does not trust the certificate of this server


class _Handler(BaseHTTPRequestHandler):
    server: Provider

    def do_GET(self) -> None:
        self._answer(200, {"issuer": self.server.url, "token_endpoint": f"{self.server.url}/token"})

    def do_POST(self) -> None:
        asked = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        if asked["refresh_token"] != [self.server.good]:
            self._answer(400, {"error": "invalid_grant"})
            return
        self.server.given += 1
        self.server.good = f"refresh-{self.server.given}"
        token = web_token(time.time() + HOUR, f"given-{self.server.given}")
        self._answer(
            200, {"id_token": token, "access_token": "x", "token_type": "Bearer", "refresh_token": self.server.good}
        )

    def _answer(self, status: int, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[Provider]:
    with Provider(Authority(tmp_path)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def kubeconfig(folder: Path, provider: Provider, **config: str | None) -> Path:
    whole = {
        "idp-issuer-url": provider.url,
        "idp-certificate-authority": str(folder / "ca.pem"),
        "client-id": "kubernetes",
        "id-token": web_token(time.time() - HOUR),
        "refresh-token": "refresh-0",
    } | config
    entry = {"name": "oidc", "config": {name: value for name, value in whole.items() if value is not None}}
    return write_kubeconfig(folder / "config", {"server": "https://x"}, {"auth-provider": entry})


def token(path: Path) -> str:
    return dict(asyncio.run(credentials.from_kubeconfig(path).identity()).headers)["Authorization"]


def kept(path: Path) -> dict[str, str]:
    config: dict[str, str] = yaml.safe_load(path.read_text())["users"][0]["user"]["auth-provider"]["config"]
    return config


@pytest.mark.needs("kubernetes")
def test_a_good_token_is_used_as_it_is(tmp_path: Path, provider: Provider) -> None:
    good = web_token(time.time() + HOUR)
    path = kubeconfig(tmp_path, provider, **{"id-token": good})
    before = path.read_bytes()
    assert token(path) == f"Bearer {good}"
    assert (provider.given, path.read_bytes()) == (0, before)


@pytest.mark.needs("kubernetes")
@pytest.mark.parametrize("config", [{}, {"id-token": None}, {"client-secret": "word"}])
def test_one_that_has_ended_is_renewed_and_kept(tmp_path: Path, provider: Provider, config: dict[str, Any]) -> None:
    path = kubeconfig(tmp_path, provider, **config)
    path.chmod(0o600)
    new = token(path)
    assert provider.given == 1
    assert new == f"Bearer {kept(path)['id-token']}"
    assert kept(path)["refresh-token"] == "refresh-1"  # the old one is used up
    assert set(kept(path)) - {"id-token"} == {"idp-issuer-url", "idp-certificate-authority", "client-id"} | {
        "refresh-token"
    } | (set(config) - {"id-token"})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sorted(file.name for file in tmp_path.iterdir() if "config" in file.name) == ["config"]
    assert token(path) == new
    assert provider.given == 1


@pytest.mark.needs("kubernetes")
def test_when_the_file_cannot_be_written_the_new_token_serves_with_a_warning(
    tmp_path: Path, provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    path = kubeconfig(tmp_path, provider)
    (tmp_path / "config.lock").touch()  # as kubectl does while it writes
    before = path.read_bytes()
    assert token(path).startswith("Bearer ")
    assert path.read_bytes() == before
    assert "the auth-provider oidc wrote: the new tokens could not be saved in" in caplog.text


@pytest.mark.needs("kubernetes")
@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"refresh-token": "used up"}, r"could not be renewed \(.*invalid_grant.*\); log in again"),
        ({"refresh-token": None}, r"could not be renewed \(.*refresh-token.*\); log in again"),
        ({"idp-certificate-authority": None}, r"could not be renewed \(.*certificate.*\); log in again"),
        ({"id-token": "no web token"}, "is not a JSON web token; log in again"),
    ],
)
def test_what_goes_wrong_is_one_line(tmp_path: Path, provider: Provider, config: dict[str, Any], why: str) -> None:
    """Without an authority of its own the provider must be known to the system: this one is not."""
    path = kubeconfig(tmp_path, provider, **config)
    with pytest.raises(
        CredentialError, match=rf"user 'u': the auth-provider oidc ended with exit code 1: .*{why}"
    ) as e:
        token(path)
    assert "\n" not in str(e.value)
    assert provider.given == 0


def test_without_the_package_a_sentence_says_what_to_install(
    tmp_path: Path, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match=r"auth-provider 'oidc' needs the package kubernetes: pip install 'carico\["):
        token(kubeconfig(tmp_path, provider))


def test_the_package_is_not_imported_for_other_kubeconfigs(tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "c", {"server": "https://x"}, {"token": "T"})
    program = f"""
import pathlib, sys
from carico.kube import credentials
credentials.from_kubeconfig(pathlib.Path({str(path)!r}))
print([name for name in sys.modules if name.split('.')[0] in ('kubernetes', 'requests')])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("[]\n", "")
