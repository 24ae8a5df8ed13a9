"""Certificates as some clusters create them: without key identifiers, and below an intermediate authority."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from carico.wire.certificates import Pair


class Made(NamedTuple):
    root: Path
    intermediate: Path
    server: Pair  # below the root
    below_intermediate: Pair


def authority_without_identifiers(folder: Path) -> Made:
    root_key, middle_key = _key(), _key()
    root = _signed("root", root_key, "root", root_key, authority=True)
    middle = _signed("middle", middle_key, "root", root_key, authority=True)
    return Made(
        _write(folder / "root.pem", root),
        _write(folder / "middle.pem", middle),
        _server(folder, "direct", "root", root_key),
        _server(folder, "below", "middle", middle_key),
    )


def _server(folder: Path, name: str, issuer: str, issuer_key: Any) -> Pair:
    key = _key()
    pair = Pair(_write(folder / f"{name}.pem", _signed(name, key, issuer, issuer_key)), folder / f"{name}.key")
    s = serialization
    pair.key.write_bytes(key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption()))
    return pair


def _key() -> Any:
    return ec.generate_private_key(ec.SECP256R1())


def _signed(name: str, key: Any, issuer: str, issuer_key: Any, *, authority: bool = False) -> Any:
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(subject_name=_name(name), issuer_name=_name(issuer))
    builder = builder.serial_number(x509.random_serial_number()).public_key(key.public_key())
    builder = builder.not_valid_before(now - datetime.timedelta(hours=1)).not_valid_after(
        now + datetime.timedelta(days=1)
    )
    builder = builder.add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    return (builder if authority else builder.add_extension(here, critical=False)).sign(issuer_key, hashes.SHA256())


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def _write(path: Path, certificate: Any) -> Path:
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return path
