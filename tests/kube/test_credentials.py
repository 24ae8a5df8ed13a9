"""Who we are: kubeconfig files, service accounts, tokens that change."""

from __future__ import annotations

import base64
import json
import ssl
import sys
from pathlib import Path
from typing import Any

import pytest

from carico.errors import CaricoError, UsageError
from carico.kube import credentials
from carico.testing import ManualClock


def kubeconfig(folder: Path, cluster: dict[str, Any], user: dict[str, Any]) -> Path:
    config = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    }
    path = folder / "config"
    path.write_text(json.dumps(config))
    return path


def test_address_prefix_and_token(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, {"server": "http://[::1]:8001/k8s/clusters/c1/"}, {"token": "secret"})
    found = credentials.from_kubeconfig(path)
    assert (found.host, found.port, found.prefix, found.tls) == ("::1", 8001, "/k8s/clusters/c1", None)
    assert found.authority == "[::1]:8001"
    assert found.token() == "secret"


def test_files_are_looked_for_beside_the_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "tok").write_text("from-file\n")
    found = credentials.from_kubeconfig(kubeconfig(tmp_path, {"server": "http://x"}, {"tokenFile": "tok"}))
    assert found.token() == "from-file"


def test_a_credential_plugin_is_run_and_remembered(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    program = (
        f"import json, pathlib; pathlib.Path({str(marks)!r}).open('a').write('x');"
        "print(json.dumps({'status': {'token': 't1', 'expirationTimestamp': '2999-01-01T00:00:00Z'}}))"
    )
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": sys.executable, "args": ["-c", program]}
    found = credentials.from_kubeconfig(kubeconfig(tmp_path, {"server": "http://x"}, {"exec": plugin}))
    assert [found.token(), found.token()] == ["t1", "t1"]
    assert marks.read_text() == "x"


def test_a_broken_plugin_is_named(tmp_path: Path) -> None:
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "/no/such/plugin"}
    found = credentials.from_kubeconfig(kubeconfig(tmp_path, {"server": "http://x"}, {"exec": plugin}))
    with pytest.raises(CaricoError, match="/no/such/plugin"):
        found.token()


def test_a_token_file_is_read_again_every_minute_and_survives_a_gap(tmp_path: Path) -> None:
    clock, file = ManualClock(), tmp_path / "token"
    file.write_text("one")
    token = credentials.token_file(file, clock.monotonic)
    assert token() == "one"
    file.write_text("two")
    assert token() == "one"
    clock.advance(61)
    assert token() == "two"
    file.unlink()
    clock.advance(61)
    assert token() == "two"


def test_in_a_pod_the_service_account_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = Path(ssl.get_default_verify_paths().openssl_cafile)
    if not bundle.exists():
        pytest.skip("no bundle of authorities on this machine")
    (tmp_path / "ca.crt").write_bytes(bundle.read_bytes())
    (tmp_path / "token").write_text("pod-token")
    environ = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "6443"}
    found = credentials.in_cluster(environ, tmp_path)
    assert (found.host, found.port, found.token()) == ("10.96.0.1", 6443, "pod-token")
    monkeypatch.setattr(credentials, "in_cluster", lambda env: ("in cluster", dict(env)))
    assert credentials.find(None, environ)[0] == "in cluster"  # type: ignore[index]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "is not a usable kubeconfig"),
        ("a: [", "is not a usable kubeconfig"),
        (json.dumps({"current-context": "x", "contexts": []}), "entry 'x' under contexts"),
    ],
)
def test_an_unusable_file_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        credentials.from_kubeconfig(path)


def test_a_missing_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--kubeconfig"):
        credentials.find(tmp_path / "none")


def test_a_bad_certificate_is_one_line(tmp_path: Path) -> None:
    data = base64.b64encode(b"nonsense").decode()
    with pytest.raises(UsageError, match="certificates or key cannot be used"):
        credentials.from_kubeconfig(
            kubeconfig(tmp_path, {"server": "https://x", "certificate-authority-data": data}, {})
        )
