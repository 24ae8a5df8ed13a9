"""Certificates as older tools, e.g. those of EKS, created them: client-go and gRPC accept them, RFC 5280 does not."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from carico.wire.certificates import Pair


def minimal_authority(folder: Path) -> tuple[Path, Pair]:
    """An authority and a server at 127.0.0.1, without key identifiers and usages."""
    now = datetime.datetime.now(datetime.UTC)
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    names = [x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]) for name in ("kubernetes", "server")]
    certs = []
    for name, key, ca in zip(names, keys, (True, False), strict=True):
        builder = x509.CertificateBuilder(names[0], name, key.public_key(), x509.random_serial_number())
        builder = builder.not_valid_before(now - datetime.timedelta(hours=1)).not_valid_after(
            now + datetime.timedelta(hours=1)
        )
        address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        extension = x509.BasicConstraints(ca=True, path_length=None) if ca else address
        certs.append(builder.add_extension(extension, critical=ca).sign(keys[0], hashes.SHA256()))
    pem = serialization.Encoding.PEM
    pair = Pair(folder / "server.pem", folder / "server.key")
    (folder / "ca.pem").write_bytes(certs[0].public_bytes(pem))
    pair.cert.write_bytes(certs[1].public_bytes(pem))
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    pair.key.write_bytes(keys[1].private_bytes(pem, *form))
    return folder / "ca.pem", pair
