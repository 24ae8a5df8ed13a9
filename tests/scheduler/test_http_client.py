"""The commands that query a scheduler beyond this machine: what is sent where, and what a real scheduler answers."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from carico.errors import CaricoError, UsageError
from carico.scheduler.http import client as page_client
from carico.wire.certificates import Authority
from harness.cluster.ports import free_port
from harness.embedded.embedded_cluster import EmbeddedCluster
from harness.kube.recording import Asked, RecordingServer, write_kubeconfig
from harness.scheduler.fleet import SchedulerProcess

API_SERVER = {"server": "https://127.0.0.1:1", "insecure-skip-tls-verify": True}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def arguments(
    kubeconfig: Path | None = None, ca: Path | None = None, token_file: Path | None = None
) -> argparse.Namespace:
    return argparse.Namespace(
        kubeconfig=kubeconfig, context=None, exec_in_pod=False, server_ca=ca, token_file=token_file
    )


def running(scenario: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with asyncio.timeout(60):
            await scenario()

    asyncio.run(whole())


async def ask(server: RecordingServer, args: argparse.Namespace, **environ: str) -> Asked:
    async with page_client.named(server.url, args, environ) as client:
        await client.fetch("/debug/decisions")
    return server.asked[-1]


def server(authority: Authority, clients: Path | None = None) -> RecordingServer:
    return RecordingServer(authority.issue("scheduler", "127.0.0.1"), clients)


# --- what is sent ---


def test_the_token_of_the_kubeconfig_goes_to_a_named_https_server(authority: Authority, tmp_path: Path) -> None:
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", API_SERVER, {"token": "secret"})
    (tmp_path / "token").write_text("another\n")

    async def scenario() -> None:
        async with server(authority) as there:
            asked = await ask(there, arguments(kubeconfig, authority.cert))
            assert asked.line == "GET /debug/decisions HTTP/1.1"
            assert asked.all("authorization") == ["Bearer secret"]
            asked = await ask(there, arguments(kubeconfig, authority.cert, tmp_path / "token"))
            assert asked.all("authorization") == ["Bearer another"]
            named = {"CARICO_SERVER_CA": str(authority.cert), "CARICO_TOKEN_FILE": str(tmp_path / "token")}
            assert (await ask(there, arguments(kubeconfig), **named)).all("authorization") == ["Bearer another"]

    running(scenario)


def test_no_token_goes_over_plain_http(tmp_path: Path) -> None:
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", API_SERVER, {"token": "secret"})

    async def scenario() -> None:
        async with RecordingServer(None) as there:
            assert (await ask(there, arguments(kubeconfig))).all("authorization") == []
            with pytest.raises(UsageError, match="--token-file is for a server with https"):
                await ask(there, arguments(kubeconfig, token_file=tmp_path / "token"))
            with pytest.raises(UsageError, match="--server-ca is for a server with https"):
                await ask(there, arguments(kubeconfig, ca=tmp_path / "ca.pem"))

    running(scenario)


def test_a_server_whose_certificate_is_not_trusted_gets_nothing(authority: Authority, tmp_path: Path) -> None:
    """Also with a kubeconfig that disables the check of the API server's certificate."""
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", API_SERVER, {"token": "secret"})

    async def scenario() -> None:
        async with server(authority) as there:
            with pytest.raises(CaricoError, match=r"certificate is refused: .*; name its authority with --server-ca"):
                await ask(there, arguments(kubeconfig))
            there.name = "localhost"  # which does not stand in the certificate
            with pytest.raises(CaricoError, match=r"certificate is refused: Hostname mismatch"):
                await ask(there, arguments(kubeconfig, authority.cert))
            assert there.asked == []

    running(scenario)


def test_no_redirect_takes_the_token_elsewhere(authority: Authority, tmp_path: Path) -> None:
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", API_SERVER, {"token": "secret"})

    async def scenario() -> None:
        async with server(authority) as there:
            there.status = lambda _: 302
            with pytest.raises(CaricoError, match="it answers 302, and no redirect is followed"):
                await ask(there, arguments(kubeconfig, authority.cert))
            assert len(there.asked) == 1

    running(scenario)


def test_a_password_stays_here_and_impersonation_is_refused(authority: Authority, tmp_path: Path) -> None:
    basic = write_kubeconfig(tmp_path / "basic", API_SERVER, {"username": "u", "password": "secret"})
    other = write_kubeconfig(tmp_path / "other", API_SERVER, {"token": "secret", "as": "viewer"})

    async def scenario() -> None:
        async with server(authority) as there:
            assert (await ask(there, arguments(basic, authority.cert))).all("authorization") == []
            with pytest.raises(UsageError, match="acts as 'viewer', which only an API server can do"):
                await ask(there, arguments(other, authority.cert))

    running(scenario)


def test_the_client_certificate_of_the_kubeconfig_is_shown(authority: Authority, tmp_path: Path) -> None:
    """A gateway in front of the scheduler may want one."""
    pair = authority.issue("alice")
    user = {"client-certificate": str(pair.cert), "client-key": str(pair.key)}
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", API_SERVER, user)

    async def scenario() -> None:
        async with server(authority, authority.cert) as there:
            assert (await ask(there, arguments(kubeconfig, authority.cert))).client == "alice"

    running(scenario)


def test_the_token_of_a_plugin_is_renewed_after_a_401(authority: Authority, tmp_path: Path) -> None:
    script = tmp_path / "plugin"
    script.write_text(
        f"#!/bin/sh\necho x >> {tmp_path}/runs\n"
        'echo "{\\"apiVersion\\": \\"client.authentication.k8s.io/v1\\", \\"kind\\": \\"ExecCredential\\",'
        f' \\"status\\": {{\\"token\\": \\"t$(wc -l < {tmp_path}/runs | tr -d " ")\\"}}}}"\n'
    )
    script.chmod(0o755)
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": str(script),
        "interactiveMode": "Never",
    }
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", API_SERVER, {"exec": plugin})

    async def scenario() -> None:
        async with server(authority) as there:
            there.status = lambda asked: 200 if asked.all("authorization") == ["Bearer t2"] else 401
            await ask(there, arguments(kubeconfig, authority.cert))
            assert [asked.all("authorization") for asked in there.asked] == [["Bearer t1"], ["Bearer t2"]]

    running(scenario)


def test_without_a_kubeconfig_the_server_says_what_it_wants(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))

    async def scenario() -> None:
        async with server(authority) as there:
            there.status = lambda _: 401
            with pytest.raises(CaricoError, match="--token-file; `kubectl create token NAME` makes one"):
                await ask(there, arguments(ca=authority.cert))

    running(scenario)


# --- a real scheduler, whose private pages are open to the network ---


class Beyond:
    """An embedded API server, and a scheduler that listens on every address with TLS."""

    def __init__(self, folder: Path) -> None:
        authority = Authority(folder)
        pair = authority.issue("scheduler", "localhost", "127.0.0.1")
        self.cluster = EmbeddedCluster(folder, nodes=2)
        files = ("--tls-cert", str(pair.cert), "--tls-key", str(pair.key))
        self.process = SchedulerProcess(
            self.cluster.kubeconfig, free_port(), "--no-leader-elect", "--debug-listen", "0.0.0.0:0", *files
        )
        self.ca = str(authority.cert)

    def explains(self, name: str) -> bool:
        return self.carico("explain", name).returncode == 0

    def carico(self, *words: str, kubeconfig: Path | None = None) -> subprocess.CompletedProcess[str]:
        where = ("--server", f"https://localhost:{self.process.page_port}", "--server-ca", self.ca)
        config = ("--kubeconfig", str(kubeconfig or self.cluster.kubeconfig))
        command = [sys.executable, "-m", "carico.cli", *words, *where, *config]
        return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def beyond(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Beyond]:
    made = Beyond(tmp_path_factory.mktemp("beyond"))
    try:
        spec = {"schedulerName": "carico", "containers": [{"name": "c", "image": "i"}]}
        made.cluster.create({"kind": "Pod", "metadata": {"name": "web"}, "spec": spec})
        there = made.cluster.api.get("/api/v1/nodes")["items"][0]["metadata"]["name"]
        bound = {"nodeName": there, "containers": [{"name": "c", "image": "bound"}]}
        made.cluster.create({"kind": "Pod", "metadata": {"name": "bound"}, "spec": bound})
        for name in ("web", "bound"):
            made.cluster.wait_for(f"the scheduler to know {name}", partial(made.explains, name))
        yield made
    finally:
        made.process.stop(signal.SIGKILL)
        made.cluster.stop()


def test_every_command_asks_a_real_scheduler_beyond_loopback(beyond: Beyond, tmp_path: Path) -> None:
    explained = json.loads(beyond.carico("explain", "web", "-o", "json").stdout)
    assert explained["pod"] == "default/web"
    assert not [note for note in explained.get("notes", []) if "only a running scheduler knows" in note]
    assert "default/web" in beyond.carico("decisions").stdout
    assert "default/image:bound" in beyond.carico("classes").stdout
    (tmp_path / "pod.yaml").write_text(
        "kind: Pod\nmetadata: {name: x}\nspec: {schedulerName: carico, containers: [{name: c, image: i}]}\n"
    )
    simulated = json.loads(beyond.carico("explain", "-f", str(tmp_path / "pod.yaml"), "-o", "json").stdout)
    assert simulated["pod"] == "default/x"
    found = findings(beyond.carico("doctor", "--json", "--debug-listen", "0.0.0.0:9469"))
    assert found["scheduler"]["found"] == f"https://localhost:{beyond.process.page_port} leads"
    assert found["rights"]["state"] == "ok"


def test_a_token_that_the_api_server_does_not_know_is_refused(beyond: Beyond, tmp_path: Path) -> None:
    config = json.loads(beyond.cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": "guessed"}
    stranger = tmp_path / "kubeconfig"
    stranger.write_text(json.dumps(config))
    done = beyond.carico("decisions", kubeconfig=stranger)
    assert done.returncode == 1
    assert "the API server does not know this token; use a kubeconfig with a token, or --token-file" in done.stderr
    assert "guessed" not in done.stderr + beyond.process.log()
    found = findings(beyond.carico("doctor", "--json", kubeconfig=stranger))
    assert found["scheduler"]["state"] == "missing"
    assert found["scheduler"]["found"].endswith("is ready, but: the API server does not know this token")
    assert "--token-file" in found["scheduler"]["fix"]


def test_a_pod_that_only_the_lease_named_gets_a_token_if_the_user_names_its_authority(
    beyond: Beyond, tmp_path: Path
) -> None:
    """kubectl is played; the scheduler behind its port uses TLS, and would take the kubeconfig's token."""
    spec = {"containers": [{"name": "c", "image": "i"}]}
    beyond.cluster.create({"kind": "Pod", "metadata": {"name": "leader"}, "spec": spec})
    lease = {"metadata": {"name": "ours"}, "spec": {"holderIdentity": "leader_1", "leaseDurationSeconds": 15}}
    beyond.cluster.api.post("/apis/coordination.k8s.io/v1/namespaces/default/leases", lease)
    forwarding = f"Forwarding from 127.0.0.1:{beyond.process.page_port} -> 9469"
    (tmp_path / "kubectl").write_text(f"#!/bin/sh\necho '{forwarding}'\nexec sleep 600\n")
    (tmp_path / "kubectl").chmod(0o755)
    command = [sys.executable, "-m", "carico.cli", "decisions", "--lease", "default/ours"]
    env = os.environ | {"KUBECONFIG": str(beyond.cluster.kubeconfig), "PATH": f"{tmp_path}:/bin"}
    env.pop("CARICO_SERVER", None)

    def said(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, *more], capture_output=True, text=True, timeout=120, env=env)

    done = said()
    assert done.returncode == 1
    assert "if its debug_listen is beyond loopback, name its authority with --server-ca" in done.stderr
    done = said("--server-ca", beyond.ca)
    assert done.returncode == 0, done.stderr
    assert "default/web" in done.stdout
    (tmp_path / "other").mkdir()
    done = said("--server-ca", str(Authority(tmp_path / "other").cert))
    assert done.returncode == 1
    assert "its certificate is refused" in done.stderr


def findings(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.stdout, done.stderr
    return {one["part"]: one for one in json.loads(done.stdout)["findings"]}
