"""Credential plugins: real programs, against the embedded API server and a server that wants certificates."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from carico.embedded.apiserver.server import ApiServer
from carico.errors import ApiError, CredentialError
from carico.kube.client import Client
from carico.kube.identity import AHEAD, RETRY_AFTER
from carico.testing import ManualClock
from carico.wire.certificates import Authority
from harness.kube.exec_plugins import V1, V1BETA1, against_embedded, known, program, runs, sentence, stamp
from harness.kube.recording import RecordingServer, another, until


@pytest.mark.parametrize("version", [V1, V1BETA1])
def test_its_token_is_used_and_remembered(tmp_path: Path, version: str) -> None:
    program(tmp_path, f"answer({version!r}, token=(folder / 'right').read_text(), unknown=1)")

    async def use(_: ApiServer, client: Client) -> None:
        await asyncio.gather(*(client.call("GET", "/api/v1/nodes") for _ in range(5)))
        await client.call("GET", "/api/v1/nodes")
        assert runs(tmp_path) == 1

    against_embedded(tmp_path, use, apiVersion=version)


def test_a_slow_one_does_not_hold_up_the_event_loop(tmp_path: Path) -> None:
    """It ends only when the event loop has turned: in the loop itself it would never end."""
    os.mkfifo(tmp_path / "gate")
    program(tmp_path, "open(folder / 'gate').read(); answer(token=(folder / 'right').read_text())")

    async def use(_: ApiServer, client: Client) -> None:
        asked = asyncio.create_task(client.call("GET", "/api/v1/nodes"))
        await until(lambda: runs(tmp_path))
        await asyncio.to_thread((tmp_path / "gate").write_text, "go")
        await asked

    against_embedded(tmp_path, use)


def test_its_token_is_replaced_ahead_of_its_end_while_the_old_one_serves(tmp_path: Path) -> None:
    clock = ManualClock()
    os.mkfifo(tmp_path / "gate")
    end = stamp(clock.wall() + 3600)
    program(
        tmp_path,
        f"""
        if run == 2: open(folder / 'gate').read()
        answer(token=f"t{{run}}", expirationTimestamp={end!r} if run == 1 else None)
        """,
    )
    who = known(tmp_path, {"server": "https://x"}, clock)

    async def scenario() -> None:
        first = await who.identity()
        assert first.headers == (("Authorization", "Bearer t1"),)
        clock.advance(3600 - AHEAD - 1)
        assert await who.identity() is first
        clock.advance(2)
        assert await who.identity() is first  # and the plugin runs
        await until(lambda: runs(tmp_path) == 2)
        assert await who.identity() is first
        await asyncio.to_thread((tmp_path / "gate").write_text, "go")
        present = await another(who, first)
        assert present.headers == (("Authorization", "Bearer t2"),)
        clock.advance(1e6)  # no expiry was given: it is kept
        assert await who.identity() is present
        assert runs(tmp_path) == 2

    asyncio.run(scenario())


def test_a_failure_ahead_of_the_end_changes_nothing_and_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    end = stamp(clock.wall() + 3600)
    program(tmp_path, f"answer(token='t', expirationTimestamp={end!r}) if run == 1 else sys.exit('log in first')")
    who = known(tmp_path, {"server": "https://x"}, clock)

    async def scenario() -> None:
        first = await who.identity()
        clock.advance(3600 - AHEAD + 1)
        assert await who.identity() is first
        await until(lambda: "credentials could not be renewed" in caplog.text)
        await until(lambda: who._loading is None)  # it ends after it has logged
        for _ in range(5):
            assert await who.identity() is first
        assert runs(tmp_path) == 2  # not at every request
        clock.advance(AHEAD)
        with pytest.raises(CredentialError, match="exit code 1: log in first"):
            await who.identity()
        assert runs(tmp_path) == 3
        with pytest.raises(CredentialError, match="exit code 1: log in first"):
            await who.identity()
        assert runs(tmp_path) == 3
        clock.advance(RETRY_AFTER)
        with pytest.raises(CredentialError):
            await who.identity()
        assert runs(tmp_path) == 4

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())


def test_a_401_runs_it_again_once(tmp_path: Path) -> None:
    program(tmp_path, "answer(token='stale' if run == 1 else (folder / 'right').read_text())")

    async def use(_: ApiServer, client: Client) -> None:
        await asyncio.gather(*(client.call("GET", "/api/v1/nodes") for _ in range(5)))
        assert runs(tmp_path) == 2

    against_embedded(tmp_path, use)


def test_a_401_at_the_start_of_a_watch_runs_it_again(tmp_path: Path) -> None:
    program(tmp_path, "answer(token='stale' if run == 1 else (folder / 'right').read_text())")

    async def use(_: ApiServer, client: Client) -> None:
        stream = await client.open_stream("/api/v1/nodes?watch=1&resourceVersion=0")
        stream.close()
        assert runs(tmp_path) == 2

    against_embedded(tmp_path, use)


def test_a_401_that_stays_does_not_run_it_at_every_request(tmp_path: Path) -> None:
    clock = ManualClock()
    program(tmp_path, "answer(token=f'wrong-{run}')")

    async def use(_: ApiServer, client: Client) -> None:
        for _try in range(10):
            with pytest.raises(ApiError, match="401"):
                await client.call("GET", "/api/v1/nodes")
        assert runs(tmp_path) == 2
        clock.advance(RETRY_AFTER)
        with pytest.raises(ApiError, match="401"):
            await client.call("GET", "/api/v1/nodes")
        assert runs(tmp_path) == 3

    against_embedded(tmp_path, use, clock)


def test_a_token_past_its_end_is_tried_and_logged_but_not_fetched_at_every_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The clock here may be wrong: whether the token is valid is decided by the API server."""
    clock = ManualClock()
    end = stamp(clock.wall() - 5)
    program(tmp_path, f"answer(token=(folder / 'right').read_text(), expirationTimestamp={end!r})")

    async def use(_: ApiServer, client: Client) -> None:
        for _try in range(5):
            await client.call("GET", "/api/v1/nodes")
        assert runs(tmp_path) == 1
        clock.advance(RETRY_AFTER)
        await client.call("GET", "/api/v1/nodes")
        assert runs(tmp_path) == 2

    with caplog.at_level(logging.WARNING):
        against_embedded(tmp_path, use, clock)
    assert "the credentials are 5 s past their end; log in again, or set this machine's clock" in caplog.text


def test_its_certificate_is_shown_and_a_new_one_makes_new_connections(tmp_path: Path) -> None:
    clock = ManualClock()
    authority = Authority(tmp_path)
    end = stamp(clock.wall() + 100)
    for name in ("run-1", "run-2"):
        authority.issue(name)
    program(
        tmp_path,
        f"""
        read = lambda kind: (folder / f"run-{{run}}.{{kind}}").read_text()
        answer(clientCertificateData=read("pem"), clientKeyData=read("key"), expirationTimestamp={end!r})
        """,
    )

    async def scenario() -> None:
        async with RecordingServer(authority.issue("server", "127.0.0.1"), authority.cert) as server:
            client = Client(known(tmp_path, {"server": server.url, "certificate-authority": "ca.pem"}, clock))
            await client.call("GET", "/1")
            await client.call("GET", "/2")
            clock.advance(100)
            await client.call("GET", "/3")
            await client.close()
            assert [asked.client for asked in server.asked] == ["run-1", "run-1", "run-2"]
            assert [asked.all("authorization") for asked in server.asked] == [[], [], []]
            assert server.connections == 2

    asyncio.run(scenario())


# --- its input ---


def test_it_gets_arguments_environment_and_the_cluster(tmp_path: Path) -> None:
    program(
        tmp_path,
        """
        seen = {"args": sys.argv[1:], "colour": os.environ["COLOUR"], "home": os.environ["HOME"],
                "stdin": sys.stdin.read(), "info": json.loads(os.environ["KUBERNETES_EXEC_INFO"])}
        (folder / "seen").write_text(json.dumps(seen))
        answer(token="t")
        """,
    )
    authority = Authority(tmp_path)
    cluster = {
        "server": "https://x:1/y",
        "certificate-authority": "ca.pem",
        "tls-server-name": "inside",
        "proxy-url": "http://p:1",
        "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}],
    }
    more: dict[str, Any] = {"args": ["get", "token"], "env": [{"name": "COLOUR", "value": "blue"}]}
    asyncio.run(known(tmp_path, cluster, **more, provideClusterInfo=True).identity())
    seen = json.loads((tmp_path / "seen").read_text())
    assert seen["args"] == ["get", "token"]
    assert (seen["colour"], seen["home"], seen["stdin"]) == ("blue", os.environ["HOME"], "")
    info = seen["info"]
    assert (info["apiVersion"], info["kind"], info["spec"]["interactive"]) == (V1, "ExecCredential", False)
    told = info["spec"]["cluster"]
    assert base64.b64decode(told.pop("certificate-authority-data")) == authority.cert.read_bytes()
    assert told == {
        "server": "https://x:1/y",
        "tls-server-name": "inside",
        "proxy-url": "http://p:1",
        "config": {"audience": "a"},
    }
    asyncio.run(known(tmp_path, cluster, **more).identity())
    assert "cluster" not in json.loads((tmp_path / "seen").read_text())["info"]["spec"]


def test_a_command_without_a_slash_is_looked_for_in_the_path_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, "answer(token='t')", "plugin-of-mine")
    monkeypatch.chdir(tmp_path)
    for path in (".", ""):
        monkeypatch.setenv("PATH", f"{path}:/usr/bin")
        assert "plugin-of-mine is not installed on this machine" in sentence(tmp_path, command="plugin-of-mine")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin")
    who = known(tmp_path, {"server": "https://x"}, command="plugin-of-mine")
    assert asyncio.run(who.identity()).headers == (("Authorization", "Bearer t"),)
