"""When certificates end, as Prometheus sees it; the package `cryptography` is the judge."""

from __future__ import annotations

import base64
import datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from prometheus_client import CollectorRegistry

from carico.certificate_metrics import CertificateCollector, from_file
from carico.wire.certificates import Authority
from carico.x509 import not_after


def seen(registry: CollectorRegistry, name: str = "tls_cert") -> float | None:
    labels = {"component": "agent", "certificate": name}
    return registry.get_sample_value("carico_certificate_not_after_timestamp_seconds", labels)


@pytest.mark.parametrize("years", [1, 8, 60])  # from 2050 on the year has four digits
def test_the_end_of_a_certificate(tmp_path: Path, years: int) -> None:
    pair = Authority(tmp_path, life=datetime.timedelta(days=365 * years) / 10).issue("localhost")
    for file in (pair.cert, tmp_path / "ca.pem"):  # the authority's lasts ten times as long
        expected = x509.load_pem_x509_certificate(file.read_bytes()).not_valid_after_utc.timestamp()
        assert not_after(file.read_bytes()) == expected


def test_of_a_chain_the_first_counts_and_a_key_before_it_is_passed_over(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("localhost")
    leaf = pair.cert.read_bytes()
    chain = b"\n".join((pair.key.read_bytes(), leaf, authority.cert.read_bytes()))
    assert not_after(chain) == not_after(leaf) != not_after(authority.cert.read_bytes())


def test_what_is_no_certificate_has_no_end(tmp_path: Path) -> None:
    pem = Authority(tmp_path).issue("localhost").cert.read_bytes()
    der = x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER)
    for content in (b"", b"nonsense", pem[: len(pem) // 2], b"-----BEGIN CERTIFICATE-----!-----END CERTIFICATE-----"):
        assert not_after(content) is None
    for cut in range(120):
        body = base64.encodebytes(der[:cut])
        assert not_after(b"-----BEGIN CERTIFICATE-----\n" + body + b"-----END CERTIFICATE-----\n") is None


def test_a_certificate_that_is_replaced_shows_its_new_end(tmp_path: Path) -> None:
    authority = Authority(tmp_path, life=datetime.timedelta(days=1))
    pair, registry = authority.issue("localhost"), CollectorRegistry()
    registry.register(CertificateCollector("agent", {"tls_cert": from_file(pair.cert), "other": from_file(None)}))
    before = seen(registry)
    assert before == not_after(pair.cert.read_bytes())
    pair.cert.write_bytes(Authority(tmp_path, life=datetime.timedelta(days=9)).issue("new").cert.read_bytes())
    after = seen(registry)
    assert before is not None
    assert after is not None
    assert after - before > 7 * 86400
    pair.cert.unlink()
    assert seen(registry) is None
    assert seen(registry, "other") is None
