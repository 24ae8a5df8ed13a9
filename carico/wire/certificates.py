"""A self-made CA, for tests, the demo and `carico certificates`. Larger clusters bring their own.

Its certificates pass the strict checks of RFC 5280, which Python makes by default since 3.13: key identifiers, key
usage and extended key usage are there. Needs the package `cryptography`, which no agent installs; hence the late
import.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import secrets
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
AUTHORITY_LIVES = 10  # times as long as its certificates


class Pair(NamedTuple):
    cert: Path
    key: Path


class Authority:
    """Writes `ca.pem` into `folder`, and certificates into the same folder.

    Its own key is lost with the process, unless `keep_key` is set: then it is `ca.key`, and reused if it exists.
    """

    def __init__(self, folder: Path, *, life: datetime.timedelta = LIFE, keep_key: bool = False) -> None:
        self._x = cryptography()
        self._folder, self._life = folder, life
        self.cert, kept = folder / "ca.pem", folder / "ca.key"
        if keep_key and kept.exists():
            self._key = self._x.serialization.load_pem_private_key(kept.read_bytes(), None)
            self._name = self._x.x509.load_pem_x509_certificate(self.cert.read_bytes()).subject
            return
        self._key = self._x.ec.generate_private_key(self._x.ec.SECP256R1())
        self._name = self._subject("carico authority")
        limits = self._x.x509.BasicConstraints(ca=True, path_length=0)
        builder = self._builder(self._name, self._key, AUTHORITY_LIVES * life).add_extension(limits, critical=True)
        builder = builder.add_extension(self._key_usage("key_cert_sign", "crl_sign"), critical=True)
        if keep_key:
            _replace(kept, self._key_pem(self._key), 0o600)
        _replace(self.cert, self._pem(builder), 0o644)

    def issue(self, name: str, *alternatives: str, organisation: str | None = None) -> Pair:
        """A certificate for `name`, valid for servers and clients, at these host names and addresses too.

        It replaces one of the same name.
        """
        key = self._x.ec.generate_private_key(self._x.ec.SECP256R1())
        stem = name.replace(":", "-")
        pair = Pair(self._folder / f"{stem}.pem", self._folder / f"{stem}.key")
        _replace(pair.cert, self._pem(self._leaf(name, alternatives, organisation, key)), 0o644)
        _replace(pair.key, self._key_pem(key), 0o600)
        return pair

    def issue_node(self, node: str) -> Pair:
        """A certificate that identifies `node`, named as a kubelet's."""
        return self.issue(f"{NODE_PREFIX}{node}", organisation=NODES)

    def _leaf(self, name: str, alternatives: tuple[str, ...], organisation: str | None, key: Any) -> Any:
        x509, usages = self._x.x509, self._x.x509.ExtendedKeyUsageOID
        if len(name) > COMMON_NAME_LIMIT:
            name, alternatives = "see the alternative names", (name, *alternatives)
        extensions = [
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (self._key_usage("digital_signature"), True),
            (x509.ExtendedKeyUsage([usages.SERVER_AUTH, usages.CLIENT_AUTH]), False),
        ]
        if alternatives:
            extensions.append((x509.SubjectAlternativeName([self._alternative(a) for a in alternatives]), False))
        builder = self._builder(self._subject(name, organisation), key, self._life)
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical=critical)
        return builder

    def _builder(self, subject: Any, key: Any, life: datetime.timedelta) -> Any:
        x509 = self._x.x509
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder(subject_name=subject, issuer_name=self._name)
        builder = builder.serial_number(x509.random_serial_number()).public_key(key.public_key())
        builder = builder.not_valid_before(now - HEAD_START).not_valid_after(now + life)
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


def _replace(path: Path, content: bytes, mode: int) -> None:
    """Atomically, because servers read their files again at each connection."""
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
    fresh.replace(path)


class _Cryptography(NamedTuple):
    x509: Any
    ec: Any
    hashes: Any
    serialization: Any


def cryptography() -> _Cryptography:
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        raise UsageError(
            "certificates can only be made with the package cryptography; install carico[certificates]"
        ) from None
    return _Cryptography(x509, ec, hashes, serialization)
