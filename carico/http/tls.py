"""TLS of a server whose certificate files may be replaced while it runs."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

from carico.errors import UsageError

log = logging.getLogger(__name__)


def server_context(cert: Path, key: Path, client_ca: Path | None = None) -> ssl.SSLContext:
    """With `client_ca` only clients are let in whose certificate it signed. New files are noticed at a handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(cert, key)
        if client_ca is not None:
            context.load_verify_locations(client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # authorities of clusters often lack what it demands
    except OSError as error:  # ssl's own errors are such
        files = ", ".join(str(file) for file in (cert, key, client_ca) if file is not None)
        raise UsageError(f"these certificates cannot be used ({files}): {error}") from error
    _reload(context, cert, key)
    return context


def _reload(context: ssl.SSLContext, cert: Path, key: Path) -> None:
    loaded = [_stamps(cert, key)]

    def look(_socket: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        """The handshake that finds new files still has the old certificate; the next one has the new."""
        try:
            found = _stamps(cert, key)
            if found != loaded[0]:
                loaded[0] = found
                context.load_cert_chain(cert, key)
        except OSError as error:
            log.warning("the certificate was not read again: %s", error)

    context.sni_callback = look


def _stamps(*files: Path) -> list[int]:
    return [file.stat().st_mtime_ns for file in files]
