"""Merges what the nodes report about themselves into one model of the cluster.

The process around the state: it serves gRPC and the pages, recomputes the model a few times a second and exchanges
aggregates with the other replicas. It stores nothing: the next messages restore what it knew.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket

from prometheus_client import CollectorRegistry

from carico import __version__, metrics, process
from carico.aggregator import garbage, pages, peers
from carico.aggregator.service import AggregationService
from carico.aggregator.state import AggregatorState
from carico.certificate_metrics import CertificateCollector, from_file
from carico.clock import Clock, Ticker
from carico.errors import UsageError
from carico.http.routes import Access, Route, exposition, health, shown
from carico.http.server import HttpServer
from carico.kube import credentials
from carico.kube.client import Client
from carico.kube.token_reviews import TokenMetrics, TokenReviews
from carico.settings import AggregatorSettings
from carico.wire.metrics import GrpcServerMetrics
from carico.wire.server import GrpcServer
from carico.wire.tokens import Accounts, Tokens

log = logging.getLogger(__name__)

STALLED = 20.0  # missed refreshes of the model after which /healthz fails
GRACE = 0.2  # s for calls that are in progress at the end


class Aggregator:
    """One replica. `run` it, or `start` and `stop` it; in between it runs in its own tasks."""

    def __init__(self, settings: AggregatorSettings, clock: Clock, *, collect_garbage: bool = False) -> None:
        """`collect_garbage`: nothing else runs in its process, so it may control the garbage collector."""
        if settings.peers and not settings.plaintext:
            _check_peers(settings)
        self._settings = settings
        self._clock = clock
        self._collect_garbage = collect_garbage
        self.registry = registry = metrics.new_registry("aggregator")
        self._lag = metrics.loop_lag(registry, "aggregator")
        registry.register(CertificateCollector("aggregator", {"tls_cert": from_file(settings.tls_cert)}))
        counters = pages.AggregatorCounters(registry)
        name = settings.replica_name or socket.gethostname()
        self.state = AggregatorState(settings, name, start_id=secrets.randbits(63))
        self._service = AggregationService(
            self.state, clock, counters.exchange, counters.refused, has_peers=bool(settings.peers)
        )
        registry.register(pages.AggregatorFigures(self._service))
        self._client, tokens = self._api_client(), None
        token_metrics = TokenMetrics(registry, "aggregator")
        if self._client is not None:
            tokens = self._tokens(self._client, token_metrics)
        grpc_metrics = GrpcServerMetrics(registry)
        self._grpc = GrpcServer(settings.grpc_listen, settings, self._service.methods, grpc_metrics, tokens)
        count = metrics.request_counter(registry, "aggregator")
        self._pages = HttpServer(settings.listen, self._routes(registry), count=count)
        self._tasks: list[asyncio.Task[None]] = []
        self._refreshed_at = clock.monotonic()
        self._ready = False

    def _api_client(self) -> Client | None:
        """Only for the review of tokens."""
        if not self._settings.token_audience:
            return None
        return Client(credentials.find(self._settings.kubeconfig), clock=self._clock, agent="carico-aggregator")

    def _tokens(self, client: Client, token_metrics: TokenMetrics) -> Tokens:
        accounts = Accounts.of(self._settings, client.namespace)
        reviews = TokenReviews(client, self._settings.token_audience, accounts, self._clock, token_metrics)
        return Tokens(accounts, reviews, self._clock)

    def _routes(self, registry: CollectorRegistry) -> dict[str, Route]:
        return {
            **exposition(registry),
            **health(self._stalled, lambda: None if self._ready else "not serving"),
            "/debug/model": shown(lambda: pages.debug_model(self._service), Access.LOCAL),
        }

    async def run(self, stop: asyncio.Event) -> None:
        """Runs until `stop` is set; raises the error of a task that fails, because no part can be missing."""
        await self.start()
        try:
            await process.first_to_end(stop, self._tasks)
        finally:
            log.info("ending")
            await self.stop()

    async def start(self) -> tuple[int, int]:
        """Returns the ports of gRPC and of the pages."""
        grpc_port, page_port = await self._grpc.start(), await self._pages.start()
        self._tasks = [asyncio.create_task(self._refresh_for_ever())]
        if self._settings.peers:
            self._tasks.append(asyncio.create_task(peers.follow(self._settings, self._service, self._clock)))
        if self._collect_garbage:
            self._tasks.append(asyncio.create_task(garbage.run(self._clock)))
        self._ready = True
        where = f"gRPC on port {grpc_port}, pages on port {page_port}"
        log.info(
            "aggregator %s, replica %s, merge %s: %s", __version__, self.state.replica, self._settings.merge, where
        )
        return grpc_port, page_port

    async def stop(self) -> None:
        self._ready = False
        await process.cancel(self._tasks)
        await self._grpc.stop(GRACE)
        await self._pages.stop()
        if self._client is not None:
            await self._client.close()

    async def _refresh_for_ever(self) -> None:
        await Ticker(self._clock, self._settings.merge_every).run(self._refresh)

    def _refresh(self, late: float) -> None:
        self._lag(late)
        self._service.refresh(late)
        self._refreshed_at = self._clock.monotonic()

    def _stalled(self) -> str | None:
        silence = self._clock.monotonic() - self._refreshed_at
        late = silence > STALLED * self._settings.merge_every
        return f"the model was last made {silence:.1f} s ago" if late else None


def _check_peers(settings: AggregatorSettings) -> None:
    if settings.tls_ca is None:
        raise UsageError("peers need tls_ca, so that replicas can check each other's certificate")
    if settings.allow_anonymous_clients:
        raise UsageError(
            "peers need client_ca or token_audience: without one any client could act as a replica and report for any "
            "number of nodes"
        )
