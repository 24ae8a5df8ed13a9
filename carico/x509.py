"""Reads the expiry of a certificate in PEM format: Python's ssl module only provides it for a peer's."""

from __future__ import annotations

import re
import ssl
from datetime import datetime

_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_VERSION = 0xA0  # ASN.1 tag of the version, which X.509 v1 certificates do not have
_UTC_TIME = 0x17  # ASN.1 tag UTCTime, whose year has two digits


def not_after(pem: bytes) -> float | None:
    """Unix time of the expiry of the first certificate, which is the one that is presented; None if there is none."""
    found = _CERTIFICATE.search(pem)
    if found is None:
        return None
    try:
        return _not_after(ssl.PEM_cert_to_DER_cert(found[0].decode("ascii")))
    except (ValueError, IndexError):
        return None


def _not_after(der: bytes) -> float:
    _, certificate, _ = _element(der, 0)
    _, at, _ = _element(der, certificate)
    if der[at] == _VERSION:
        _, _, at = _element(der, at)
    for _ in ("serial number", "signature", "issuer"):
        _, _, at = _element(der, at)
    _, validity, _ = _element(der, at)
    _, _, at = _element(der, validity)
    tag, start, end = _element(der, at)
    text = der[start:end].decode("ascii")
    if tag == _UTC_TIME:
        text = f"{'19' if text[:2] >= '50' else '20'}{text}"
    return _seconds(text)


def _seconds(text: str) -> float:
    """
    >>> _seconds("20500101000000Z")
    2524608000.0
    """
    return datetime.fromisoformat(f"{text[:8]}T{text[8:]}").timestamp()


def _element(der: bytes, at: int) -> tuple[int, int, int]:
    """Tag of the DER element at `at`, and the start and end of its content."""
    tag, length, start = der[at], der[at + 1], at + 2
    if length & 0x80:
        size = length & 0x7F
        length, start = int.from_bytes(der[start : start + size], "big"), start + size
    if start + length > len(der):
        raise ValueError("the certificate is cut off")
    return tag, start, start + length
