"""The certificates of a server and of nodes, below one authority."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from carico.settings import ServerTlsFiles, TlsFiles
from carico.wire.certificates import Authority


class Tls(NamedTuple):
    server: ServerTlsFiles  # demands client certificates
    node: Callable[[str], TlsFiles]


def new_tls(folder: Path) -> Tls:
    authority = Authority(folder)
    server = authority.issue("carico:aggregator", "localhost", "127.0.0.1")

    def node(name: str) -> TlsFiles:
        pair = authority.issue_node(name)
        return TlsFiles(tls_ca=authority.cert, tls_cert=pair.cert, tls_key=pair.key)

    return Tls(ServerTlsFiles(client_ca=authority.cert, tls_cert=server.cert, tls_key=server.key), node)
