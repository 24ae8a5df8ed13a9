"""What a client sends to the API server, named as kube-apiserver names it for RBAC, and a network that records it."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from carico.errors import HttpError
from carico.kube.calls import ApiCall
from carico.kube.http import Response, ResponseHead
from carico.kube.identity import Credentials
from carico.kube.network import NetworkConnection, over_sockets

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}


class ApiRequestName(NamedTuple):
    verb: str
    group: str
    resource: str
    subresource: str = ""


def name_of_call(call: ApiCall) -> ApiRequestName:
    return ApiRequestName(call.verb, call.resource.group, call.resource.plural, call.subresource)


def name_of(method: str, path: str) -> ApiRequestName | None:
    """As in RequestInfoFactory.NewRequestInfo of k8s.io/apiserver; None for a path without a resource.

    >>> name_of("GET", "/api/v1/pods?watch=1"), name_of("DELETE", "/api/v1/namespaces/a/pods/p")[0]
    (ApiRequestName(verb='watch', group='', resource='pods', subresource=''), 'delete')
    """
    url = urlsplit(path)
    parts = url.path.strip("/").split("/")
    if parts[0] not in ("api", "apis"):
        return None
    group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        rest = rest[2:]
    resource, name, sub = [*rest, "", ""][:3]
    if method == "GET":
        watches = parse_qs(url.query).get("watch", ["0"])[0] in ("1", "true")
        verb = "get" if name else "watch" if watches else "list"
    elif method == "DELETE":
        verb = "delete" if name else "deletecollection"
    else:
        verb = _VERBS[method]
    return ApiRequestName(verb, group, resource, sub)


class RecordingNetwork:
    """Real connections; `sent` has the request lines. The response to the next request of `lose` is lost."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str]] = []  # method and path
        self.lose: ApiRequestName | None = None

    async def connect(
        self, where: Credentials, tls: ssl.SSLContext | None, session: ssl.SSLSession | None, patience: float
    ) -> NetworkConnection:
        return _Recorded(await over_sockets(where, tls, session, patience), self)

    def names(self) -> set[ApiRequestName]:
        named = {name_of(method, path) for method, path in self.sent}
        return {name for name in named if name is not None}


class _Recorded:
    def __init__(self, inner: NetworkConnection, network: RecordingNetwork) -> None:
        self._inner, self._network = inner, network

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def _note(self, message: bytes) -> ApiRequestName | None:
        method, path, _ = message.split(b" ", 2)
        self._network.sent.append((method.decode(), path.decode()))
        return name_of(method.decode(), path.decode())

    async def request(self, message: bytes) -> Response:
        name = self._note(message)
        response = await self._inner.request(message)
        if name is not None and name == self._network.lose:
            self._network.lose = None
            raise HttpError("the connection broke after the request was sent")
        return response

    async def stream(self, message: bytes) -> tuple[ResponseHead, AsyncIterator[bytes]]:
        self._note(message)
        return await self._inner.stream(message)
