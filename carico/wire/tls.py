"""Certificates of both sides of a gRPC connection, from the files in the settings; replaced files are detected."""

from __future__ import annotations

import logging

import grpc

from carico.errors import UsageError
from carico.settings import ServerTlsFiles, TlsFiles
from carico.tls import Contents, ReloadedFiles
from carico.token_claims import from_file
from carico.wire.identity import AUTHORIZATION, AnyCaller, CallerIdentity, Certificates

log = logging.getLogger(__name__)


def server_credentials(files: ServerTlsFiles, what: str) -> grpc.ServerCredentials | None:
    """None means plaintext, which must be enabled and is logged as a warning, as are callers without a certificate."""
    if files.plaintext:
        if files.token_audience:
            raise UsageError(f"{what}: token_audience needs TLS: a token sent over plaintext can be read; drop one")
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
    ways = ("client_ca", "token_audience", "allow_anonymous_clients")
    given = [way for way in ways if getattr(files, way) not in (None, "", False)]
    if len(given) > 1:
        raise UsageError(f"{what}: {' and '.join(given)} exclude each other")
    if files.token_audience:
        return
    if files.allow_anonymous_clients:
        log.warning("%s accepts callers without a certificate: any client can report for any node", what)
    elif files.client_ca is None:
        instead = "tls_ca is the authority of servers that are called; " if files.tls_ca is not None else ""
        raise UsageError(
            f"{what}: {instead}name the authority of the callers' certificates with client_ca,"
            " or the audience of their tokens with token_audience,"
            " or say allow_anonymous_clients = true on a trusted network"
        )


def _configuration(contents: Contents) -> grpc.ServerCertificateConfiguration:
    pair = (contents["tls_key"], contents["tls_cert"])
    return grpc.ssl_server_certificate_configuration([pair], contents.get("client_ca"))


class ClientTls:
    """The client's side; `credentials` are made from the current files for each connection."""

    def __init__(self, files: TlsFiles, what: str) -> None:
        self._own: ReloadedFiles | None = None
        self._token_file = files.token_file
        if files.plaintext:
            if files.token_file is not None:
                raise UsageError(f"{what}: token_file needs TLS: a token sent over plaintext can be read; drop one")
            log.warning("%s uses plaintext: any host on this network can read and forge it", what)
            return
        if files.tls_ca is None:
            raise UsageError(f"{what} needs tls_ca, or plaintext = true on a trusted network")
        if (files.tls_cert is None) != (files.tls_key is None):
            raise UsageError(f"{what} needs tls_cert and tls_key together")
        self._own = ReloadedFiles({name: getattr(files, name) for name in ("tls_ca", "tls_cert", "tls_key")}, what)
        self.metadata()  # a file that cannot be read is reported at the start

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The headers of a call, with the current token; UsageError if its file has none."""
        if self._token_file is None:
            return ()
        return ((AUTHORIZATION, f"Bearer {from_file(self._token_file)}"),)

    def credentials(self) -> grpc.ChannelCredentials | None:
        """None means plaintext."""
        if self._own is None:
            return None
        self._own.reread()
        contents = self._own.contents
        return grpc.ssl_channel_credentials(contents["tls_ca"], contents.get("tls_key"), contents.get("tls_cert"))


def identity(files: ServerTlsFiles, tokens: CallerIdentity | None = None) -> CallerIdentity:
    """`tokens` verifies those of the callers; needed with `token_audience`."""
    if files.token_audience:
        assert tokens is not None, "token_audience needs a way to review tokens"
        return tokens
    if files.client_ca is not None and not files.plaintext:
        return Certificates()
    return AnyCaller(plaintext=files.plaintext)
