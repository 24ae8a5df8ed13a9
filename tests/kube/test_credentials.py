"""Who we are to a real HTTPS server: tokens that change, service accounts, and what is sent of them."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from carico.errors import ApiError, CaricoError, UsageError
from carico.kube import credentials
from carico.kube.client import Client
from carico.kube.credentials import Surroundings
from carico.kube.identity import LOOK_EVERY, READ_EVERY, Credentials
from carico.testing import ManualClock
from carico.wire.certificates import Authority, Pair
from harness.kube.clients import ask, known, with_client
from harness.kube.recording import RecordingServer, another, write_kubeconfig


def headers(who: Credentials) -> dict[str, str]:
    return dict(asyncio.run(who.identity()).headers)


def test_address_prefix_and_namespace(tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "c", {"server": "http://[::1]:8001/k8s/clusters/c1/"}, {}, "team")
    found = credentials.from_kubeconfig(path)
    assert (found.host, found.port, found.prefix, found.namespace) == ("::1", 8001, "/k8s/clusters/c1", "team")
    assert found.authority == "[::1]:8001"


@pytest.mark.parametrize(
    "user", [{"token": "T"}, {"username": "me", "password": "word"}, {"exec": {"command": "/bin/false"}}]
)
def test_nothing_secret_goes_over_http(tmp_path: Path, user: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with RecordingServer(None) as server:
            path = write_kubeconfig(tmp_path / "c", {"server": server.url}, user)
            await with_client(credentials.find(path, {}), ask)
            assert server.asked[0].all("authorization") == []

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())
    assert "cluster 'k': its server is not https: no credentials are sent" in caplog.text


def test_user_name_and_password_are_sent(tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "c", {"server": "https://x"}, {"username": "me", "password": "p:ü"})
    assert headers(credentials.from_kubeconfig(path)) == {
        "Authorization": f"Basic {base64.b64encode('me:p:ü'.encode()).decode()}"
    }


def test_requests_are_those_of_the_user_in_as(tmp_path: Path, pair: Pair) -> None:
    user = {
        "token": "T",
        "as": "viewer",
        "as-uid": "7",
        "as-groups": ["g1", "g2"],
        "as-user-extra": {"example.com/team": ["red", "blue"]},
    }

    async def scenario() -> None:
        async with RecordingServer(pair) as server:
            await with_client(known(tmp_path, server, user, ManualClock()), ask)
            asked = server.asked[0]
            assert asked.all("authorization") == ["Bearer T"]
            assert asked.all("impersonate-user") == ["viewer"]
            assert asked.all("impersonate-uid") == ["7"]
            assert asked.all("impersonate-group") == ["g1", "g2"]
            assert asked.all("impersonate-extra-example.com%2fteam") == ["red", "blue"]

    asyncio.run(scenario())


def test_a_token_comes_before_a_plugin_as_in_kubectl(tmp_path: Path) -> None:
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/false"}
    path = write_kubeconfig(tmp_path / "c", {"server": "https://x"}, {"token": "T", "exec": plugin})
    assert headers(credentials.from_kubeconfig(path)) == {"Authorization": "Bearer T"}


# --- tokens in files ---


def test_a_token_file_is_read_again_when_it_changes_and_survives_a_gap(tmp_path: Path) -> None:
    clock, file = ManualClock(), tmp_path / "token"
    file.write_text("one\n")
    path = write_kubeconfig(tmp_path / "c", {"server": "https://x"}, {"tokenFile": "token"})
    who = credentials.from_kubeconfig(path, clock=clock)

    async def scenario() -> None:
        async def token() -> str:
            return dict((await who.identity()).headers)["Authorization"]

        assert await token() == "Bearer one"
        file.write_text("changed")
        clock.advance(LOOK_EVERY)
        assert await token() == "Bearer changed"
        file.unlink()
        for _ in range(3):
            clock.advance(LOOK_EVERY)
            assert await token() == "Bearer changed"
        file.write_text("")  # half written
        clock.advance(LOOK_EVERY)
        assert await token() == "Bearer changed"
        file.write_text("whole")
        clock.advance(LOOK_EVERY)
        assert await token() == "Bearer whole"

    asyncio.run(scenario())


def test_a_token_file_that_looks_the_same_is_read_again_after_a_minute(tmp_path: Path) -> None:
    clock, file = ManualClock(), tmp_path / "token"
    file.write_text("one")
    path = write_kubeconfig(tmp_path / "c", {"server": "https://x"}, {"tokenFile": "token"})
    who = credentials.from_kubeconfig(path, clock=clock)
    before = file.stat()

    async def scenario() -> None:
        first = await who.identity()
        file.write_text("two")
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        clock.advance(READ_EVERY)
        assert await who.identity() is first  # good enough until the new one is there
        assert (await another(who, first)).headers == (("Authorization", "Bearer two"),)

    asyncio.run(scenario())


def test_the_token_beside_a_token_file_counts_while_that_is_missing(tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "c", {"server": "https://x"}, {"tokenFile": "token", "token": "spare"})
    assert headers(credentials.from_kubeconfig(path)) == {"Authorization": "Bearer spare"}
    (tmp_path / "token").write_text("better")
    assert headers(credentials.from_kubeconfig(path)) == {"Authorization": "Bearer better"}


def test_a_401_makes_a_token_file_be_read_at_once(tmp_path: Path, pair: Pair) -> None:
    (tmp_path / "token").write_text("old")
    clock = ManualClock()

    async def scenario() -> None:
        async with RecordingServer(pair) as server:

            async def use(client: Client) -> None:
                await client.call("GET", "/1")
                (tmp_path / "token").write_text("new")
                server.status = lambda asked: 200 if asked.all("authorization") == ["Bearer new"] else 401
                clock.advance(LOOK_EVERY / 2)  # too early to look at the file of itself
                await client.call("GET", "/2")

            await with_client(known(tmp_path, server, {"tokenFile": "token"}, clock), use)
            tokens = [asked.all("authorization") for asked in server.asked]
            assert tokens == [["Bearer old"], ["Bearer old"], ["Bearer new"]]

    asyncio.run(scenario())


def test_a_401_for_a_fixed_token_is_an_answer_like_any_other(tmp_path: Path, pair: Pair) -> None:
    async def scenario() -> None:
        async with RecordingServer(pair) as server:
            server.status = lambda _: 401

            async def use(client: Client) -> None:
                with pytest.raises(ApiError, match="401"):
                    await client.call("GET", "/version")
                with pytest.raises(ApiError, match="401"):
                    await client.open_stream("/api/v1/pods?watch=1")

            await with_client(known(tmp_path, server, {"token": "T"}, ManualClock()), use)
            assert len(server.asked) == 2

    asyncio.run(scenario())


# --- service accounts ---


def in_pod(folder: Path, **environ: str) -> Surroundings:
    return Surroundings({"KUBERNETES_SERVICE_HOST": "10.96.0.1"} | environ, service_account=folder)


def test_in_a_pod_the_service_account_is_used(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ca.crt").write_bytes(authority.cert.read_bytes())
    (tmp_path / "token").write_text("pod-token")
    (tmp_path / "namespace").write_text("team\n")
    found = credentials.in_cluster(in_pod(tmp_path, KUBERNETES_SERVICE_PORT="6443"))
    assert (found.host, found.port, found.namespace) == ("10.96.0.1", 6443, "team")
    assert headers(found) == {"Authorization": "Bearer pod-token"}
    assert credentials.in_cluster(in_pod(tmp_path, POD_NAMESPACE="mine")).namespace == "mine"
    assert credentials.in_cluster(in_pod(tmp_path, KUBERNETES_SERVICE_HOST="fd00::1")).authority == "[fd00::1]:443"
    with pytest.raises(UsageError, match=r"\$KUBERNETES_SERVICE_PORT: its port is not a number"):
        credentials.in_cluster(in_pod(tmp_path, KUBERNETES_SERVICE_PORT="x"))
    monkeypatch.setattr(credentials, "in_cluster", lambda around: ("in cluster", around.environ))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert credentials.find(None, {"KUBERNETES_SERVICE_HOST": "h"})[0] == "in cluster"  # type: ignore[index]


def test_a_pod_without_a_service_account_may_have_a_kubeconfig_at_the_usual_place(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """automountServiceAccountToken: false. kubectl uses it, too."""
    (tmp_path / "ca.crt").write_bytes(authority.cert.read_bytes())
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://from-home"}}],
    }
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").write_text(json.dumps(config))
    (tmp_path / "token").write_text("pod-token")
    monkeypatch.setenv("HOME", str(tmp_path))
    environ = {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}
    for account, host in ((tmp_path / "none", "from-home"), (tmp_path, "10.96.0.1")):
        monkeypatch.setattr(credentials, "Surroundings", partial(Surroundings, service_account=account))
        assert credentials.find(None, environ).host == host


def test_a_service_account_without_its_files_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(CaricoError, match=r"the pod's service account: .*token.* cannot be read"):
        credentials.in_cluster(in_pod(tmp_path))
