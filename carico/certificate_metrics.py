"""Expiry of the certificates that a process presents.

A timestamp and not the seconds that are left, as Prometheus recommends and as cert-manager and the blackbox exporter
do: it changes only with the certificate, and `… - time() < 7 * 86400` is correct at any time of evaluation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from carico.x509 import not_after

Pem = Callable[[], bytes]  # the certificate of the next connection; empty if there is none


class CertificateCollector(Collector):
    """Reads and parses at each scrape; `certificates` by the setting of each one."""

    def __init__(self, component: str, certificates: Mapping[str, Pem]) -> None:
        self._component, self._certificates = component, certificates

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(
            "carico_certificate_not_after_timestamp_seconds",
            "Expiry of a certificate that this process presents, by the setting that names it.",
            labels=["component", "certificate"],
        )
        for name, pem in self._certificates.items():
            end = not_after(pem())
            if end is not None:
                family.add_metric([self._component, name], end)
        yield family


def from_file(path: Path | None) -> Pem:
    """Reads the file at each call. It is also read at each connection, so the next one uses its current content."""

    def read() -> bytes:
        try:
            return b"" if path is None else path.read_bytes()
        except OSError:
            return b""

    return read
