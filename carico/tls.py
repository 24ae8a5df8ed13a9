"""Certificate files that may be replaced at any time, and TLS towards servers whose certificates are somebody else's.

Files are read again at each connection, so that whoever replaces them (cert-manager, a kubelet) need not restart
anything. Files that cannot be used, for instance a certificate whose key has not been replaced yet, are logged once and
left until the next connection; what was read before goes on being used.
"""

from __future__ import annotations

import logging
import ssl
import threading
from collections.abc import Mapping
from pathlib import Path

from carico.errors import UsageError

log = logging.getLogger(__name__)

Contents = dict[str, bytes]  # by the name of the setting


def lenient_context(*, cafile: str | None = None, cadata: str | None = None) -> ssl.SSLContext:
    """A client's context that checks chain, expiry and host name, and no more: as client-go and gRPC do.

    Since Python 3.13 the default also demands every extension of RFC 5280. The authorities of many clusters, those of
    EKS among them, were made without key identifiers.
    """
    context = ssl.create_default_context(cafile=cafile, cadata=cadata)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


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
        for setting in self._paths.keys() - {"tls_cert", "tls_key"}:
            try:
                context.load_verify_locations(self._paths[setting])
            except (OSError, ValueError) as error:
                raise UsageError(f"{setting}: {self._paths[setting]} holds no certificate ({error})") from error


def _content(path: Path, setting: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{setting}: cannot read {path} ({error.strerror})") from error


def _no_password() -> str:
    """Nobody sits at a terminal to be asked for one."""
    raise ValueError("the key is encrypted")
