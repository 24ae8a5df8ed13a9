"""Which cluster, user and namespace a kubeconfig means, and the sentence for each one that means none."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from carico.errors import CaricoError, UsageError
from carico.kube import credentials
from carico.kube.kubeconfig import choose
from harness.kube.recording import write_kubeconfig

V1 = "client.authentication.k8s.io/v1"
HTTPS = {"server": "https://10.0.0.1:6443"}


def part(**sections: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """A file that holds some entries."""
    keys = {"contexts": "context", "clusters": "cluster", "users": "user"}
    lists = {
        section: [{"name": name, keys[section]: entry} for name, entry in entries.items()]
        for section, entries in sections.items()
    }
    return {"apiVersion": "v1", "kind": "Config", **lists}


def write(path: Path, content: Any) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_the_files_of_the_variable_are_merged_and_the_first_entry_wins(tmp_path: Path) -> None:
    folder = tmp_path / "sub"
    folder.mkdir()
    one = write(tmp_path / "one", part(users={"u": {"tokenFile": "tok"}}) | {"current-context": ""})
    two = part(
        contexts={"a": {"cluster": "k", "user": "u", "namespace": "team"}},
        clusters={"k": {"server": "https://two:1", "certificate-authority": "ca.pem"}},
        users={"u": {"token": "of two"}},
    )
    write(folder / "two", two | {"current-context": "a"})
    missing = tmp_path / "missing"
    choice = choose([missing, one, folder / "two"])
    assert (choice.context, choice.namespace) == ("a", "team")
    assert choice.user.token_file == str(tmp_path / "tok")  # relative to the file that names it
    assert choice.user.token == ""  # nothing of the second user of that name
    assert choice.cluster.certificate_authority == str(folder / "ca.pem")
    assert choice.files == (one, folder / "two")


def test_find_takes_all_files_of_the_variable(tmp_path: Path) -> None:
    users = write(tmp_path / "users", part(users={"u": {"token": "T"}}))
    rest = write_kubeconfig(tmp_path / "rest", HTTPS, {}, "team")
    names = f"{tmp_path / 'missing'}::{users}:{rest}:{rest}"
    found = credentials.find(None, {"KUBECONFIG": names})
    assert (found.host, found.port, found.namespace) == ("10.0.0.1", 6443, "team")


def test_when_none_of_the_files_exists_a_sentence_names_them(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"none of the files in \$KUBECONFIG exists \(/no/a, /no/b\); set --kubeconfig"
    ):
        credentials.find(None, {"KUBECONFIG": "/no/a:/no/b"})
    with pytest.raises(UsageError, match=r"No such file.*--kubeconfig"):
        credentials.find(tmp_path / "none", {})


def test_another_context_can_be_chosen(tmp_path: Path) -> None:
    config = part(
        contexts={"a": {"cluster": "one", "user": ""}, "b": {"cluster": "two", "namespace": "n"}},
        clusters={"one": {"server": "https://one"}, "two": {"server": "https://two:2"}},
    )
    path = write(tmp_path / "config", config | {"current-context": "a"})
    assert credentials.find(path, {}).host == "one"
    other = credentials.find(path, {}, context="b")
    assert (other.host, other.port, other.namespace) == ("two", 2, "n")
    with pytest.raises(UsageError, match=r"no context 'c', the contexts are 'a', 'b'; choose another with --context"):
        credentials.find(path, {}, context="c")
    del config["contexts"][0]
    path = write(tmp_path / "config", config)
    with pytest.raises(UsageError, match=r"current-context is not set, and the contexts are 'b'; .* --context"):
        credentials.find(path, {})


def test_a_named_context_means_a_kubeconfig_in_a_pod_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".kube").mkdir()
    write_kubeconfig(tmp_path / ".kube" / "config", HTTPS, {})
    monkeypatch.setenv("HOME", str(tmp_path))
    assert credentials.find(None, {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}, context="a").host == "10.0.0.1"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "current-context is not set, and there are no contexts at all; choose one with --context"),
        ("{}", "current-context is not set"),
        ("a: [", r"is not a usable kubeconfig: it is not YAML \(line 1: "),
        ("a: &a [*a]\nb: *a", "is not a usable kubeconfig"),
        (b"\xff\xfe", "is not a usable kubeconfig: it is not YAML"),
        ("- 1", "is not a usable kubeconfig: it is no mapping"),
        ("kind: Pod\napiVersion: v1", "is not a usable kubeconfig but a Pod of v1"),
        ("users: {}", "is not a usable kubeconfig: Expected `array`, got `object` - at `\\$.users`"),
        ("current-context: x\ncontexts: []", "there is no context 'x', there are no contexts at all"),
        ("contexts: [{name: x}, {name: x}]", "two contexts called 'x'; rename one"),
        (
            "current-context: x\ncontexts: [{name: x, context: {cluster: k}}]",
            "no cluster 'k', .* 'x' names it",
        ),
    ],
)
def test_an_unusable_file_is_one_line(tmp_path: Path, text: str | bytes, sentence: str) -> None:
    path = tmp_path / "config"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UsageError, match=sentence) as caught:
        credentials.find(path, {})
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


CERTIFICATE = {"client-certificate-data": "eA==", "client-key-data": "eA=="}


@pytest.mark.parametrize(
    ("cluster", "user", "sentence"),
    [
        ({}, {}, "cluster 'k': names no server"),
        (
            {"server": "https://h:99999"},
            {},
            "cluster 'k': server cannot be used: its port is not a number",
        ),
        ({"server": "https://h:0"}, {}, "its port is not a number"),
        ({"server": "https://"}, {}, "it names no host"),
        ({"server": "https://h\nX: y"}, {}, "it holds a space or a control character"),
        ({"server": "ftp://h"}, {}, "its scheme is ftp"),
        ({"server": "https://me:word@h"}, {}, "server holds a user name"),
        ({"server": 1}, {}, "cluster 'k': Expected `str`, got `int` - at `\\$.server`"),
        (HTTPS | {"proxy-url": "socks5://p:1080"}, {}, "proxy-url cannot be used: its scheme is socks5"),
        (HTTPS | {"proxy-url": "http://p:x"}, {}, "proxy-url cannot be used: its port"),
        (HTTPS | {"certificate-authority-data": "*"}, {}, "certificate-authority-data is not base64"),
        (HTTPS | {"certificate-authority-data": "eA=="}, {}, "certificate-authority-data: holds no certificate"),
        (HTTPS | {"certificate-authority": "none"}, {}, "certificate-authority: .*/none cannot be read"),
        (HTTPS | {"certificate-authority": "a", "certificate-authority-data": "eA=="}, {}, "has both .* remove one"),
        (HTTPS | {"certificate-authority": "a", "insecure-skip-tls-verify": True}, {}, "exclude each other"),
        (HTTPS, {"client-certificate": "c"}, "user 'u': client-key is missing"),
        (HTTPS, {"client-key": "c"}, "user 'u': client-certificate is missing"),
        (HTTPS, CERTIFICATE, "certificate and key cannot be used"),
        (HTTPS, {"token": "a\nb"}, "user 'u': the token holds a line break"),
        (HTTPS, {"token": 1}, "user 'u': Expected `str`, got `int` - at `\\$.token`"),
        (HTTPS, {"tokenFile": "none"}, "user 'u': the token in .*/none cannot be read"),
        (HTTPS, {"token": "t", "username": "me"}, "both a token and a user name"),
        (HTTPS, {"as": "a\r\nAuthorization: x"}, "Impersonate-User holds a line break"),
        (HTTPS, {"token": "t", "as-groups": ["g"]}, "need `as`"),
        (HTTPS, {"auth-provider": {"name": "gcp"}}, "'gcp' is not supported, by kubectl neither; use gke-gcloud"),
        (HTTPS, {"auth-provider": {"name": "mine"}}, "'mine' is not supported"),
        (HTTPS, {"auth-provider": {"name": "oidc"}, "exec": {"command": "x"}}, "both exec and auth-provider"),
        (HTTPS, {"exec": {"command": "true"}}, "user 'u': exec has no apiVersion"),
        (
            HTTPS,
            {"exec": {"command": "true", "apiVersion": f"{V1}alpha1"}},
            "apiVersion .*v1alpha1; .* supported",
        ),
        (HTTPS, {"exec": {"apiVersion": V1}}, "exec names no command"),
        (
            HTTPS,
            {"exec": {"apiVersion": V1, "command": "x", "interactiveMode": "Always"}},
            "plugin its standard input",
        ),
        (HTTPS, {"exec": {"apiVersion": V1, "command": "x", "interactiveMode": "So"}}, "interactiveMode 'So', none of"),
        (HTTPS, {"exec": {"apiVersion": V1, "command": "x", "env": [{"value": "v"}]}}, "variable without a name"),
    ],
)
def test_what_cannot_be_done_is_refused_with_a_sentence(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], sentence: str
) -> None:
    path = write_kubeconfig(tmp_path / "config", cluster, user)
    with pytest.raises(CaricoError, match=sentence) as caught:
        credentials.find(path, {})
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_a_user_that_is_null_has_no_credentials(tmp_path: Path) -> None:
    path = tmp_path / "config"
    config = json.loads(write_kubeconfig(path, HTTPS, {}).read_text())
    config["users"][0]["user"] = None
    assert credentials.find(write(path, config), {}).host == "10.0.0.1"


def test_fields_that_kubectl_does_not_know_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write_kubeconfig(tmp_path / "config", HTTPS, {"tokenfile": "x"})
    with caplog.at_level(logging.WARNING):
        credentials.find(path, {})
    assert "user 'u': unknown fields are ignored, as kubectl ignores them: tokenfile" in caplog.text


def test_a_user_shows_no_secret() -> None:
    path = Path(__file__).parents[1] / "fixtures" / "kubeconfigs" / "token.yaml"
    assert "secret" not in repr(choose([path]))
