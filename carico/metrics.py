"""One Prometheus registry per process, and the page that shows it."""

from __future__ import annotations

import gzip
import platform
from collections.abc import Callable
from typing import NamedTuple

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.exposition import choose_encoder, gzip_accepted

from carico import __version__

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for every counter, which nobody graphs

OPENMETRICS = "application/openmetrics-text;version=1.0.0"
GZIP_LEVEL = 1  # the series repeat themselves: more would cost the agent time and save little

Headers = tuple[tuple[str, str], ...]


def new_registry(component: str) -> CollectorRegistry:
    """A registry that already tells which build this is and what the process itself costs."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    labels = ["version", "component", "python"]
    info = Gauge("carico_build_info", "Always 1; the labels tell which Carico runs here.", labels, registry=registry)
    info.labels(version=__version__, component=component, python=platform.python_version()).set(1)
    return registry


def request_counter(registry: CollectorRegistry) -> Callable[[str, int], None]:
    """Counts answers of HTTP servers, by the setting that holds the address and by status."""
    counter = Counter(
        "carico_http_requests", "HTTP requests, by listener and status.", ["listener", "code"], registry=registry
    )
    return lambda listener, code: counter.labels(listener, str(int(code))).inc()


class Format(NamedTuple):
    openmetrics: bool = False
    gzip: bool = False

    @classmethod
    def of(cls, accept: str, encoding: str) -> Format:
        """What a client accepts: its headers Accept and Accept-Encoding.

        >>> Format.of("application/openmetrics-text;version=1.0.0,text/plain;q=0.5", "gzip")
        Format(openmetrics=True, gzip=True)
        """
        try:
            _, content_type = choose_encoder(accept)
        except (TypeError, ValueError):  # a version that is none
            content_type = ""
        return cls(content_type.startswith("application/openmetrics-text"), gzip_accepted(encoding))


PLAIN = Format()


def page(registry: CollectorRegistry, form: Format = PLAIN) -> tuple[str, bytes, Headers]:
    """Content type, body and further headers."""
    encoder, content_type = choose_encoder(OPENMETRICS if form.openmetrics else "")
    body, vary = encoder(registry), ("Vary", "Accept, Accept-Encoding")
    if not form.gzip:
        return content_type, body, (vary,)
    return content_type, gzip.compress(body, GZIP_LEVEL), (("Content-Encoding", "gzip"), vary)
