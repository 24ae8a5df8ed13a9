"""Credential plugins: real programs, against the embedded API server and a server that wants certificates."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import sys
import textwrap
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from carico.embedded.apiserver.server import ApiServer
from carico.errors import ApiError, CaricoError, CredentialError, UsageError
from carico.kube import credentials
from carico.kube.client import Client
from carico.kube.credentials import Surroundings
from carico.kube.exec_plugin import ExecCommand, ExecPlugin
from carico.kube.identity import AHEAD, RETRY_AFTER, Credentials
from carico.kube.kubeconfig import choose
from carico.testing import ManualClock, embedded_api_server
from carico.wire.certificates import Authority
from harness.kube.recording import RecordingServer, another, until, write_kubeconfig

V1 = "client.authentication.k8s.io/v1"
V1BETA1 = "client.authentication.k8s.io/v1beta1"


def program(folder: Path, body: str, name: str = "plugin") -> Path:
    """A program in Python. `answer(**status)` prints, `run` is the number of this run."""
    lines = f"""\
        #!{sys.executable} -IS
        import json, os, pathlib, sys, time
        folder = pathlib.Path({str(folder)!r})
        with (folder / "runs").open("a") as runs: runs.write("x")
        run = (folder / "runs").stat().st_size
        def answer(version={V1!r}, **status):
            print(json.dumps({{"apiVersion": version, "kind": "ExecCredential", "status": status}}))
        """
    path = folder / name
    path.write_text(textwrap.dedent(lines) + textwrap.dedent(body))
    path.chmod(0o755)
    return path


def runs(folder: Path) -> int:
    return (folder / "runs").stat().st_size if (folder / "runs").exists() else 0


def stamp(wall: float) -> str:
    return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def known(folder: Path, cluster: dict[str, Any], clock: ManualClock | None = None, **entry: Any) -> Credentials:
    user = {"exec": {"apiVersion": V1, "command": "./plugin", "interactiveMode": "Never"} | entry}
    return credentials.from_kubeconfig(write_kubeconfig(folder / "config", cluster, user), clock=clock)


def of_embedded(folder: Path) -> dict[str, Any]:
    """The cluster in the kubeconfig that the embedded API server wrote."""
    cluster: dict[str, Any] = json.loads((folder / "kubeconfig").read_text())["clusters"][0]["cluster"]
    return cluster


Use = Callable[[ApiServer, Client], Awaitable[None]]


def against_embedded(folder: Path, use: Use, clock: ManualClock | None = None, **entry: Any) -> None:
    async def scenario() -> None:
        async with embedded_api_server(folder, tls=True) as (server, _):
            (folder / "right").write_text(server.token)
            client = Client(known(folder, of_embedded(folder), clock, **entry))
            try:
                await use(server, client)
            finally:
                await client.close()

    asyncio.run(scenario())


def sentence(folder: Path, **entry: Any) -> str:
    """The message when the credentials cannot be had."""
    who = known(folder, {"server": "https://x"}, **entry)
    with pytest.raises(CredentialError) as caught:
        asyncio.run(who.identity())
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"{folder / 'config'}: user 'u': the credential plugin ")
    return str(caught.value)


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


# --- when it fails ---


def test_its_stderr_and_exit_code_are_shown(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    program(tmp_path, "sys.exit('your session has ended\\n\\x1b[1mplease run: aws sso login')")
    with caplog.at_level(logging.WARNING):
        said = sentence(tmp_path, installHint="brew install aws")
    assert said.endswith(
        "plugin ended with exit code 1: your session has ended | �[1mplease run: aws sso login; brew install aws"
    )
    assert "plugin wrote: your session has ended" in caplog.text


def test_its_stderr_is_shown_while_it_runs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    os.mkfifo(tmp_path / "gate")
    program(
        tmp_path,
        "print('enter code ABC', file=sys.stderr, flush=True); open(folder / 'gate').read(); answer(token='t')",
    )
    who = known(tmp_path, {"server": "https://x"})

    async def scenario() -> None:
        asked = asyncio.create_task(who.identity())
        await until(lambda: "wrote: enter code ABC" in caplog.text)
        await asyncio.to_thread((tmp_path / "gate").write_text, "the person has done it")
        assert (await asked).headers == (("Authorization", "Bearer t"),)

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())


def test_one_that_is_not_there_comes_with_its_hint(tmp_path: Path) -> None:
    said = sentence(tmp_path, command="kubelogin-xyz", installHint="brew install kubelogin")
    assert said.endswith("kubelogin-xyz is not installed on this machine; brew install kubelogin")
    assert "cannot be run ([Errno 2] No such file" in sentence(tmp_path, command="./none")
    (tmp_path / "text").write_text("x")
    assert "cannot be run ([Errno 13] Permission denied" in sentence(tmp_path, command="./text")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("", "printed no ExecCredential"),
        ("print('token: x')", "printed no ExecCredential"),
        ("print('[]')", "printed no ExecCredential"),
        ("print(json.dumps({'status': {'token': 't'}}))", "printed no ExecCredential .*apiVersion"),
        (f"answer({V1BETA1!r}, token='t')", "printed an ExecCredential of .*/v1beta1, not an ExecCredential of .*/v1"),
        ("answer()", "gave neither a token nor a certificate"),
        ("answer(clientCertificateData='x')", "gave a certificate alone, not both"),
        ("answer(clientKeyData='x')", "gave a key alone, not both"),
        ("answer(token='t', expirationTimestamp='soon')", "printed no ExecCredential .*RFC3339"),
        ("answer(token='a\\nb')", "the token holds a line break"),
        ("os.kill(os.getpid(), 15)", "was ended by signal 15"),
    ],
)
def test_a_bad_answer_is_one_line(tmp_path: Path, body: str, why: str) -> None:
    program(tmp_path, body)
    with pytest.raises(CredentialError, match=why):
        asyncio.run(known(tmp_path, {"server": "https://x"}).identity())


def test_a_certificate_of_its_that_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    program(tmp_path, "answer(clientCertificateData='x', clientKeyData='y')")
    with pytest.raises(CredentialError, match="certificate and key cannot be used"):
        asyncio.run(known(tmp_path, {"server": "https://x"}).identity())


def all_gone(folder: Path) -> None:
    """Waits until they are: the program itself is waited for, what it started dies a moment later."""
    files = [Path(f"/proc/{pid}/stat") for pid in (folder / "pids").read_text().split()]
    asyncio.run(until(lambda: all(ended(file) for file in files)))


def ended(file: Path) -> bool:
    try:
        return file.read_text().split()[2] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


HANGS = """
    import subprocess
    child = subprocess.Popen(["sleep", "1000"])
    (folder / "half").write_text(f"{os.getpid()} {child.pid}")
    (folder / "half").rename(folder / "pids")
    child.wait()
    """


def test_one_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    path = program(tmp_path, HANGS)
    while not (tmp_path / "pids").exists():  # on a slow machine it may not come that far
        with pytest.raises(CredentialError, match="gave no answer within 1 s"):
            ExecPlugin(ExecCommand("here", str(path)), patience=1).obtain()
    all_gone(tmp_path)


def test_the_end_of_the_process_does_not_wait_for_one_that_hangs(tmp_path: Path) -> None:
    program(tmp_path, HANGS)
    who = known(tmp_path, {"server": "https://x"})

    async def scenario() -> None:
        asked = asyncio.create_task(who.identity())
        await until((tmp_path / "pids").exists)
        asked.cancel()

    asyncio.run(scenario())
    all_gone(tmp_path)


def test_a_request_that_is_cancelled_does_not_end_it_for_others(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    program(tmp_path, "open(folder / 'gate').read(); answer(token='t')")
    who = known(tmp_path, {"server": "https://x"})

    async def scenario() -> None:
        one, other = asyncio.create_task(who.identity()), asyncio.create_task(who.identity())
        await until(lambda: runs(tmp_path))
        one.cancel()
        await asyncio.to_thread((tmp_path / "gate").write_text, "go")
        assert (await other).headers == (("Authorization", "Bearer t"),)
        assert one.cancelled()
        assert runs(tmp_path) == 1

    asyncio.run(scenario())


def test_in_a_pod_it_is_refused_unless_allowed(tmp_path: Path) -> None:
    program(tmp_path, "answer(token='t')")
    known(tmp_path, {"server": "https://x"})
    choice = choose([tmp_path / "config"])
    environ = {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}
    without_token = Surroundings(environ, service_account=tmp_path)  # automountServiceAccountToken: false
    with_token = Surroundings(environ, service_account=tmp_path / "account")
    with_token.service_account.mkdir()
    (with_token.service_account / "token").write_text("pod")
    for around in (without_token, with_token):
        with pytest.raises(UsageError, match=r"would run .*/plugin inside this pod; .* --exec-in-pod"):
            credentials.from_choice(choice, around)
    assert runs(tmp_path) == 0
    allowed = Surroundings(environ, exec_in_pod=True, service_account=tmp_path)
    assert asyncio.run(credentials.from_choice(choice, allowed).identity()).headers


def test_a_failing_one_is_an_error_that_callers_try_again_after(tmp_path: Path) -> None:
    assert issubclass(CredentialError, CaricoError)
    program(tmp_path, "sys.exit(1) if run == 1 else answer(token=(folder / 'right').read_text())")
    clock = ManualClock()

    async def use(_: ApiServer, client: Client) -> None:
        with pytest.raises(CredentialError):
            await client.call("GET", "/api/v1/nodes")
        clock.advance(RETRY_AFTER)
        await client.call("GET", "/api/v1/nodes")

    against_embedded(tmp_path, use, clock)
