"""Certificates and kubeconfigs: every component of a cluster is a separate user, as in a real one."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

YEARS = 10
ADMIN = ("admin", ("system:masters",))


class Authority:
    """A certificate authority in a folder; its files are `ca.crt` and `ca.key`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        if self.certificate.exists():
            self._key = serialization.load_pem_private_key(self.key.read_bytes(), None)
            self._subject = x509.load_pem_x509_certificate(self.certificate.read_bytes()).subject
            return
        key = ec.generate_private_key(ec.SECP256R1())
        self._key, self._subject = key, _name("carico-ca", ())
        builder = _certificate(self._subject, self._subject, key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        _write(self.certificate, self.key, builder.sign(key, hashes.SHA256()), key)

    @property
    def certificate(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def key(self) -> Path:
        return self.folder / "ca.key"

    def issue(
        self, file: str, user: str, groups: Iterable[str] = (), addresses: Iterable[str] = (), names: Iterable[str] = ()
    ) -> tuple[Path, Path]:
        """A certificate for client and server use; returns the paths of certificate and key."""
        key = ec.generate_private_key(ec.SECP256R1())
        usage = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        builder = _certificate(_name(user, groups), self._subject, key.public_key())
        builder = builder.add_extension(x509.ExtendedKeyUsage(usage), critical=False)
        alternatives: list[x509.GeneralName] = [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        alternatives += [x509.DNSName(name) for name in names]
        if alternatives:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        paths = self.folder / f"{file}.crt", self.folder / f"{file}.key"
        _write(*paths, builder.sign(self._key, hashes.SHA256()), key)  # type: ignore[arg-type]
        return paths

    def kubeconfig(self, file: Path, server: str, user: str, groups: Iterable[str] = ()) -> Path:
        """A self-contained kubeconfig for a user. JSON is valid YAML."""
        certificate, key = self.issue(file.name, user, groups)
        cluster = {"server": server, "certificate-authority-data": _base64(self.certificate)}
        credentials = {"client-certificate-data": _base64(certificate), "client-key-data": _base64(key)}
        content: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "carico", "cluster": cluster}],
            "users": [{"name": user, "user": credentials}],
            "contexts": [{"name": "carico", "context": {"cluster": "carico", "user": user}}],
            "current-context": "carico",
        }
        file.touch(mode=0o600)
        file.write_text(json.dumps(content, indent=1) + "\n")
        return file


def signing_key(folder: Path) -> tuple[Path, Path]:
    """The key pair of service-account tokens; returns the paths of private and public key."""
    key = ec.generate_private_key(ec.SECP256R1())
    private, public = folder / "service-accounts.key", folder / "service-accounts.pub"
    _write_private(private, key)
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    public.write_bytes(key.public_key().public_bytes(serialization.Encoding.PEM, form))
    return private, public


def _name(user: str, groups: Iterable[str]) -> x509.Name:
    """The API server uses the common name as the user and the organizations as its groups."""
    organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organizations, x509.NameAttribute(NameOID.COMMON_NAME, user)])


def _certificate(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(now - datetime.timedelta(hours=1)).not_valid_after(
        now + datetime.timedelta(days=365 * YEARS)
    )


def _write(certificate: Path, key: Path, signed: x509.Certificate, secret: ec.EllipticCurvePrivateKey) -> None:
    certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    _write_private(key, secret)


def _write_private(file: Path, key: ec.EllipticCurvePrivateKey) -> None:
    file.touch(mode=0o600)
    form = serialization.PrivateFormat.TraditionalOpenSSL
    file.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))


def _base64(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()
