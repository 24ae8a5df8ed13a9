"""The kubeconfigs of tests/fixtures/kubeconfigs mean the same to Carico, to kubectl and to the package `kubernetes`.

kubectl also sends requests to a server that records them: requests of Carico must carry the same credentials.
"""

from __future__ import annotations

import asyncio
import base64
import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from carico.errors import CaricoError
from carico.kube import credentials
from carico.kube.client import Client
from carico.kube.kubeconfig import ClusterEntry, ContextChoice, User, choose
from carico.wire.certificates import Authority
from harness.cluster import builder
from harness.kube.connect_proxy import ConnectProxy
from harness.kube.recording import Asked, RecordingServer, write_kubeconfig

FIXTURES = Path(__file__).parents[1] / "fixtures" / "kubeconfigs"
CASES = sorted(path.name for path in FIXTURES.iterdir() if path.suffix == ".yaml" or path.is_dir())
NOT_IN_THE_PACKAGE = {"impersonation.yaml", "named-by-dates.yaml"}  # it knows no `as` and takes names for dates
PLUGIN = f"""\
#!{sys.executable} -IS
import json, os
version = json.loads(os.environ["KUBERNETES_EXEC_INFO"])["apiVersion"]
open(os.path.join(os.path.dirname(__file__), "info"), "w").write(os.environ["KUBERNETES_EXEC_INFO"])
print(json.dumps({{"apiVersion": version, "kind": "ExecCredential", "status": {{"token": "from the plugin"}}}}))
"""


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    pki = tmp_path / "kubeconfigs" / "pki"
    pki.mkdir(parents=True)
    return Authority(pki)


@pytest.fixture
def folder(tmp_path: Path, authority: Authority) -> Path:
    """The kubeconfigs, with keys that exist."""
    made, pki = tmp_path / "kubeconfigs", authority.cert.parent
    shutil.copytree(FIXTURES, made, dirs_exist_ok=True)
    client = authority.issue("client")
    contents = {f"@{file.name}@": _base64(file) for file in (authority.cert, client.cert, client.key)}
    (pki / "token").write_text("from a file")
    (pki / "plugin").write_text(PLUGIN)
    (pki / "plugin").chmod(0o755)
    (made / "merged" / "pki").symlink_to(pki)
    for file in made.rglob("*.yaml"):
        text = file.read_text()
        for mark, content in contents.items():
            text = text.replace(mark, content)
        file.write_text(text)
    return made


def _base64(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()


def files_of(folder: Path, case: str) -> list[Path]:
    path = folder / case
    return sorted(path.glob("*.yaml")) if path.is_dir() else [path]


def contexts_of(files: list[Path]) -> list[str]:
    import yaml

    plain = [yaml.load(file.read_text(), yaml.BaseLoader) for file in files]
    return list(dict.fromkeys(entry["name"] for one in plain for entry in one.get("contexts", [])))


# --- their requests ---


def flat(choice: ContextChoice) -> dict[str, Any]:
    """As `kubectl config view --minify --flatten` prints it."""
    return {
        "cluster": _flat(choice.cluster, "certificate-authority"),
        "user": _flat(choice.user, "client-certificate", "client-key"),
        "namespace": choice.namespace,
    }


def _flat(entry: ClusterEntry | User, *files: str) -> dict[str, Any]:
    default = msgspec.to_builtins(type(entry)())
    plain = {name: value for name, value in msgspec.to_builtins(entry).items() if value != default[name]}
    for name in files:
        if name in plain:
            plain[f"{name}-data"] = _base64(Path(plain.pop(name)))
    return plain


class Kubectl:
    def __init__(self, home: Path) -> None:
        self._binary, self._home = builder.build(["kubectl"])["kubectl"], home

    def view(self, files: list[Path], context: str | None) -> dict[str, Any]:
        argv = ["config", "view", "--minify", "--flatten", "--raw", "-o", "json"]
        environ = self._environ(os.pathsep.join(map(str, files)))
        chosen = [f"--context={context}"] if context else []
        done = subprocess.run([self._binary, *argv, *chosen], env=environ, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        plain = json.loads(done.stdout)
        return {
            "cluster": plain["clusters"][0]["cluster"],
            "user": plain["users"][0]["user"] if plain["users"] else {},
            "namespace": plain["contexts"][0]["context"].get("namespace", "default"),
        }

    async def ask(self, file: Path, **environ: str) -> tuple[int, str]:
        child = await asyncio.create_subprocess_exec(
            self._binary, "get", "--raw", "/version", env=self._environ(str(file)) | environ,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        out, _ = await child.communicate()
        assert child.returncode is not None
        return child.returncode, out.decode()

    def _environ(self, names: str) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "HOME": str(self._home), "KUBECONFIG": names}


@pytest.fixture
def kubectl(tmp_path: Path) -> Kubectl:
    return Kubectl(tmp_path)


@pytest.mark.needs("go")
@pytest.mark.parametrize("case", CASES)
def test_carico_and_kubectl_read_the_same(folder: Path, case: str, kubectl: Kubectl) -> None:
    files = files_of(folder, case)
    missing = folder / "missing.yaml"
    contexts = contexts_of(files)
    assert contexts
    for context in [None, *contexts]:
        ours = flat(choose([missing, *files, *files] if len(files) > 1 else files, context))
        assert ours == _located(kubectl.view([missing, *files, *files], context), folder), context


def _located(view: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What kubectl leaves as it is written, as it takes it when it uses it."""
    user = view["user"]
    if "tokenFile" in user:
        user["tokenFile"] = str(folder / user["tokenFile"])
    if "exec" in user:
        user["exec"]["command"] = str(folder / user["exec"]["command"])
    return view


@pytest.mark.needs("kubernetes")
@pytest.mark.parametrize("case", [case for case in CASES if case not in NOT_IN_THE_PACKAGE])
def test_carico_and_the_package_load_the_same(folder: Path, case: str) -> None:
    config = importlib.import_module("kubernetes.config")
    files = files_of(folder, case)
    names = os.pathsep.join(map(str, files))
    for context in contexts_of(files):
        theirs = importlib.import_module("kubernetes.client").Configuration()
        config.load_kube_config(names, context=context, client_configuration=theirs, persist_config=False)
        choice = choose(files, context)
        ours = credentials.from_choice(choice, credentials.Surroundings({"PATH": os.environ["PATH"]}))
        identity = asyncio.run(ours.identity())
        assert theirs.host == choice.cluster.server.rstrip("/")
        assert theirs.verify_ssl == (not choice.cluster.insecure_skip_tls_verify)
        assert (theirs.tls_server_name or ours.host) == ours.server_name
        assert theirs.proxy == (str(ours.proxy) if ours.proxy is not None else None)
        assert theirs.api_key.get("BearerToken") == dict(identity.headers).get("Authorization")
        told = flat(choice)
        assert _read(theirs.ssl_ca_cert) == told["cluster"].get("certificate-authority-data")
        assert _read(theirs.cert_file) == told["user"].get("client-certificate-data")
        assert _read(theirs.key_file) == told["user"].get("client-key-data")
        listed, _ = config.list_kube_config_contexts(names)
        spaces = {one["name"]: one["context"].get("namespace") or "default" for one in listed}
        assert spaces[context] == ours.namespace


def _read(name: str | None) -> str | None:
    return None if name is None else _base64(Path(name))


# --- what they send ---

USERS: dict[str, dict[str, Any]] = {
    "token": {"token": "T"},
    "token file": {"tokenFile": "pki/token"},
    "token and its file": {"token": "T", "tokenFile": "pki/token"},
    "token and the file that is missing": {"token": "T", "tokenFile": "pki/none"},
    "basic": {"username": "me", "password": "p:ü"},
    "certificate": {"client-certificate": "pki/client.pem", "client-key": "pki/client.key"},
    "impersonation": {
        "token": "T",
        "as": "viewer",
        "as-uid": "7",
        "as-groups": ["g1", "g2"],
        "as-user-extra": {"example.com/team 50%": ["red", "blue"]},
    },
    "plugin": {"exec": {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "pki/plugin"}},
    "plugin and token": {"token": "T", "exec": {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "no"}},
    "plugin that is told": {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "pki/plugin",
            "interactiveMode": "Never",
            "provideClusterInfo": True,
        }
    },
}


def credentials_in(asked: Asked) -> tuple[object, ...]:
    told = [(name.lower(), value) for name, value in asked.headers]
    return (
        asked.line.split(" ")[1].partition("?")[0],
        asked.client,
        sorted(line for line in told if line[0].startswith(("authorization", "impersonate-", "proxy-"))),
    )


async def both_ask(server: RecordingServer, kubectl: Kubectl, file: Path, **environ: str) -> list[tuple[object, ...]]:
    """What kubectl and Carico show of themselves."""
    status, said = await kubectl.ask(file, **environ)
    assert status == 0, said
    client = Client(credentials.find(file, {"PATH": os.environ["PATH"]} | environ))
    try:
        await client.call("GET", "/version")
    finally:
        await client.close()
    return [credentials_in(asked) for asked in server.asked]


@pytest.mark.needs("go")
@pytest.mark.parametrize("tls", [True, False])
@pytest.mark.parametrize("who", USERS)
def test_carico_and_kubectl_send_the_same(
    folder: Path, authority: Authority, kubectl: Kubectl, who: str, tls: bool
) -> None:
    async def scenario() -> None:
        pair = authority.issue("server", "127.0.0.1") if tls else None
        async with RecordingServer(pair, authority.cert if who == "certificate" else None) as server:
            cluster: dict[str, Any] = {"server": f"{server.url}/prefix", "certificate-authority": "pki/ca.pem"}
            file = write_kubeconfig(folder / "config", cluster, USERS[who])
            theirs, ours = await both_ask(server, kubectl, file)
            assert ours == theirs

    asyncio.run(scenario())


@pytest.mark.needs("go")
@pytest.mark.parametrize("version", ["v1", "v1beta1"])
@pytest.mark.parametrize("told", [True, False])
def test_carico_and_kubectl_tell_a_plugin_the_same(
    folder: Path, authority: Authority, kubectl: Kubectl, version: str, told: bool
) -> None:
    async def scenario() -> None:
        async with RecordingServer(authority.issue("server", "127.0.0.1", "inside.example")) as server:
            cluster: dict[str, Any] = {
                "server": server.url,
                "certificate-authority": "pki/ca.pem",
                "tls-server-name": "inside.example",
                "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}],
            }
            plugin = {
                "apiVersion": f"client.authentication.k8s.io/{version}",
                "command": "pki/plugin",
                "interactiveMode": "IfAvailable",
                "provideClusterInfo": told,
            }
            file = write_kubeconfig(folder / "config", cluster, {"exec": plugin})
            await kubectl.ask(file)
            theirs = json.loads((folder / "pki" / "info").read_text())
            (folder / "pki" / "info").unlink()
            await credentials.find(file, {"PATH": os.environ["PATH"]}).identity()
            assert json.loads((folder / "pki" / "info").read_text()) == theirs

    asyncio.run(scenario())


@pytest.mark.needs("go")
def test_carico_and_kubectl_go_through_the_same_proxy(folder: Path, authority: Authority, kubectl: Kubectl) -> None:
    async def scenario() -> None:
        pair = authority.issue("server", "127.0.0.1")
        async with RecordingServer(pair) as server, ConnectProxy() as plain, ConnectProxy(pair) as secure:
            for proxy in (plain, secure):
                cluster = {"server": server.url, "certificate-authority": "pki/ca.pem", "proxy-url": proxy.url}
                file = write_kubeconfig(folder / "config", cluster, {"token": "T"})
                await both_ask(server, kubectl, file)
                theirs, ours = (
                    [line for line in head.split("\r\n") if not line.startswith("User-Agent")] for head in proxy.heads
                )
                assert ours == theirs
            assert len(server.asked) == 4

    asyncio.run(scenario())


REFUSED_BY_KUBECTL: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "no server": ({"server": ""}, {}),
    "port": ({"server": "https://127.0.0.1:99999"}, {}),
    "both authorities": ({"certificate-authority-data": "eA=="}, {}),
    "insecure with an authority": ({"insecure-skip-tls-verify": True}, {}),
    "authority is missing": ({"certificate-authority": "none"}, {}),
    "proxy of an unknown kind": ({"proxy-url": "gopher://p"}, {}),
    "token and name": ({}, {"token": "T", "username": "me"}),
    "groups of nobody": ({}, {"as-groups": ["g"]}),
    "certificate without its key": ({}, {"client-certificate": "pki/client.pem"}),
    "token file is missing": ({}, {"tokenFile": "none"}),
    "plugin without a version": ({}, {"exec": {"command": "pki/plugin"}}),
    "plugin without a command": ({}, {"exec": {"apiVersion": "client.authentication.k8s.io/v1"}}),
    "plugin and provider": (
        {},
        {
            "exec": {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "pki/plugin"},
            "auth-provider": {"name": "oidc"},
        },
    ),
    "provider that is no more": ({}, {"auth-provider": {"name": "azure"}}),
    "provider that never was": ({}, {"auth-provider": {"name": "mine"}}),
    "number for a token": ({}, {"token": 1}),
    "line break in a token": ({}, {"token": "a\nb"}),
}


@pytest.mark.needs("go")
@pytest.mark.parametrize("case", REFUSED_BY_KUBECTL)
def test_what_kubectl_refuses_carico_refuses(folder: Path, authority: Authority, kubectl: Kubectl, case: str) -> None:
    cluster, user = REFUSED_BY_KUBECTL[case]

    async def scenario() -> None:
        async with RecordingServer(authority.issue("server", "127.0.0.1")) as server:
            whole = {"server": server.url, "certificate-authority": "pki/ca.pem"} | cluster
            file = write_kubeconfig(folder / "config", whole, user)
            status, said = await kubectl.ask(file)
            assert status != 0, said
            with pytest.raises(CaricoError, match="config: "):
                credentials.find(file, {})
            assert not server.asked

    asyncio.run(scenario())
