"""TLS to the API server: the trusted CAs, and the client certificate.

Files are read again for every `context()`; the same content gives the same context, so that connections and their
sessions can be kept. A client's key is passed to OpenSSL in memory, not in a file on a disk.
"""

from __future__ import annotations

import os
import re
import ssl
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from carico.errors import UsageError

CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


@dataclass(frozen=True)
class Pem:
    """Certificates or a key: in a file, or inline."""

    what: str  # for messages: file, entry and field
    data: bytes = b""
    file: Path | None = None

    def read(self) -> bytes:
        if self.file is None:
            return self.data
        try:
            return self.file.read_bytes()
        except OSError as error:
            raise UsageError(f"{self.what}: {self.file} cannot be read ({error.strerror})") from error


class Tls:
    """The TLS settings of a cluster and a user; `certificate` and `key` are given together or not at all."""

    def __init__(
        self, authority: Pem | None, certificate: Pem | None = None, key: Pem | None = None, *, insecure: bool = False
    ) -> None:
        self._authority, self._certificate, self._key, self._insecure = authority, certificate, key, insecure
        self._made: tuple[tuple[bytes, bytes], ssl.SSLContext] | None = None

    @property
    def files(self) -> list[Path]:
        """Files whose content may change."""
        named = (self._authority, self._certificate, self._key)
        return [pem.file for pem in named if pem is not None and pem.file is not None]

    @property
    def pair(self) -> bytes:
        """Certificate and key of the last context."""
        return self._made[0][1] if self._made is not None else b""

    def authority(self) -> bytes:
        """The CA certificates; empty where the system's are trusted."""
        return self._authority.read() if self._authority is not None else b""

    def towards(self, authority: Pem | None) -> Tls:
        """The same client certificate for another server, whose certificate is always verified."""
        return Tls(authority, self._certificate, self._key)

    def context(self, pair: bytes = b"") -> ssl.SSLContext:
        """With `pair` instead of the user's certificate and key if a credential plugin returned one."""
        if not pair and self._certificate is not None and self._key is not None:
            pair = self._certificate.read() + b"\n" + self._key.read()
        content = (self.authority(), pair)
        if self._made is None or self._made[0] != content:
            self._made = (content, self._make(*content))
        return self._made[1]

    def _make(self, authority: bytes, pair: bytes) -> ssl.SSLContext:
        context = ssl.create_default_context() if self._authority is None else trusting(authority, self._authority.what)
        if self._insecure:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if pair:
            what = self._certificate.what if self._certificate is not None else "the credential plugin's certificate"
            load_pair(context, pair, what)
        return context


def trusting(authority: bytes, what: str) -> ssl.SSLContext:
    """A context that trusts these certificates only.

    As in kubectl: each of them is an anchor, whether or not it is self-signed; and a CA without key identifiers, which
    Python 3.13 and newer reject by default, is accepted. Those of EKS and others are made like that.
    """
    found = CERTIFICATE.findall(authority)
    if not found:
        raise UsageError(f"{what}: holds no certificate in PEM form")
    try:
        context = ssl.create_default_context(cadata=b"\n".join(found).decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise UsageError(f"{what}: cannot be used as certificates ({error})") from error
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def load_pair(context: ssl.SSLContext, pair: bytes, what: str) -> None:
    """Loads a certificate with its chain, and its key."""
    try:
        with _as_file(pair) as file:
            context.load_cert_chain(file, password=_no_password)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise UsageError(f"{what}: certificate and key cannot be used ({error})") from error


def _no_password() -> str:
    """Without this OpenSSL would prompt at the terminal, and the process would block."""
    raise ValueError("the key is encrypted; kubectl cannot use such keys either")


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """OpenSSL loads certificates from files only: one in memory where the system has that, else a private one."""
    if sys.platform == "linux":
        number = os.memfd_create("carico-client-key")
        with open(number, "wb") as file:
            file.write(content)
            file.flush()
            yield f"/proc/self/fd/{number}"
    else:
        with tempfile.NamedTemporaryFile() as temporary:
            temporary.write(content)
            temporary.flush()
            yield temporary.name
