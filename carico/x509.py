"""When a certificate ends, read from its PEM form: Python's own ssl tells that only of a peer's."""

from __future__ import annotations

import re
import ssl
from datetime import datetime

_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_VERSION = 0xA0  # the tag of a field that certificates of the first version lack
_UTC_TIME = 0x17  # the tag of a time whose year has two digits


def not_after(pem: bytes) -> float | None:
    """Unix time of the end of the first certificate, which is the one that is shown; None if there is none."""
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
    """Tag of the element at `at`, where its content starts and where it ends."""
    tag, length, start = der[at], der[at + 1], at + 2
    if length & 0x80:
        size = length & 0x7F
        length, start = int.from_bytes(der[start : start + size], "big"), start + size
    if start + length > len(der):
        raise ValueError("the certificate is cut off")
    return tag, start, start + length
