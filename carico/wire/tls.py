"""Certificates of both sides of a gRPC connection, from the files in the settings; replaced files are detected."""

from __future__ import annotations

import logging

import grpc

from carico.errors import UsageError
from carico.settings import ServerTlsFiles, TlsFiles
from carico.tls import Contents, ReloadedFiles
from carico.wire.identity import AnyCaller, CallerIdentity, Certificates

log = logging.getLogger(__name__)


def server_credentials(files: ServerTlsFiles, what: str) -> grpc.ServerCredentials | None:
    """None means plaintext, which must be enabled and is logged as a warning, as are callers without a certificate."""
    if files.plaintext:
        log.warning("%s uses plaintext: any host on this network can read and forge it", what)
        return None
    if files.tls_cert is None or files.tls_key is None:
        raise UsageError(f"{what} needs tls_cert and tls_key, or plaintext = true on a trusted network")
    _check_who_may_call(files, what)
    own = ReloadedFiles({name: getattr(files, name) for name in ("tls_cert", "tls_key", "client_ca")}, what)

    def newer() -> grpc.ServerCertificateConfiguration | None:
        return _configuration(own.contents) if own.reread() else None

    return grpc.dynamic_ssl_server_credentials(
        _configuration(own.contents),
        newer,  # type: ignore[arg-type]  # None, for no change, is missing in the stubs
        require_client_authentication=files.client_ca is not None,
    )


def _check_who_may_call(files: ServerTlsFiles, what: str) -> None:
    if files.client_ca is not None and files.allow_anonymous_clients:
        raise UsageError(f"{what}: client_ca and allow_anonymous_clients exclude each other")
    if files.allow_anonymous_clients:
        log.warning("%s accepts callers without a certificate: any client can report for any node", what)
    elif files.client_ca is None:
        instead = "tls_ca is the authority of servers that are called; " if files.tls_ca is not None else ""
        raise UsageError(
            f"{what}: {instead}name the authority of the callers' certificates with client_ca,"
            " or say allow_anonymous_clients = true on a trusted network"
        )


def _configuration(contents: Contents) -> grpc.ServerCertificateConfiguration:
    pair = (contents["tls_key"], contents["tls_cert"])
    return grpc.ssl_server_certificate_configuration([pair], contents.get("client_ca"))


class ClientTls:
    """The client's side; `credentials` are made from the current files for each connection."""

    def __init__(self, files: TlsFiles, what: str) -> None:
        self._own: ReloadedFiles | None = None
        if files.plaintext:
            log.warning("%s uses plaintext: any host on this network can read and forge it", what)
            return
        if files.tls_ca is None:
            raise UsageError(f"{what} needs tls_ca, or plaintext = true on a trusted network")
        if (files.tls_cert is None) != (files.tls_key is None):
            raise UsageError(f"{what} needs tls_cert and tls_key together")
        self._own = ReloadedFiles({name: getattr(files, name) for name in ("tls_ca", "tls_cert", "tls_key")}, what)

    def credentials(self) -> grpc.ChannelCredentials | None:
        """None means plaintext."""
        if self._own is None:
            return None
        self._own.reread()
        contents = self._own.contents
        return grpc.ssl_channel_credentials(contents["tls_ca"], contents.get("tls_key"), contents.get("tls_cert"))


def identity(files: ServerTlsFiles) -> CallerIdentity:
    """With a CA for client certificates these identify the caller; without one all callers are unauthenticated."""
    if files.client_ca is not None and not files.plaintext:
        return Certificates()
    return AnyCaller(is_replica=files.plaintext)
