"""Certificates of both sides of a connection, from the files that the settings name.

The files are read again at each connection, so that whoever replaces them (cert-manager, a kubelet) need not restart
anything. Files that cannot be used, for instance a certificate whose key has not been replaced yet, are logged once and
left until the next connection; what was read before goes on being used.
"""

from __future__ import annotations

import logging
import ssl
import threading
from collections.abc import Mapping
from pathlib import Path

import grpc

from carico.errors import UsageError
from carico.settings import ServerTlsFiles, TlsFiles
from carico.wire.identity import Anyone, Certificates, Identity

log = logging.getLogger(__name__)

Contents = dict[str, bytes]  # by the name of the setting


class Reloaded:
    """The contents of some files, as they were when all of them could last be used."""

    def __init__(self, paths: Mapping[str, Path | None], what: str) -> None:
        self._paths = {setting: path for setting, path in paths.items() if path is not None}
        self._what = what
        self._turn = threading.Lock()  # gRPC asks on threads of its own
        self._complaint = ""
        self.contents = self._read()

    def reread(self) -> bool:
        """Whether `contents` has changed."""
        with self._turn:
            try:
                found = self._read(known=self.contents)
            except UsageError as error:
                if str(error) != self._complaint:
                    log.warning("%s goes on with the certificates that it has: %s", self._what, error)
                self._complaint = str(error)
                return False
            self._complaint = ""
            changed = found != self.contents
            if changed:
                log.info("%s has new certificates", self._what)
                self.contents = found
            return changed

    def _read(self, known: Contents | None = None) -> Contents:
        found = {setting: _content(path, setting) for setting, path in self._paths.items()}
        if found != known:
            self._check()
        return found

    def _check(self) -> None:
        """That a key belongs to its certificate, and that an authority is one."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            if "tls_cert" in self._paths:
                context.load_cert_chain(self._paths["tls_cert"], self._paths.get("tls_key"), password=_no_password)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise UsageError(f"tls_cert and tls_key do not fit together or are no PEM files: {error}") from error
        for setting in self._paths.keys() & {"tls_ca", "client_ca"}:
            try:
                context.load_verify_locations(self._paths[setting])
            except (OSError, ValueError) as error:
                raise UsageError(f"{setting}: {self._paths[setting]} holds no certificate ({error})") from error


def server_credentials(files: ServerTlsFiles, what: str) -> grpc.ServerCredentials | None:
    """None means plaintext, which has to be asked for and is warned about, as are callers without a certificate."""
    if files.plaintext:
        log.warning("%s speaks plaintext: anybody on this network can read and forge it", what)
        return None
    if files.tls_cert is None or files.tls_key is None:
        raise UsageError(f"{what} needs tls_cert and tls_key, or plaintext = true on a trusted network")
    _check_who_may_call(files, what)
    own = Reloaded({name: getattr(files, name) for name in ("tls_cert", "tls_key", "client_ca")}, what)

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
        log.warning("%s lets in callers without a certificate: anybody can speak for any node", what)
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
    """The calling side; `credentials` are made anew from the files for each connection."""

    def __init__(self, files: TlsFiles, what: str) -> None:
        self._own: Reloaded | None = None
        if files.plaintext:
            log.warning("%s speaks plaintext: anybody on this network can read and forge it", what)
            return
        if files.tls_ca is None:
            raise UsageError(f"{what} needs tls_ca, or plaintext = true on a trusted network")
        if (files.tls_cert is None) != (files.tls_key is None):
            raise UsageError(f"{what} needs tls_cert and tls_key together")
        self._own = Reloaded({name: getattr(files, name) for name in ("tls_ca", "tls_cert", "tls_key")}, what)

    def credentials(self) -> grpc.ChannelCredentials | None:
        """None means plaintext."""
        if self._own is None:
            return None
        self._own.reread()
        contents = self._own.contents
        return grpc.ssl_channel_credentials(contents["tls_ca"], contents.get("tls_key"), contents.get("tls_cert"))


def identity(files: ServerTlsFiles) -> Identity:
    """With an authority for client certificates they say who calls; without one nobody can."""
    return Certificates() if files.client_ca is not None and not files.plaintext else Anyone()


def _content(path: Path, setting: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{setting}: cannot read {path} ({error.strerror})") from error


def _no_password() -> str:
    """Nobody sits at a terminal to be asked for one."""
    raise ValueError("the key is encrypted")
