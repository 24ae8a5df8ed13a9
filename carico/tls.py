"""Certificate files that may be replaced at any time, and TLS contexts for servers that Carico does not configure.

Files are read again at each connection, so that a replacement (by cert-manager or a kubelet) needs no restart. Files
that cannot be used, for instance a certificate whose key has not been replaced yet, are logged once and tried again at
the next connection; the previous content remains in use.
"""

from __future__ import annotations

import logging
import ssl
import threading
from collections.abc import Mapping
from pathlib import Path

from carico.errors import UsageError

log = logging.getLogger(__name__)

ATTEMPTS = 5  # to read files that are being replaced

Contents = dict[str, bytes]  # by the name of the setting


def lenient_context(*, cafile: str | None = None, cadata: str | None = None) -> ssl.SSLContext:
    """A client's context that checks chain, expiry and host name only, as client-go and gRPC do.

    Since Python 3.13 the default also requires every extension of RFC 5280 (VERIFY_X509_STRICT). The CAs of many
    clusters, including those of EKS, have no key identifiers.
    """
    context = ssl.create_default_context(cafile=cafile, cadata=cadata)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


class ReloadedFiles:
    """The contents of some files at the last time when all of them were valid."""

    def __init__(self, paths: Mapping[str, Path | None], what: str) -> None:
        self._paths = {setting: path for setting, path in paths.items() if path is not None}
        self._what = what
        self._turn = threading.Lock()  # gRPC calls it from its own threads
        self._complaint = ""
        self.contents = self._read()

    def reread(self) -> bool:
        """Reads the files again; returns whether `contents` changed."""
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
        """OpenSSL reads the files itself to check them, so what was read before is valid only if it is still there."""
        found = self._contents()
        for _ in range(ATTEMPTS):
            if found == known:
                return found
            self._check()
            if (again := self._contents()) == found:
                return found
            found = again
        raise UsageError(f"{', '.join(self._paths)}: these files change while they are read")

    def _contents(self) -> Contents:
        return {setting: _content(path, setting) for setting, path in self._paths.items()}

    def _check(self) -> None:
        """Checks that the key belongs to the certificate, and that CA files contain certificates."""
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
    """Prevents OpenSSL from prompting for a password on the terminal."""
    raise ValueError("the key is encrypted")
