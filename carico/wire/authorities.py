"""Certificate authorities and serving certificates in memory, as PEM; certificates.py writes them into files.

Times are Unix times in seconds. Certificates begin BACKDATED before they are made, because clocks differ.
"""

from __future__ import annotations

import datetime
import secrets
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from carico.errors import CaricoError
from carico.wire.certificates import KEY_USAGES, cryptography

BACKDATED = 3600.0  # s


class PemPair(NamedTuple):
    cert: str
    key: str


class Unusable(CaricoError):
    """A text that is not a certificate, or a key that does not belong to it."""


class CertificateFacts(NamedTuple):
    begins_at: float
    ends_at: float
    names: frozenset[str]  # DNS names

    def at(self, share: float) -> float:
        """The time at which this share of its life has passed, if it was made here."""
        made_at = self.begins_at + BACKDATED
        return made_at + share * (self.ends_at - made_at)


def new_authority(now: float, life: float) -> PemPair:
    """Each has a unique name, so that the issuer of a certificate is unambiguous."""
    x = cryptography()
    key, name = x.ec.generate_private_key(x.ec.SECP256R1()), _name(f"carico authority {secrets.token_hex(8)}")
    limits = x.x509.BasicConstraints(ca=True, path_length=0)
    builder = _builder(name, name, key.public_key(), key.public_key(), now, now + life)
    builder = builder.add_extension(limits, critical=True)
    builder = builder.add_extension(_usage("key_cert_sign", "crl_sign"), critical=True)
    return _signed(builder, key, key)


def issue(authority: PemPair, names: Iterable[str], now: float, life: float) -> PemPair:
    """A certificate for a server with these DNS names; it ends with its authority at the latest."""
    x = cryptography()
    signer, issuer = _key_of(authority), _parsed(authority.cert)
    key, names = x.ec.generate_private_key(x.ec.SECP256R1()), list(names)
    ends_at = min(now + life, issuer.not_valid_after_utc.timestamp())
    builder = _builder(_name(min(names, key=len)), issuer.subject, key.public_key(), signer.public_key(), now, ends_at)
    alternatives = x.x509.SubjectAlternativeName([x.x509.DNSName(name) for name in names])
    for extension, critical in (
        (x.x509.BasicConstraints(ca=False, path_length=None), True),
        (_usage("digital_signature"), True),
        (x.x509.ExtendedKeyUsage([x.x509.ExtendedKeyUsageOID.SERVER_AUTH]), False),
        (alternatives, False),
    ):
        builder = builder.add_extension(extension, critical=critical)
    return _signed(builder, signer, key)


def facts(cert: str) -> CertificateFacts:
    """Raises Unusable."""
    x509, found = cryptography().x509, _parsed(cert)
    try:
        alternatives = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names = frozenset(alternatives.get_values_for_type(x509.DNSName))
    except (x509.ExtensionNotFound, ValueError):
        names = frozenset()
    return CertificateFacts(found.not_valid_before_utc.timestamp(), found.not_valid_after_utc.timestamp(), names)


def is_pair(pair: PemPair) -> bool:
    """Whether the key belongs to the certificate."""
    try:
        return bool(_key_of(pair).public_key() == _parsed(pair.cert).public_key())
    except Unusable:
        return False


def is_issued_by(cert: str, authority: str) -> bool:
    try:
        _parsed(cert).verify_directly_issued_by(_parsed(authority))
    except Exception:  # an invalid signature, another issuer, another kind of key, …: each has its own type
        return False
    return True


def split(bundle: str) -> list[str]:
    """The certificates of a bundle, each in the same form whatever is around them; anything else is skipped."""
    end, found = "-----END CERTIFICATE-----", []
    for part in bundle.split("-----BEGIN CERTIFICATE-----")[1:]:
        body, mark, _ = part.partition(end)
        try:
            found.append(normal(f"-----BEGIN CERTIFICATE-----{body}{end}\n")) if mark else None
        except Unusable:
            continue
    return found


def normal(cert: str) -> str:
    pem: bytes = _parsed(cert).public_bytes(cryptography().serialization.Encoding.PEM)
    return pem.decode()


@lru_cache(maxsize=64)
def _parsed(cert: str) -> Any:
    try:
        return cryptography().x509.load_pem_x509_certificate(cert.encode())
    except ValueError as error:
        raise Unusable(f"not a certificate: {error}") from error


def _key_of(pair: PemPair) -> Any:
    try:
        return cryptography().serialization.load_pem_private_key(pair.key.encode(), None)
    except (ValueError, TypeError) as error:
        raise Unusable(f"not a key: {error}") from error


def _name(text: str) -> Any:
    x509 = cryptography().x509
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text[:64])])


def _builder(subject: Any, issuer: Any, public: Any, signer: Any, now: float, ends_at: float) -> Any:
    x509 = cryptography().x509
    builder = x509.CertificateBuilder(subject_name=subject, issuer_name=issuer)
    builder = builder.serial_number(x509.random_serial_number()).public_key(public)
    builder = builder.not_valid_before(_date(now - BACKDATED)).not_valid_after(_date(ends_at))
    own = x509.SubjectKeyIdentifier.from_public_key(public)
    its = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer)
    return builder.add_extension(own, critical=False).add_extension(its, critical=False)


def _date(at: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(at, datetime.UTC)


def _usage(*allowed: str) -> Any:
    return cryptography().x509.KeyUsage(**{kind: kind in allowed for kind in KEY_USAGES})


def _signed(builder: Any, signer: Any, key: Any) -> PemPair:
    x = cryptography()
    cert = builder.sign(signer, x.hashes.SHA256()).public_bytes(x.serialization.Encoding.PEM)
    form = x.serialization.PrivateFormat.PKCS8
    own = key.private_bytes(x.serialization.Encoding.PEM, form, x.serialization.NoEncryption())
    return PemPair(cert.decode(), own.decode())
