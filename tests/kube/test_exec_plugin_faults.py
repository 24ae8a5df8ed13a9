"""Credential plugins that fail, hang, or must not be run."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

import pytest

from carico.embedded.apiserver.server import ApiServer
from carico.errors import CaricoError, CredentialError, UsageError
from carico.kube import credentials
from carico.kube.client import Client
from carico.kube.credentials import Surroundings
from carico.kube.exec_plugin import ExecCommand, ExecPlugin
from carico.kube.identity import RETRY_AFTER
from carico.kube.kubeconfig import choose
from carico.testing import ManualClock
from harness.kube.exec_plugins import V1BETA1, against_embedded, known, program, runs, sentence
from harness.kube.recording import until


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
