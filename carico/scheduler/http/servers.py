"""The scheduler's HTTP servers: one for probes and metrics, one for private pages, one for a kube-scheduler.

The first may be open to the network. The second exposes pod names and is for users: beyond loopback it uses TLS, and
the API server authorizes every request (access_review.py). The third binds pods: beyond loopback it accepts only
clients with a certificate signed by `extender_client_ca`.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from carico.errors import UsageError
from carico.http.address import is_loopback, split_address
from carico.http.server import Checked, HttpServer, anybody
from carico.http.tls import server_context
from carico.metrics import request_counter
from carico.scheduler.http import routes as pages
from carico.scheduler.http.access_review import AccessReview
from carico.scheduler.http.dashboard.sse_clients import MOST as READERS

if TYPE_CHECKING:
    from carico.scheduler.process import Scheduler
    from carico.settings import SchedulerSettings

SPARE = 64  # connections to the private pages in addition to the browsers' streams


def servers(scheduler: Scheduler) -> list[HttpServer]:
    settings, count = scheduler.settings, request_counter(scheduler.parts.registry, "scheduler")
    tls, check = _private(scheduler)
    found = [
        HttpServer(settings.listen, pages.open_routes(scheduler), name="listen", count=count),
        HttpServer(
            settings.debug_listen, pages.private_routes(scheduler),
            name="debug_listen", tls=tls, check=check, connections=READERS + SPARE, count=count,
        ),
    ]  # fmt: skip
    if scheduler.extender is not None:
        routes, mutual = scheduler.extender.routes(), _mutual(settings)
        found.append(HttpServer(settings.extender_listen, routes, name="extender_listen", tls=mutual, count=count))
    return found


def _private(scheduler: Scheduler) -> tuple[ssl.SSLContext | None, Checked]:
    settings = scheduler.settings
    if is_loopback(split_address(settings.debug_listen)[0]):
        return None, anybody
    if settings.tls_cert is None or settings.tls_key is None:
        raise UsageError(f"debug_listen {settings.debug_listen}: beyond loopback it needs tls_cert and tls_key")
    files = {"tls_cert": settings.tls_cert, "tls_key": settings.tls_key}
    return server_context(files, "debug_listen"), AccessReview(scheduler.client, scheduler.clock).check


def _mutual(settings: SchedulerSettings) -> ssl.SSLContext | None:
    cert, key, authority = settings.tls_cert, settings.tls_key, settings.extender_client_ca
    if cert is not None and key is not None and authority is not None:
        files = {"tls_cert": cert, "tls_key": key, "extender_client_ca": authority}
        return server_context(files, "extender_listen")
    if authority is None and is_loopback(split_address(settings.extender_listen)[0]):
        return None
    raise UsageError(
        f"extender_listen {settings.extender_listen}: it needs tls_cert, tls_key and extender_client_ca; "
        "without the three it may listen on loopback only"
    )
