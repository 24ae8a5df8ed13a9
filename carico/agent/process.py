"""Creates and runs all parts of the agent on a node."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import secrets
import socket
from collections.abc import Coroutine, Iterator, Mapping

from carico import __version__
from carico.agent.checkpoint import Checkpoint, place
from carico.agent.exporter import FullCollector, LinkCollector, NodeCollector, TickMetrics, refusal_counter
from carico.agent.full import FullAmounts
from carico.agent.loop import Loop
from carico.agent.measuring import PodMeasurement
from carico.agent.report_builder import ReportBuilder
from carico.certificate_metrics import CertificateCollector, from_file
from carico.clock import Clock
from carico.estimate.pipeline import Pipeline
from carico.http.routes import exposition, health
from carico.http.server import HttpServer
from carico.metrics import new_registry, request_counter
from carico.process import run_parts
from carico.runtime import open_source
from carico.settings import AgentSettings
from carico.telemetry.sampler import Sampler
from carico.telemetry.shared_kernel import why_shared
from carico.types import ClassCost, ClassKey, ClusterModel, Estimate, NodeSize
from carico.wire.classes_client import ClassesClient
from carico.wire.codec.report import Ack
from carico.wire.exchange import ExchangeClient
from carico.wire.report_client import ReportClient

log = logging.getLogger(__name__)

KEEP_EVERY = 30.0  # s between two writes of the state file
MEASURE_EVERY = 10.0  # s between two reads of the node's size: processors are added and removed, but rarely
CLASSES_AT_FIRST = 256  # classes that the aggregator sends first, those with most pods


class AgentProcess:
    """One node. All parts are created in `__init__`, which is the complete list of them."""

    def __init__(self, settings: AgentSettings, clock: Clock) -> None:
        self._clock = clock
        self._settings = settings
        self._sampler = Sampler(settings)
        self._source = open_source(settings, settings.cgroup_root, clock, settings.proc_root)
        self._measured, self._measured_at = self._sampler.size(), clock.monotonic()
        self._pipeline = Pipeline(settings, settings.dimensions, settings.rate_hz, self._measured)
        self._full = FullAmounts(settings, self._source.table, self._pipeline.set_full)
        self._full.update(self._measured)
        self._checkpoint = Checkpoint(place(settings.state_file, os.environ), self._pipeline)
        name = settings.node_name or socket.gethostname()
        self._workload: object = None  # the pods whose classes were subscribed at the aggregator
        self._node = ReportBuilder(name, secrets.randbits(63), settings.dimensions, self._size)
        self.registry = registry = new_registry("agent")
        registry.register(CertificateCollector("agent", {"tls_cert": from_file(settings.tls_cert)}))
        refused = refusal_counter(registry)
        self._exchange = ExchangeClient(settings, clock, self._adopt, refused) if settings.aggregator else None
        self._classes: ClassesClient | None = None
        if settings.aggregator:
            self._classes = ClassesClient(settings, clock, self._adopt_classes, CLASSES_AT_FIRST)
        self._reports = ReportClient(settings, clock, refused, self._on_ack) if settings.schedulers else None
        count = self._source.table.count
        tick_metrics = TickMetrics(registry)
        self._measuring = PodMeasurement(settings, self._sampler, self._source, clock)
        self._loop = Loop(
            clock, settings.rate_hz, self._sampler, count, self._pipeline, tick_metrics, self._publish, self._measuring
        )
        registry.register(NodeCollector(name, settings.dimensions, lambda: self._loop.estimate, self._sources))
        registry.register(FullCollector(name, lambda: self._full.memory))
        registry.register(LinkCollector(self._links))
        routes = exposition(registry) | health(self._loop.why_not_alive, self._why_not_ready)
        self._pages = HttpServer(settings.listen, routes, count=request_counter(registry, "agent"))

    async def run(self, stop: asyncio.Event) -> None:
        """Runs until `stop` is set. Any other part that ends is an error and ends the agent."""
        port = await self._pages.start()
        self._checkpoint.load()
        self._pipeline.set_full(self._full.amounts, self._measured)  # the restored state may be of another size
        self._warn_where_nodes_share_a_kernel()
        log.info("carico %s on %s, metrics on port %d", __version__, self._node.name, port)
        gc.collect()
        gc.freeze()  # libraries and parts are permanent: each full collection over them took 25 ms
        try:
            await run_parts(stop, self._parts())
        finally:
            self._checkpoint.save()
            await self._pages.stop()
        log.info("stopped")

    def _parts(self) -> Iterator[Coroutine[object, object, None]]:
        yield self._loop.run()
        yield self._source.run()
        yield self._measuring.run()
        yield self._keep()
        if self._exchange is not None:
            yield self._exchange.run()
        if self._classes is not None:
            yield self._classes.run()
        if self._reports is not None:
            yield self._reports.run()

    def _warn_where_nodes_share_a_kernel(self) -> None:
        """Logs a warning, unless the agent is set to measure against its own limits."""
        why = why_shared(self._settings.proc_root, self._settings.cgroup_root)
        if why is not None and not self._settings.own_limits:
            log.warning("%s; nodes that share a kernel each report the whole machine's room as their own", why)

    async def _keep(self) -> None:
        while True:
            await self._clock.sleep(KEEP_EVERY)
            self._checkpoint.save()

    def _publish(self, estimate: Estimate) -> None:
        """Offers a new estimate to each stream, which decides by its own rule whether to send a message."""
        evidence, costs = self._pipeline.evidence(), self._pipeline.class_costs()
        if self._exchange is not None and evidence is not None:
            self._exchange.offer(self._node.model(evidence, estimate.pods, costs))
        if self._reports is not None:
            full = self._full.amounts
            self._reports.offer(self._node.report(estimate, self._source.table, self._clock, full, costs))
        self._follow_classes()

    def _follow_classes(self) -> None:
        """Subscribes to the costs of the classes of this node's pods as soon as the pods change."""
        pods = self._source.table.workload()
        if self._classes is not None and pods is not self._workload:
            self._workload = pods
            self._classes.want({pod.key for pod in pods.values() if pod.key is not None})

    def _size(self) -> NodeSize:
        now = self._clock.monotonic()
        if now - self._measured_at >= MEASURE_EVERY:
            self._measured, self._measured_at = self._sampler.size(), now
            self._full.update(self._measured)
        return self._measured

    def _on_ack(self, ack: Ack) -> None:
        """Stores what a scheduler sends from the API server: classes of pods and allocatable."""
        if ack.classes:
            self._source.table.set_classes(ack.classes)
        if ack.allocatable is not None:
            self._full.allocatable(ack.allocatable)

    def _adopt_classes(self, costs: Mapping[ClassKey, ClassCost], resources: tuple[str, ...]) -> None:
        self._node.adopt_classes(costs, resources, self._pipeline)

    def _adopt(self, model: ClusterModel) -> None:
        self._node.adopt(model, self._pipeline)

    def _sources(self) -> dict[str, str | None]:
        return {**self._sampler.sources(), "pods": self._source.problem, "pod_stats": self._measuring.problem}

    def _why_not_ready(self) -> str | None:
        """Ready also means that a scheduler has accepted a report: until then no pod is placed here by capacity."""
        if self._reports is not None and not self._reports.accepted:
            return self._loop.why_not_ready() or "no scheduler has accepted a report yet"
        return self._loop.why_not_ready()

    def _links(self) -> dict[str, int]:
        links = {}
        if self._exchange is not None:
            links["aggregator"] = int(self._exchange.connected)
        if self._reports is not None:
            links["scheduler"] = self._reports.connected
        return links
