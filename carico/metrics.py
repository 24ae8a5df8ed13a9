"""One Prometheus registry per process, and the page that shows it."""

from __future__ import annotations

import gzip
import platform
from collections.abc import Callable

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


def page(registry: CollectorRegistry, accept: str = "", encoding: str = "") -> tuple[str, bytes, Headers]:
    """Content type, body and further headers for what a client accepts: OpenMetrics or text, gzip or plain."""
    try:
        encoder, content_type = choose_encoder(accept)
    except (TypeError, ValueError):  # a version that is none
        encoder, content_type = choose_encoder("")
    body = encoder(registry)
    if not gzip_accepted(encoding):
        return content_type, body, (("Vary", "Accept, Accept-Encoding"),)
    return (
        content_type,
        gzip.compress(body, GZIP_LEVEL),
        (("Content-Encoding", "gzip"), ("Vary", "Accept, Accept-Encoding")),
    )
