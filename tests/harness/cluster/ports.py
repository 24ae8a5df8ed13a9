"""Free ports, and health endpoints on them."""

from __future__ import annotations

import http.client
import random
import socket

# Below the kernel's ephemeral ports: no outgoing connection takes one by chance.
PORTS = range(20_000, 32_000)
_taken: set[int] = set()  # by this process: six ports of a cluster are chosen before the first of them is listened on


def free_port() -> int:
    """A loopback port on which nothing listens now, another one at every call."""
    while True:
        port = random.choice(PORTS)
        if port in _taken:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            _taken.add(port)
            return port


def answers_http(port: int, path: str) -> bool:
    """Whether a health endpoint on the loopback answers 200."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
