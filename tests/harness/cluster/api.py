"""A small client for the API server with only the standard library: JSON in and out, one connection per thread."""

from __future__ import annotations

import base64
import copy
import http.client
import json
import ssl
import tempfile
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

Object = dict[str, Any]
TIMEOUT = 30.0  # seconds


class ApiError(OSError):
    """The API server rejected the request; `status` is the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Api:
    """Requests with the identity of a kubeconfig."""

    def __init__(self, kubeconfig: Path) -> None:
        config = json.loads(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.address = urlsplit(cluster["server"]).netloc
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self._tls = ssl.create_default_context(cadata=authority)
        self._headers = {"Authorization": f"Bearer {user['token']}"} if "token" in user else {}
        if "client-certificate-data" in user:
            self._load_certificate(user)
        self._local = threading.local()
        self._connections: list[http.client.HTTPSConnection] = []

    def _load_certificate(self, user: Object) -> None:
        with tempfile.NamedTemporaryFile() as pair:  # Python's ssl loads a client certificate only from a file
            pair.write(base64.b64decode(user["client-certificate-data"]))
            pair.write(base64.b64decode(user["client-key-data"]))
            pair.flush()
            self._tls.load_cert_chain(pair.name)

    def close(self) -> None:
        """Close the connections of all threads."""
        for connection in self._connections:
            connection.close()

    def get(self, path: str) -> Object:
        return self._request("GET", path)

    def post(self, path: str, body: Object) -> Object:
        return self._request("POST", path, body)

    def patch(self, path: str, body: Object) -> Object:
        """JSON merge patch."""
        return self._request("PATCH", path, body, "application/merge-patch+json")

    def delete(self, path: str) -> Object:
        return self._request("DELETE", path)

    def is_ready(self) -> bool:
        """Whether the API server reports that it is ready."""
        try:
            return self._send("GET", "/readyz", None, "application/json")[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def post_all(self, path: str, bodies: Iterable[Object], connections: int = 8) -> None:
        """Create many objects over several connections."""
        own = copy.copy(self)  # its threads end here, and so do its connections
        own._local, own._connections = threading.local(), []
        try:
            with ThreadPoolExecutor(connections) as pool:
                list(pool.map(lambda body: own.post(path, body), bodies))
        finally:
            own.close()

    def _request(self, method: str, path: str, body: Object | None = None, kind: str = "application/json") -> Object:
        try:
            status, content = self._send(method, path, body, kind)
        except http.client.HTTPException as error:
            raise ApiError(0, f"{method} {path}: {error!r}") from error
        if status >= 400:
            raise ApiError(status, f"{method} {path}: {content.decode(errors='replace')[:500]}")
        answer: Object = json.loads(content)
        return answer

    def _send(
        self, method: str, path: str, body: Object | None, kind: str, accept: str = "application/json"
    ) -> tuple[int, bytes]:
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = http.client.HTTPSConnection(self.address, context=self._tls, timeout=TIMEOUT)
            self._local.connection = connection
            self._connections.append(connection)
        payload = json.dumps(body).encode() if body is not None else None
        try:
            return self._once(connection, method, path, payload, kind, accept)
        except (ConnectionError, ssl.SSLEOFError):  # idle for too long: the server closed the connection
            return self._once(connection, method, path, payload, kind, accept)

    def _once(
        self,
        connection: http.client.HTTPSConnection,
        method: str,
        path: str,
        payload: bytes | None,
        kind: str,
        accept: str,
    ) -> tuple[int, bytes]:
        try:
            connection.request(method, path, payload, self._headers | {"Content-Type": kind, "Accept": accept})
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            connection.close()  # the next request opens a new one
            raise
