"""One Prometheus registry per process, and the page that shows it."""

from __future__ import annotations

import platform

from prometheus_client import CollectorRegistry, Gauge, PlatformCollector, ProcessCollector, disable_created_metrics
from prometheus_client.exposition import generate_latest

from carico import __version__

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for every counter, which nobody graphs

PAGE_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def new_registry(component: str) -> CollectorRegistry:
    """A registry that already tells which build this is and what the process itself costs."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    labels = ["version", "component", "python"]
    info = Gauge("carico_build_info", "Always 1; the labels tell which Carico runs here.", labels, registry=registry)
    info.labels(version=__version__, component=component, python=platform.python_version()).set(1)
    return registry


def page(registry: CollectorRegistry) -> bytes:
    return generate_latest(registry)
