"""A self-made certificate authority, for tests and the demo. A cluster brings its own.

Its certificates pass the strict checks of RFC 5280, which Python makes by default since 3.13: key identifiers, key
usage and extended key usage are there. Needs the package `cryptography`, which no agent installs; hence the late
import.
"""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path
from typing import Any, NamedTuple

from carico.errors import UsageError
from carico.wire.identity import NODE_PREFIX, NODES

LIFE = datetime.timedelta(days=30)
HEAD_START = datetime.timedelta(minutes=5)  # clocks of two machines differ
KEY_USAGES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
    *("key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)
COMMON_NAME_LIMIT = 64  # characters, RFC 5280


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
        limits = self._x.x509.BasicConstraints(ca=True, path_length=0)
        builder = self._builder(self._name, self._key).add_extension(limits, critical=True)
        builder = builder.add_extension(self._key_usage("key_cert_sign", "crl_sign"), critical=True)
        self.cert = folder / "ca.pem"
        self.cert.write_bytes(self._pem(builder))

    def issue(self, name: str, *alternatives: str, organisation: str | None = None) -> Pair:
        """A certificate for `name`, valid for servers and clients, at these host names and addresses too."""
        key = self._x.ec.generate_private_key(self._x.ec.SECP256R1())
        stem = name.replace(":", "-")
        pair = Pair(self._folder / f"{stem}.pem", self._folder / f"{stem}.key")
        pair.cert.write_bytes(self._pem(self._leaf(name, alternatives, organisation, key)))
        pair.key.touch(mode=0o600)
        pair.key.write_bytes(self._key_pem(key))
        return pair

    def issue_node(self, node: str) -> Pair:
        """A certificate that speaks for `node`, named as a kubelet's."""
        return self.issue(f"{NODE_PREFIX}{node}", organisation=NODES)

    def _leaf(self, name: str, alternatives: tuple[str, ...], organisation: str | None, key: Any) -> Any:
        x509, usages = self._x.x509, self._x.x509.ExtendedKeyUsageOID
        if len(name) > COMMON_NAME_LIMIT:  # the long name of a node
            name, alternatives = name[:COMMON_NAME_LIMIT], (name, *alternatives)
        extensions = [
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (self._key_usage("digital_signature"), True),
            (x509.ExtendedKeyUsage([usages.SERVER_AUTH, usages.CLIENT_AUTH]), False),
        ]
        if alternatives:
            extensions.append((x509.SubjectAlternativeName([self._alternative(a) for a in alternatives]), False))
        builder = self._builder(self._subject(name, organisation), key)
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical=critical)
        return builder

    def _builder(self, subject: Any, key: Any) -> Any:
        x509 = self._x.x509
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder(subject_name=subject, issuer_name=self._name)
        builder = builder.serial_number(x509.random_serial_number()).public_key(key.public_key())
        builder = builder.not_valid_before(now - HEAD_START).not_valid_after(now + LIFE)
        own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return builder.add_extension(own, critical=False).add_extension(issuer, critical=False)

    def _key_usage(self, *allowed: str) -> Any:
        return self._x.x509.KeyUsage(**{kind: kind in allowed for kind in KEY_USAGES})

    def _subject(self, name: str, organisation: str | None = None) -> Any:
        x509 = self._x.x509
        names = [] if organisation is None else [x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, organisation)]
        return x509.Name([*names, x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])

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
