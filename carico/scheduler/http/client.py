"""A client of a scheduler's pages: plain HTTP on this host, TLS with a token elsewhere.

The token is that of --token-file, else the kubeconfig's. It is sent over TLS only, and only to a server that the user
named, by its address or by its authority. Redirects are not followed.
"""

from __future__ import annotations

import argparse
import os
import ssl
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Self

from carico.errors import CaricoError, CredentialError, HttpError, UsageError
from carico.http.address import is_loopback
from carico.kube import credentials, flags, tunnel
from carico.kube.client import Client, is_good
from carico.kube.http import Response
from carico.kube.identity import Credentials
from carico.kube.proxy import proxy_of
from carico.kube.sources import FixedCredentials, TokenFile
from carico.kube.tls import Pem, Tls
from carico.kube.url import Url, parse

CA_VARIABLE, TOKEN_VARIABLE = "CARICO_SERVER_CA", "CARICO_TOKEN_FILE"
PATIENCE = 30.0  # s: timeout of an answer
FIXES = {
    HTTPStatus.UNAUTHORIZED: "use a kubeconfig with a token, or --token-file; `kubectl create token NAME` makes one",
    HTTPStatus.FORBIDDEN: "a ClusterRole with nonResourceURLs allows it",
}


def add_flags(group: argparse._ArgumentGroup) -> None:
    """For servers beyond loopback."""
    ca = f"PEM file with the authority of an https server (default: ${CA_VARIABLE}, or the system's authorities)"
    token = f"file with the bearer token for an https server (default: ${TOKEN_VARIABLE}, or the kubeconfig's token)"
    group.add_argument("--server-ca", type=Path, metavar="FILE", help=ca)
    group.add_argument("--token-file", type=Path, metavar="FILE", help=token)


class PageClient:
    """A connection to one scheduler while its context lasts."""

    def __init__(self, url: str, identity: Credentials, hint: str = "check --server") -> None:
        """`hint` is the advice in the error if there is no answer."""
        self.url, self._hint = url, hint
        self._client = Client(identity, connections=1, patience=PATIENCE, agent="carico")

    async def fetch(self, path: str, body: bytes | None = None) -> bytes:
        """The body of the answer; any status but success is an error with the server's text."""
        answer = await self.get(path) if body is None else await self._exchange("POST", path, body)
        if not is_good(answer.status):
            raise CaricoError(f"{self.url}: {error_text(answer)}")
        return answer.body

    async def get(self, path: str) -> Response:
        """The answer, whatever its status."""
        return await self._exchange("GET", path, b"")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def _exchange(self, method: str, path: str, body: bytes) -> Response:
        try:
            return await self._client.exchange(method, path, body)
        except CredentialError as error:
            raise CaricoError(f"{self.url}: there is no token for it: {error}") from error
        except (HttpError, OSError) as error:
            raise CaricoError(f"{self.url}: no scheduler answers there ({_why(error)}); {self._hint}") from error


def error_text(answer: Response) -> str:
    """The error text of an answer, with a fix where one is known."""
    if answer.status < HTTPStatus.BAD_REQUEST:
        return f"it answers {answer.status}, and no redirect is followed; check --server"
    text = answer.body.decode(errors="replace").strip() or f"it answers {answer.status}"
    return f"{text}; {FIXES[HTTPStatus(answer.status)]}" if answer.status in FIXES else text


def plain(url: str, hint: str = "check --server") -> PageClient:
    """For a server on this host, which needs no credentials."""
    return PageClient(url, Credentials(parse(url), FixedCredentials()), hint)


def named(
    url: str, args: argparse.Namespace, environ: Mapping[str, str] = os.environ, hint: str = "check --server"
) -> PageClient:
    """For the server that the user named."""
    server = parse(url)
    if server.scheme == "https":
        return PageClient(url, _with_token(server, args, environ), hint)
    if args.server_ca or args.token_file:
        flag = "--server-ca" if args.server_ca else "--token-file"
        raise UsageError(f"{flag} is for a server with https, and --server is {url}")
    proxy = proxy_of(server, "", "", environ)
    found = Credentials(server, FixedCredentials(), proxy=proxy, headers=tunnel.credentials(proxy))
    elsewhere = "" if is_loopback(server.host) else "; a scheduler beyond loopback uses https"
    return PageClient(url, found, f"check --server{elsewhere}")


def _with_token(server: Url, args: argparse.Namespace, environ: Mapping[str, str]) -> Credentials:
    proxy = proxy_of(server, "", "", environ)
    ca, token = _file(args.server_ca, CA_VARIABLE, environ), _file(args.token_file, TOKEN_VARIABLE, environ)
    authority = Pem("--server-ca" if args.server_ca else f"${CA_VARIABLE}", file=ca) if ca else None
    if token:
        source = TokenFile(token, "--token-file" if args.token_file else f"${TOKEN_VARIABLE}")
        return Credentials(server, source, Tls(authority), proxy=proxy)
    user = _user(args)
    if user is None:
        return Credentials(server, FixedCredentials(), Tls(authority), proxy=proxy)
    return credentials.towards(user, server, authority, proxy)


def _file(flag: Path | None, variable: str, environ: Mapping[str, str]) -> Path | None:
    return flag or (Path(environ[variable]) if environ.get(variable) else None)


def _user(args: argparse.Namespace) -> Credentials | None:
    try:
        return flags.find(args)
    except UsageError:
        if args.kubeconfig or args.context:
            raise
        return None  # without any kubeconfig: the server rejects the request with a reason


def _why(error: Exception) -> str:
    """The cause of the failure, without the client's text about API servers."""
    cause = error.__cause__ if isinstance(error.__cause__, (OSError, HttpError)) else error
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {cause.verify_message}; name its authority with --server-ca"
    if isinstance(cause, ssl.SSLError):
        return f"TLS: {(cause.reason or str(cause)).replace('_', ' ').lower()}"
    if isinstance(cause, TimeoutError):
        return "no answer in time"
    if isinstance(cause, ConnectionError) and cause.errno:
        return os.strerror(cause.errno).lower()  # asyncio's own text describes a call
    return getattr(cause, "strerror", None) or str(cause)
