"""One Prometheus registry per process, the metrics that all processes have, and the /metrics page.

Common metrics have the label `component`; all others have the component in their name.
"""

from __future__ import annotations

import gzip
import platform
from collections.abc import Callable
from typing import NamedTuple

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.exposition import choose_encoder, gzip_accepted

from carico import __version__

disable_created_metrics()  # type: ignore[no-untyped-call]  # an unused second series for every counter

OPENMETRICS = "application/openmetrics-text;version=1.0.0"
GZIP_LEVEL = 1  # the text is repetitive: a higher level takes more time and saves little

# s; 20 ms is the agent's limit for a tick of 10 Hz on an idle machine, and after 10 s the scheduler no longer counts
# as alive.
LAG_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)

Headers = tuple[tuple[str, str], ...]


def new_registry(component: str) -> CollectorRegistry:
    """A registry with the build information and the resource use of the process."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    labels = ["version", "component", "python"]
    info = Gauge("carico_build_info", "Always 1; the labels name the version and platform.", labels, registry=registry)
    info.labels(version=__version__, component=component, python=platform.python_version()).set(1)
    return registry


def request_counter(registry: CollectorRegistry, component: str) -> Callable[[str, int], None]:
    """Counts responses of HTTP servers, by the setting of their address and by status."""
    about = "HTTP requests, by the setting that holds the server's address and by status."
    counter = Counter("carico_http_requests", about, ["component", "listener", "code"], registry=registry)
    return lambda listener, code: counter.labels(component, listener, str(int(code))).inc()


def loop_lag(registry: CollectorRegistry, component: str) -> Callable[[float], None]:
    """Observes the delay of a timer of the event loop, in s. A process uses a timer that it has anyway."""
    about = "How late a timer of the process's event loop was called."
    lag = Histogram("carico_event_loop_lag_seconds", about, ["component"], buckets=LAG_BUCKETS, registry=registry)
    return lag.labels(component).observe


class Format(NamedTuple):
    openmetrics: bool = False
    gzip: bool = False

    @classmethod
    def of(cls, accept: str, encoding: str) -> Format:
        """The format for a client, from its headers Accept and Accept-Encoding.

        >>> Format.of("application/openmetrics-text;version=1.0.0,text/plain;q=0.5", "gzip")
        Format(openmetrics=True, gzip=True)
        """
        try:
            _, content_type = choose_encoder(accept)
        except (TypeError, ValueError):  # an invalid version
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
