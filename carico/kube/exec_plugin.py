"""Credential plugins: a program named in the kubeconfig prints a token or a client certificate.

The protocol is `client.authentication.k8s.io`, v1 and v1beta1. The program gets no terminal and no standard input.
What it writes to standard error is logged while it runs, because it may be an instruction to the user ("open this
page and enter …"), and is part of the error if it fails.

https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
"""

from __future__ import annotations

import base64
import json
import logging
import math
import os
import shutil
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from carico.errors import CredentialError, UsageError
from carico.kube.identity import Grant, bearer
from carico.kube.kubeconfig import ClusterEntry, Exec

log = logging.getLogger(__name__)

GROUP = "client.authentication.k8s.io"
VERSIONS = (f"{GROUP}/v1", f"{GROUP}/v1beta1")
CLUSTER_EXTENSION = f"{GROUP}/exec"  # a cluster's configuration for plugins
MODES = ("", "Never", "IfAvailable", "Always")
PATIENCE = 60.0  # s; the user may have to log in meanwhile
KEPT = 8  # last lines of standard error that an error message includes
LAST_WORDS = 5.0  # s to wait for the rest of a program's standard error when it has ended


@dataclass(frozen=True)
class ExecCommand:
    """A program to run, and its input."""

    at: str  # for messages: file and user
    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    api_version: str = VERSIONS[0]
    install_hint: str = ""
    cluster: Mapping[str, Any] | None = None
    title: str = ""

    @property
    def name(self) -> str:
        return self.title or f"the credential plugin {self.command}"

    def __repr__(self) -> str:
        return f"Plugin({self.command})"  # arguments and environment may hold secrets


def plugin(entry: Exec, at: str, cluster: Mapping[str, Any]) -> ExecCommand:
    """The plugin of a user, its entry checked."""
    if not entry.command:
        raise UsageError(f"{at}: exec names no command")
    if entry.api_version not in VERSIONS:
        version = f"has apiVersion {entry.api_version}" if entry.api_version else "has no apiVersion"
        raise UsageError(f"{at}: exec {version}; {' and '.join(VERSIONS)} are supported")
    if entry.interactive_mode not in MODES:
        raise UsageError(f"{at}: exec has interactiveMode {entry.interactive_mode!r}, none of {', '.join(MODES[1:])}")
    if entry.interactive_mode == "Always":
        raise UsageError(
            f"{at}: exec has interactiveMode Always, and Carico gives no plugin its standard input; "
            "use a kubeconfig with a token or a client certificate"
        )
    if not all(one.name for one in entry.env):
        raise UsageError(f"{at}: exec has a variable without a name under env")
    env = {one.name: one.value for one in entry.env}
    cluster_details = cluster if entry.provide_cluster_info else None
    hint = _printable(entry.install_hint)
    return ExecCommand(at, entry.command, tuple(entry.args), env, entry.api_version, hint, cluster_details)


def cluster_info(cluster: ClusterEntry, authority: bytes) -> dict[str, Any]:
    """What `provideClusterInfo` passes to a plugin."""
    config = next((one.extension for one in cluster.extensions if one.name == CLUSTER_EXTENSION), None)
    cluster_details = {
        "server": cluster.server,
        "tls-server-name": cluster.tls_server_name,
        "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
        "certificate-authority-data": base64.b64encode(authority).decode(),
        "proxy-url": cluster.proxy_url,
        "disable-compression": cluster.disable_compression,
        "config": config,
    }
    return {name: value for name, value in cluster_details.items() if value}


class _Status(msgspec.Struct, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: datetime | None = None


class _Answer(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    status: _Status | None = None


class ExecPlugin:
    """A source of credentials that runs a plugin."""

    slow = True

    def __init__(
        self, plugin: ExecCommand, environ: Mapping[str, str] = os.environ, patience: float = PATIENCE
    ) -> None:
        self.files: list[Path] = []
        self._plugin, self._environ, self._patience = plugin, environ, patience
        self._child: subprocess.Popen[bytes] | None = None

    def obtain(self) -> Grant:
        """Blocks while the plugin runs."""
        return _grant(self._plugin, self._run())

    def stop(self) -> None:
        if (child := self._child) is not None:
            _kill(child)

    def _run(self) -> bytes:
        """Returns the plugin's standard output."""
        stderr_lines: deque[str] = deque(maxlen=KEPT)
        readable, writable = os.pipe()
        with open(readable, "rb") as errors:
            try:
                child = self._child = self._start(writable)
            finally:
                os.close(writable)
            listener = threading.Thread(target=self._listen, args=(errors, stderr_lines), daemon=True)
            listener.start()
            try:
                printed, _ = child.communicate(timeout=self._patience)
            except subprocess.TimeoutExpired:
                raise self._error(f"gave no answer within {self._patience:.0f} s", stderr_lines) from None
            finally:
                self._child = None
                _end(child)
                listener.join(LAST_WORDS)
        if child.returncode:
            code = child.returncode
            how = f"ended with exit code {code}" if code > 0 else f"was ended by signal {-code}"
            raise self._error(how, stderr_lines)
        return printed

    def _start(self, errors: int) -> subprocess.Popen[bytes]:
        spec: dict[str, Any] = {"interactive": False}
        if self._plugin.cluster is not None:
            spec["cluster"] = self._plugin.cluster
        info = {"apiVersion": self._plugin.api_version, "kind": "ExecCredential", "spec": spec}
        environ = {**self._environ, **self._plugin.env, "KUBERNETES_EXEC_INFO": json.dumps(info)}
        try:
            # In a new session it has no terminal to wait for, and can be killed with all that it started.
            return subprocess.Popen(
                [self._program(), *self._plugin.args],
                env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError) as error:  # a null byte in an argument is a ValueError
            raise self._error(f"cannot be run ({error})", ()) from error

    def _program(self) -> str:
        """Searched for in $PATH, but not in the current directory; a command with a slash is a path already."""
        if os.sep in self._plugin.command:
            return self._plugin.command
        found = shutil.which(self._plugin.command, path=self._environ.get("PATH"))
        if found is None or not os.path.isabs(found):
            raise self._error("is not installed on this machine", ())
        return found

    def _listen(self, errors: Any, stderr_lines: deque[str]) -> None:
        with suppress(ValueError, OSError):  # another process keeps the pipe open, and the wait for it has ended
            for line in errors:
                if text := _printable(line.decode(errors="replace")).strip():
                    stderr_lines.append(text)
                    log.warning("%s wrote: %s", self._plugin.name, text)

    def _error(self, what: str, stderr_lines: deque[str] | tuple[()]) -> CredentialError:
        words = f": {' | '.join(stderr_lines)}" if stderr_lines else ""
        hint = f"; {self._plugin.install_hint}" if self._plugin.install_hint else ""
        return CredentialError(f"{self._plugin.at}: {self._plugin.name} {what}{words}{hint}")


def _kill(child: subprocess.Popen[bytes]) -> None:
    """Kills its whole process group. The PID of a child that was waited for may be reused already."""
    if child.returncode is None:
        with suppress(OSError):
            os.killpg(child.pid, signal.SIGKILL)


def _end(child: subprocess.Popen[bytes]) -> None:
    _kill(child)
    child.wait()
    if child.stdout is not None:
        child.stdout.close()


def _grant(plugin: ExecCommand, printed: bytes) -> Grant:
    where = f"{plugin.at}: {plugin.name}"
    try:
        answer = msgspec.json.decode(printed, type=_Answer)
    except msgspec.DecodeError as error:
        raise CredentialError(f"{where} printed no ExecCredential ({error})") from error
    if (answer.kind, answer.api_version) != ("ExecCredential", plugin.api_version):
        kind = f"{answer.kind} of {answer.api_version}"
        raise CredentialError(f"{where} printed an {kind}, not an ExecCredential of {plugin.api_version}")
    status = answer.status or _Status()
    certificate, key = status.client_certificate_data, status.client_key_data
    if bool(certificate) != bool(key):
        raise CredentialError(f"{where} gave {'a certificate' if certificate else 'a key'} alone, not both")
    if not status.token and not certificate:
        raise CredentialError(f"{where} gave neither a token nor a certificate")
    pair = f"{certificate}\n{key}".encode() if certificate else b""
    return Grant(bearer(status.token, where) if status.token else (), pair, _seconds(status.expiration_timestamp))


def _seconds(at: datetime | None) -> float:
    if at is None:
        return math.inf
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()


def _printable(text: str) -> str:
    """Without characters that could change the terminal it is shown on."""
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "�" for letter in text)
