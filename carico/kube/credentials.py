"""Where credentials come from: a kubeconfig, or the service account of this process's pod.

    find(None)                              as kubectl: $KUBECONFIG, the pod's service account, ~/.kube/config
    find(None, context="staging")           another context than the current one
    from_kubeconfig(Path("kubeconfig"))     this file

What a kubeconfig requires is done as kubectl does it, or rejected with a message; nothing is ignored silently.
"""

from __future__ import annotations

import base64
import importlib.util
import logging
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from carico.clock import Clock
from carico.errors import UsageError
from carico.kube import exec_plugin, impersonation, tunnel
from carico.kube.exec_plugin import ExecCommand, ExecPlugin
from carico.kube.identity import Credentials, CredentialSource, bearer
from carico.kube.kubeconfig import ContextChoice, choose, data, named_in
from carico.kube.proxy import proxy_of
from carico.kube.sources import FixedCredentials, TokenFile, WithoutPassword
from carico.kube.tls import Pem, Tls
from carico.kube.url import Url, parse

log = logging.getLogger(__name__)

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# Providers that kubectl has removed too, and their replacements.
SUCCESSORS = {"gcp": "gke-gcloud-auth-plugin", "azure": "kubelogin"}


@dataclass(frozen=True)
class Surroundings:
    """Inputs other than the kubeconfig itself."""

    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    exec_in_pod: bool = False  # run credential plugins inside a pod too
    service_account: Path = SERVICE_ACCOUNT
    clock: Clock | None = None

    @property
    def in_pod(self) -> bool:
        """By what a kubelet sets in every container. A pod that is given a kubeconfig often has no token of its own."""
        return "KUBERNETES_SERVICE_HOST" in self.environ


def find(
    kubeconfig: Path | None,
    environ: Mapping[str, str] = os.environ,
    *,
    context: str | None = None,
    exec_in_pod: bool = False,
    clock: Clock | None = None,
) -> Credentials:
    """The named file; else those of $KUBECONFIG; else the service account, if the pod has one; else ~/.kube/config."""
    around = Surroundings(environ, exec_in_pod, clock=clock)
    files, usual = [kubeconfig] if kubeconfig is not None else named_in(environ), Path.home() / ".kube" / "config"
    has_account = (around.service_account / "token").exists() or not usual.exists()
    if not files and context is None and around.in_pod and has_account:
        return in_cluster(around)
    return from_choice(choose(files or [usual], context), around)


def from_kubeconfig(path: Path, context: str | None = None, *, clock: Clock | None = None) -> Credentials:
    return from_choice(choose([path], context), Surroundings(clock=clock))


def fixed(server: str, token: str = "") -> Credentials:
    """For an http server under the caller's control: the token is sent unencrypted, on purpose."""
    return Credentials(parse(server), FixedCredentials(bearer(token, server) if token else ()))


def towards(user: Credentials, server: Url, authority: Pem | None, proxy: Url | None) -> Credentials:
    """The same user's token or certificate for another server, over TLS; `authority` signed its certificate."""
    acts_as = [value for name, value in user.headers if name == "Impersonate-User"]
    if acts_as:
        raise UsageError(f"this kubeconfig acts as {acts_as[0]!r}, which only an API server can do; use --token-file")
    if user.tls is None:  # its credentials were left out already
        return Credentials(server, FixedCredentials(), Tls(authority), proxy=proxy)
    return Credentials(server, WithoutPassword(user.source), user.tls.towards(authority), proxy=proxy)


def in_cluster(around: Surroundings) -> Credentials:
    at, folder = "the pod's service account", around.service_account
    port = around.environ.get("KUBERNETES_SERVICE_PORT", "443")
    try:
        host = around.environ["KUBERNETES_SERVICE_HOST"]
        server = parse(f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}")
    except ValueError as error:
        raise UsageError(f"$KUBERNETES_SERVICE_HOST and $KUBERNETES_SERVICE_PORT: {error}") from error
    return Credentials(
        server,
        TokenFile(folder / "token", at),
        Tls(Pem(at, file=folder / "ca.crt")),
        proxy=proxy_of(server, "", at, around.environ),
        namespace=around.environ.get("POD_NAMESPACE") or _first_line(folder / "namespace") or "default",
        clock=around.clock,
    )


def from_choice(choice: ContextChoice, around: Surroundings) -> Credentials:
    server = _server(choice)
    proxy = proxy_of(server, choice.cluster.proxy_url, choice.cluster_at, around.environ)
    tls = _tls(choice) if server.scheme == "https" else None
    source = _source(choice, tls, around)
    headers = impersonation.headers(choice.user, choice.user_at)
    if tls is None:
        headers += tunnel.credentials(proxy)
    return Credentials(
        server,
        source,
        tls,
        server_name=choice.cluster.tls_server_name,
        proxy=proxy,
        headers=headers,
        namespace=choice.namespace,
        clock=around.clock,
    )


def _server(choice: ContextChoice) -> Url:
    if not choice.cluster.server:
        raise UsageError(f"{choice.cluster_at}: names no server; write `server: https://HOST:PORT`")
    try:
        server = parse(choice.cluster.server)
    except ValueError as error:
        raise UsageError(f"{choice.cluster_at}: server cannot be used: {error}") from error
    if server.userinfo is not None:
        raise UsageError(f"{choice.cluster_at}: server holds a user name; write username and password under the user")
    return server


def _tls(choice: ContextChoice) -> Tls:
    cluster, user, at = choice.cluster, choice.user, choice.cluster_at
    authority = _pem(at, "certificate-authority", cluster.certificate_authority, cluster.certificate_authority_data)
    if cluster.insecure_skip_tls_verify:
        if authority is not None:
            raise UsageError(f"{at}: insecure-skip-tls-verify and certificate-authority exclude each other; remove one")
        log.warning(
            "%s: insecure-skip-tls-verify is set: the API server's certificate is not checked: anyone on the "
            "network path can read and change everything",
            at,
        )
    certificate = _pem(choice.user_at, "client-certificate", user.client_certificate, user.client_certificate_data)
    key = _pem(choice.user_at, "client-key", user.client_key, user.client_key_data)
    if (certificate is None) != (key is None):
        missing = "client-certificate" if certificate is None else "client-key"
        raise UsageError(f"{choice.user_at}: {missing} is missing; client-certificate and client-key go together")
    return Tls(authority, certificate, key, insecure=cluster.insecure_skip_tls_verify)


def _pem(at: str, name: str, file: str, encoded: str) -> Pem | None:
    if file and encoded:
        raise UsageError(f"{at}: has both {name} and {name}-data, and kubectl takes only one; remove one")
    if encoded:
        return Pem(f"{at}: {name}-data", data(encoded, f"{at}: {name}-data"))
    return Pem(f"{at}: {name}", file=Path(file)) if file else None


def _source(choice: ContextChoice, tls: Tls | None, around: Surroundings) -> CredentialSource:
    """A token or a user name takes precedence over a plugin, as in kubectl."""
    user, at = choice.user, choice.user_at
    token, basic = user.token or user.token_file, user.username or user.password
    certificate = user.client_certificate or user.client_certificate_data
    if token and basic:
        raise UsageError(f"{at}: has both a token and a user name, and kubectl takes only one; remove one")
    if user.exec is not None and user.auth_provider is not None:
        raise UsageError(f"{at}: has both exec and auth-provider, and kubectl takes only one; remove one")
    if tls is None:
        if token or basic or certificate or user.exec or user.auth_provider:
            log.warning(
                "%s: its server is not https: no credentials are sent, as kubectl sends none", choice.cluster_at
            )
        return FixedCredentials()
    if user.token_file:
        return TokenFile(Path(user.token_file), at, user.token)
    if token:
        return FixedCredentials(bearer(token, at))
    if basic:
        pair = base64.b64encode(f"{user.username}:{user.password}".encode()).decode()
        return FixedCredentials((("Authorization", f"Basic {pair}"),))
    if user.auth_provider is not None:
        return _auth_provider(choice, around)
    if user.exec is not None and not certificate:
        return _exec(choice, tls, around)
    return FixedCredentials()


def _exec(choice: ContextChoice, tls: Tls, around: Surroundings) -> CredentialSource:
    assert choice.user.exec is not None
    cluster_details = exec_plugin.cluster_info(choice.cluster, tls.authority())
    plugin = exec_plugin.plugin(choice.user.exec, choice.user_at, cluster_details)
    if around.in_pod and not around.exec_in_pod:
        raise UsageError(
            f"{choice.user_at}: would run {plugin.command} inside this pod; use the pod's service account, "
            "or allow it with --exec-in-pod"
        )
    return ExecPlugin(plugin, around.environ)


def _auth_provider(choice: ContextChoice, around: Surroundings) -> CredentialSource:
    """Through the package `kubernetes`, in a separate process: it takes 40 MB that are needed once an hour."""
    assert choice.user.auth_provider is not None
    name = choice.user.auth_provider.name
    if name != "oidc":
        instead = SUCCESSORS.get(name, "its credential plugin")
        raise UsageError(
            f"{choice.user_at}: auth-provider {name!r} is not supported, by kubectl neither; use {instead} under exec"
        )
    if importlib.util.find_spec("kubernetes") is None:
        raise UsageError(
            f"{choice.user_at}: auth-provider 'oidc' needs the package kubernetes: pip install 'carico[kubernetes]'; "
            "or use the credential plugin kubelogin under exec"
        )
    args = ("-m", "carico.kube.auth_provider", choice.context, *map(str, choice.files))
    title = "the auth-provider oidc"
    return ExecPlugin(ExecCommand(choice.user_at, sys.executable, args, title=title), around.environ)


def _first_line(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
