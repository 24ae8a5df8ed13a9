"""TLS of an HTTP server whose certificate files may be replaced while it runs."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Mapping
from pathlib import Path

from carico.tls import ReloadedFiles

OWN = ("tls_cert", "tls_key")


def server_context(files: Mapping[str, Path], what: str) -> ssl.SSLContext:
    """From tls_cert and tls_key; every other file holds CAs, and if there is one, only their clients are accepted.

    The keys are the names of the settings; `what` names the server in the log.
    """
    reloaded = ReloadedFiles(files, what)
    base = _made(files)
    present = [base]

    def look(socket: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        """Called before the server sends anything at a handshake, also where the client names no host."""
        if reloaded.reread():
            with contextlib.suppress(OSError):  # replaced once more meanwhile: the next handshake detects that
                present[0] = _made(files)
        if present[0] is not base:
            socket.context = present[0]

    base.sni_callback = look
    return base


def _made(files: Mapping[str, Path]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    context.load_cert_chain(files["tls_cert"], files["tls_key"])
    authorities = [file for setting, file in files.items() if setting not in OWN]
    for file in authorities:
        context.load_verify_locations(file)
    if authorities:
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # CAs of clusters often lack what it demands
        # A resumed session is not verified again: it would outlive a CA that was removed. Resumption can be disabled
        # in TLS 1.3 only, which every kube-scheduler supports.
        context.minimum_version, context.num_tickets = ssl.TLSVersion.TLSv1_3, 0
    return context
