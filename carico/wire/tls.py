"""Certificates of both sides of a connection, from the files that the settings name."""

from __future__ import annotations

import logging
from pathlib import Path

import grpc

from carico.errors import UsageError
from carico.settings import TlsFiles
from carico.wire.identity import Anyone, Certificates, Identity

log = logging.getLogger(__name__)


def server_credentials(files: TlsFiles, what: str) -> grpc.ServerCredentials | None:
    """None means plaintext, which has to be asked for and is warned about."""
    if files.plaintext:
        log.warning("%s speaks plaintext: anybody on this network can read and forge it", what)
        return None
    if files.tls_cert is None or files.tls_key is None:
        raise UsageError(f"{what} needs tls_cert and tls_key, or plaintext = true on a trusted network")
    pair = (_read(files.tls_key, "tls_key"), _read(files.tls_cert, "tls_cert"))
    authority = None if files.tls_ca is None else _read(files.tls_ca, "tls_ca")
    return grpc.ssl_server_credentials([pair], authority, require_client_auth=authority is not None)


def client_credentials(files: TlsFiles, what: str) -> grpc.ChannelCredentials | None:
    """None means plaintext, which has to be asked for and is warned about."""
    if files.plaintext:
        log.warning("%s speaks plaintext: anybody on this network can read and forge it", what)
        return None
    if files.tls_ca is None:
        raise UsageError(f"{what} needs tls_ca, or plaintext = true on a trusted network")
    if (files.tls_cert is None) != (files.tls_key is None):
        raise UsageError(f"{what} needs tls_cert and tls_key together")
    key = None if files.tls_key is None else _read(files.tls_key, "tls_key")
    cert = None if files.tls_cert is None else _read(files.tls_cert, "tls_cert")
    return grpc.ssl_channel_credentials(_read(files.tls_ca, "tls_ca"), key, cert)


def identity(files: TlsFiles) -> Identity:
    """With an authority for client certificates they say who calls; without one nobody can."""
    return Certificates() if files.tls_ca is not None and not files.plaintext else Anyone()


def _read(path: Path, knob: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{knob}: cannot read {path} ({error.strerror})") from error
