"""A self-made certificate authority, for tests and the demo. A cluster brings its own.

Needs the package `cryptography`, which no agent installs; hence the late import.
"""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path
from typing import Any, NamedTuple

from carico.errors import UsageError

LIFE = datetime.timedelta(days=30)
HEAD_START = datetime.timedelta(minutes=5)  # clocks of two machines differ


class Pair(NamedTuple):
    cert: Path
    key: Path


class Authority:
    """Writes `ca.pem` into `folder`, and certificates beside it."""

    def __init__(self, folder: Path) -> None:
        self._x = _cryptography()
        self._folder = folder
        self._key = self._x.ec.generate_private_key(self._x.ec.SECP256R1())
        self._name = self._subject("carico test authority")
        usage = self._x.x509.BasicConstraints(ca=True, path_length=0)
        cert = self._builder(self._name, self._key).add_extension(usage, critical=True)
        self.cert = folder / "ca.pem"
        self.cert.write_bytes(self._pem(cert))

    def issue(self, name: str, *alternatives: str) -> Pair:
        """A certificate for `name`, valid for servers and clients, at these host names and addresses too."""
        key = self._x.ec.generate_private_key(self._x.ec.SECP256R1())
        builder = self._builder(self._subject(name), key)
        if alternatives:
            names = self._x.x509.SubjectAlternativeName([self._alternative(a) for a in alternatives])
            builder = builder.add_extension(names, critical=False)
        stem = name.replace(":", "-")
        pair = Pair(self._folder / f"{stem}.pem", self._folder / f"{stem}.key")
        pair.cert.write_bytes(self._pem(builder))
        pair.key.touch(mode=0o600)
        pair.key.write_bytes(self._key_pem(key))
        return pair

    def _builder(self, subject: Any, key: Any) -> Any:
        now = datetime.datetime.now(datetime.UTC)
        builder = self._x.x509.CertificateBuilder(subject_name=subject, issuer_name=self._name)
        builder = builder.serial_number(self._x.x509.random_serial_number()).public_key(key.public_key())
        return builder.not_valid_before(now - HEAD_START).not_valid_after(now + LIFE)

    def _subject(self, name: str) -> Any:
        return self._x.x509.Name([self._x.x509.NameAttribute(self._x.x509.NameOID.COMMON_NAME, name)])

    def _alternative(self, name: str) -> Any:
        try:
            return self._x.x509.IPAddress(ipaddress.ip_address(name))
        except ValueError:
            return self._x.x509.DNSName(name)

    def _pem(self, builder: Any) -> bytes:
        signed = builder.sign(self._key, self._x.hashes.SHA256())
        pem: bytes = signed.public_bytes(self._x.serialization.Encoding.PEM)
        return pem

    def _key_pem(self, key: Any) -> bytes:
        s = self._x.serialization
        pem: bytes = key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption())
        return pem


class _Cryptography(NamedTuple):
    x509: Any
    ec: Any
    hashes: Any
    serialization: Any


def _cryptography() -> _Cryptography:
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        raise UsageError("self-made certificates need the package cryptography; install carico[demo]") from None
    return _Cryptography(x509, ec, hashes, serialization)
