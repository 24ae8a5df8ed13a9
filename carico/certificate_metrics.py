"""When the certificates end that a process shows to others.

A point in time and not the seconds that are left, as Prometheus advises and as cert-manager and the blackbox exporter
do: it changes only with the certificate, and `… - time() < 7 * 86400` is right at whatever time it is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from carico.x509 import not_after

Pem = Callable[[], bytes]  # the certificate of the next connection; empty if there is none


class CertificateCollector(Collector):
    """Reads and parses when somebody scrapes; `certificates` by where each one is configured."""

    def __init__(self, component: str, certificates: Mapping[str, Pem]) -> None:
        self._component, self._certificates = component, certificates

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(
            "carico_certificate_not_after_timestamp_seconds",
            "When a certificate ends that this process shows, by where it is configured.",
            labels=["component", "certificate"],
        )
        for name, pem in self._certificates.items():
            end = not_after(pem())
            if end is not None:
                family.add_metric([self._component, name], end)
        yield family


def from_file(path: Path | None) -> Pem:
    """A file is read again at each connection, so what it holds now is what the next one shows."""

    def read() -> bytes:
        try:
            return b"" if path is None else path.read_bytes()
        except OSError:
            return b""

    return read
