"""Who we are to the API server: a kubeconfig file, or the service account of the pod that we run in.

Tokens in files are read again every minute, because the kubelet replaces them; those of a credential plugin (`exec`)
when they expire. Everything else is read once.
"""

from __future__ import annotations

import base64
import json
import os
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from carico.errors import CaricoError, UsageError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_EVERY = 60.0  # s between two readings of a token file


@dataclass
class Credentials:
    """Where the API server is and how to speak to it."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    token: Callable[[], str | None]
    prefix: str = ""  # path in front of every request, of servers behind a proxy
    server_name: str | None = None

    @property
    def authority(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def find(kubeconfig: Path | None, environ: Mapping[str, str] = os.environ) -> Credentials:
    """The named file; else $KUBECONFIG; else the service account; else ~/.kube/config."""
    if kubeconfig is None and (first := environ.get("KUBECONFIG", "").split(os.pathsep)[0]):
        kubeconfig = Path(first)
    if kubeconfig is None and "KUBERNETES_SERVICE_HOST" in environ:
        return in_cluster(environ)
    return from_kubeconfig(kubeconfig or Path.home() / ".kube" / "config")


def in_cluster(environ: Mapping[str, str], folder: Path = SERVICE_ACCOUNT) -> Credentials:
    host, port = environ["KUBERNETES_SERVICE_HOST"], int(environ.get("KUBERNETES_SERVICE_PORT", "443"))
    tls = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    return Credentials(host, port, tls, token_file(folder / "token"))


def from_kubeconfig(path: Path) -> Credentials:
    try:
        config = yaml.safe_load(path.read_text())
        context = _named(config, "contexts", config["current-context"])["context"]
        cluster = _named(config, "clusters", context["cluster"])["cluster"]
        user = _named(config, "users", context["user"])["user"] if context.get("user") else {}
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}); name a kubeconfig with --kubeconfig") from error
    except (yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path}: is not a usable kubeconfig (no {error})") from error
    server = urlsplit(cluster["server"])
    try:
        tls = _tls(cluster, user or {}, path.parent) if server.scheme == "https" else None
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise UsageError(f"{path}: its certificates or key cannot be used: {error}") from error
    port = server.port or (443 if tls else 80)
    token = _token(user or {}, path.parent)
    return Credentials(server.hostname or "", port, tls, token, server.path.rstrip("/"), cluster.get("tls-server-name"))


def token_file(path: Path, clock: Callable[[], float] = time.monotonic) -> Callable[[], str | None]:
    """Reads the token anew when the last reading is a minute old; keeps the old one if the file is away."""
    read_at, token = float("-inf"), None

    def current() -> str | None:
        nonlocal read_at, token
        if clock() - read_at >= TOKEN_EVERY:
            try:
                token = path.read_text().strip()
            except OSError as error:
                if token is None:
                    raise CaricoError(f"{path}: the token cannot be read ({error.strerror})") from error
            read_at = clock()
        return token

    return current


def _named(config: dict[str, Any], section: str, name: str) -> dict[str, Any]:
    for entry in config[section]:
        if entry["name"] == name:
            return dict(entry)
    raise KeyError(f"entry {name!r} under {section}")


def _token(user: dict[str, Any], folder: Path) -> Callable[[], str | None]:
    if "exec" in user:
        return _exec_token(user["exec"])
    if "tokenFile" in user:
        return token_file(folder / user["tokenFile"])
    token = user.get("token")
    return lambda: token


def _exec_token(plugin: dict[str, Any]) -> Callable[[], str | None]:
    """Runs a credential plugin (client.authentication.k8s.io) whenever its token is about to expire."""
    token, until = None, 0.0

    def current() -> str | None:
        nonlocal token, until
        if time.time() >= until:
            status = _run_plugin(plugin)
            token = status.get("token")
            end = status.get("expirationTimestamp")
            until = datetime.fromisoformat(end).timestamp() - 60 if end else float("inf")
        return token

    return current


def _run_plugin(plugin: dict[str, Any]) -> dict[str, Any]:
    environ = os.environ | {pair["name"]: pair["value"] for pair in plugin.get("env") or []}
    info = {"apiVersion": plugin["apiVersion"], "kind": "ExecCredential", "spec": {"interactive": False}}
    command = [plugin["command"], *(plugin.get("args") or [])]
    try:
        done = subprocess.run(
            command, env=environ | {"KUBERNETES_EXEC_INFO": json.dumps(info)}, capture_output=True, timeout=30
        )
        return dict(json.loads(done.stdout)["status"])
    except (OSError, subprocess.SubprocessError, ValueError, KeyError) as error:
        raise CaricoError(f"the credential plugin {command[0]} of the kubeconfig failed: {error}") from error


def _tls(cluster: dict[str, Any], user: dict[str, Any], folder: Path) -> ssl.SSLContext:
    authority = _content(cluster, "certificate-authority", folder)
    context = ssl.create_default_context(cadata=authority.decode() if authority else None)
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    certificate, key = _content(user, "client-certificate", folder), _content(user, "client-key", folder)
    if certificate and key:
        # Python loads certificates from files only: one that nobody else may read, gone as soon as it is loaded.
        with tempfile.NamedTemporaryFile() as file:
            file.write(certificate + b"\n" + key)
            file.flush()
            context.load_cert_chain(file.name)
    return context


def _content(entry: dict[str, Any], name: str, folder: Path) -> bytes | None:
    if data := entry.get(f"{name}-data"):
        return base64.b64decode(data)
    if file := entry.get(name):
        return (folder / str(file)).read_bytes()
    return None
