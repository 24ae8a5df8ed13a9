"""`carico scheduler`: the process around ledger, snapshot and queue.

    watches ─► cluster ─► queue ─► cycle ─► binder ─► API server
    reports ─► ledger ──────────────┘ │
                                      └ no node ─► failures ─► condition, Event, evictions

Everything runs in one asyncio loop. All replicas follow watches and reports; the one that holds the Lease schedules. A
replica that loses the Lease exits and is restarted by its supervisor: no state of a former leader is reused.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from time import perf_counter, thread_time
from typing import Any

import numpy as np

from carico import __version__, process
from carico.clock import Clock, SystemClock, Ticker
from carico.errors import CaricoError
from carico.kube import credentials
from carico.kube.client import Client
from carico.kube.events import EventRecorder
from carico.kube.lease import Election, LeaseTimes, unique_identity
from carico.kube.metrics import RequestMetrics
from carico.kube.token_reviews import TokenMetrics, TokenReviews
from carico.kube.watch import Reflector
from carico.kube.writer import ApiWriter
from carico.kube.writes import Urgency
from carico.metrics import loop_lag
from carico.scheduler.assembly import Components, assemble
from carico.scheduler.cache.units import units_of
from carico.scheduler.certificates.maker import CertificateMaker
from carico.scheduler.certificates.own import OwnCertificate
from carico.scheduler.cycle.binding_cycle import Binder
from carico.scheduler.cycle.binding_finisher import BindingFinisher
from carico.scheduler.cycle.decision_log import DecisionRecord
from carico.scheduler.cycle.failures import Failures
from carico.scheduler.cycle.group_cycle import GroupDecision, decide_group
from carico.scheduler.cycle.profiles import Profile
from carico.scheduler.cycle.scheduling_cycle import Decision, broken, decide
from carico.scheduler.extender.extender import Extender
from carico.scheduler.framework.contract import Code
from carico.scheduler.gc_control import GcControl
from carico.scheduler.http import routes, servers
from carico.scheduler.http.dashboard.publisher import Publisher, ReplicaStatus
from carico.scheduler.informers import Informers
from carico.scheduler.kubelet_rejections import KubeletRejections
from carico.scheduler.node_capacities.publisher import CapacityPublisher
from carico.scheduler.queue.entries import Queued
from carico.scheduler.reports import ReportListener
from carico.settings import SchedulerSettings
from carico.wire.classes_client import ClassesClient
from carico.wire.metrics import GrpcServerMetrics
from carico.wire.report_server import METHOD, ReportService
from carico.wire.server import GrpcServer
from carico.wire.tokens import Accounts, Tokens

log = logging.getLogger(__name__)

TURN = 0.005  # s of scheduling cycles in a row: an iteration of the event loop costs as much as a cycle
LONG_TURN = 0.1  # s of CPU time: a cycle as long as this, with a search for victims, is followed by a pause
PAUSE = 0.05  # s in which a renewal of the Lease gets its responses, and what the watches have received is handled
LAG_EVERY = 0.25  # s between two measurements of the lag of the event loop
HOUSEKEEPING = 1.0  # s between two checks of queue, heartbeat and health
FLUSH_EVERY = 30.0  # s between two flushes of pods that have waited very long
SPILL = 5  # the limit of waiting Scheduled Events, as a multiple of the limit of other Events
# Kubernetes kills a pod 30 s after SIGTERM by default; these and the stop of the servers take at most 25 s.
DRAIN = 22.0  # s to finish bindings, then conditions and Events
ABOUT_PODS = (Urgency.EVICTION, Urgency.NOMINATION, Urgency.CONDITION)
EVENT_DRAIN = 8.0  # s of these for Events and annotations: no replica schedules meanwhile
RELEASE = 2.0  # s to release the Lease
RENEWAL_LIMIT = 20.0  # s without a renewed Lease after which a leader fails its liveness probe
STALL_LIMIT = 10.0  # s without an iteration of housekeeping after which any replica does


class Scheduler:
    def __init__(
        self,
        settings: SchedulerSettings,
        clock: Clock | None = None,
        client: Client | None = None,
        *,
        garbage: GcControl | None = None,
    ) -> None:
        own = OwnCertificate(settings, clock or SystemClock()) if settings.issue_certificates else None
        self.settings = settings = settings if own is None else own.settings
        self.clock: Clock = clock or SystemClock()
        self.client = client or Client(
            credentials.find(settings.kubeconfig, exec_in_pod=settings.exec_in_pod),
            qps=settings.qps,
            burst=settings.burst,
            connections=settings.connections,
            clock=self.clock,
        )
        self.identity = settings.identity or unique_identity()
        self._news = asyncio.Event()
        self.parts: Components = assemble(settings, self.clock, self.client, self.may_bind, self._on_queue_move)
        cluster, metrics = self.parts.cluster, self.parts.metrics
        self.watches = Informers(self.client, cluster, self.clock, metrics, registered=self.parts.registrations.kinds)
        self.writer = ApiWriter(
            self.client, self.clock, self.may_bind, workers=settings.writers, event_workers=settings.event_workers,
            most={Urgency.EVENT: settings.event_queue, Urgency.SCHEDULED_EVENT: SPILL * settings.event_queue},
            busy=self._busy, on_result=metrics.written,
        )  # fmt: skip
        self.recorder = EventRecorder(
            self.client, self.writer, "carico-scheduler", f"carico-scheduler-{self.identity}", self.clock,
            on_lost=metrics.events_lost.inc,
        )  # fmt: skip
        self.failures = Failures(self.client, self.writer, cluster, self.recorder, metrics, self.clock)
        concluder = BindingFinisher(cluster, self.recorder, self.parts.ring, metrics, self.clock, self.failures.handle)
        self.binder = Binder(
            self.client, concluder, self.clock,
            slots=self.parts.slots, waiting=self.parts.waiting, may_bind=self.may_bind,
        )  # fmt: skip
        self.extender = self._extender() if settings.extender_listen else None
        self.capacities = (
            CapacityPublisher(self.parts.snapshot, self.parts.ledger, self.client, self.writer, self.clock)
            if settings.node_capacities
            else None
        )
        self._schedules = False
        self.rejections = KubeletRejections(self.client, metrics, self.clock, self.parts.profiles)
        times = LeaseTimes(
            settings.leader_elect_lease_duration,
            settings.leader_elect_renew_deadline,
            settings.leader_elect_retry_period,
        )
        self.election = Election(
            self.client,
            settings.leader_elect_resource_namespace,
            settings.leader_elect_resource_name,
            self.identity,
            self.clock,
            times,
        )
        self.certificates = CertificateMaker(own, self.client, self.clock, self.may_bind) if own is not None else None
        self.live = Publisher(self.parts, self.clock, self._standing) if settings.page else None
        record = None if self.live is None else self.live.columns.record
        self.listener = ReportListener(cluster, metrics, self.clock, settings.heartbeat, self.may_bind, record)
        self.class_costs = ClassesClient(settings, self.clock, cluster.aggregated) if settings.aggregator else None
        self.reports = ReportService(self.listener, self.clock, self.listener.refused)
        self.listener.send, cluster.on_node = self.reports.send, self.listener.node_changed
        registry = self.parts.registry
        tokens = self._tokens(TokenMetrics(registry, "scheduler"))
        self._grpc = GrpcServer(
            settings.grpc_listen, settings, {METHOD: self.reports.method}, GrpcServerMetrics(registry), tokens
        )
        registry.register(routes.present(self))
        registry.register(routes.certificates(self))
        self.client.on_answer = RequestMetrics(registry, self.client.host).answered
        self._lag = loop_lag(registry, "scheduler")
        self._servers = servers.servers(self)
        self._garbage = garbage or GcControl(ours=False)
        self._rng = np.random.default_rng()
        self._turned_at = self.clock.monotonic()

    # --- life ---

    async def run(self, end: asyncio.Event) -> None:
        """Runs until `end` is set, the Lease is lost, or an unrecoverable error is raised."""
        grpc_port = await self._grpc.start()
        ports = [f"{server.name} on port {await server.start()}" for server in self._servers]
        log.info("scheduler %s, %s: gRPC on port %d, %s", __version__, self.identity, grpc_port, ", ".join(ports))
        lead = asyncio.create_task(self._lead())
        others = [self.watches.run(), self.recorder.run(), self.writer.run(), self._keep_house()]
        others += [self.parts.registrations.run(), self.rejections.run(), Ticker(self.clock, LAG_EVERY).run(self._lag)]
        if self.extender is not None:
            others.append(self.extender.wakeup.run())
        if self.live is not None:
            others.append(self.live.run())
        if self.certificates is not None:
            others.append(self.certificates.run())
        if self.class_costs is not None:
            others.append(self.class_costs.run())
        tasks: list[asyncio.Task[Any]] = [lead, *(asyncio.create_task(one) for one in others)]
        try:
            await process.first_to_end(end, tasks)
        finally:
            await self._stop(lead, tasks)

    async def _stop(self, lead: asyncio.Task[Any], tasks: list[asyncio.Task[Any]]) -> None:
        """Stops scheduling, finishes what was sent, and then releases the Lease.

        If a binding may still take effect, the Lease is not released: the next leader waits until it expires.
        """
        await process.cancel([lead])
        try:
            async with asyncio.timeout(DRAIN):
                await self.binder.drain()
                if self.extender is not None:
                    await self.extender.drain()
                await self.writer.drain(ABOUT_PODS)
                async with asyncio.timeout(EVENT_DRAIN):
                    await self.writer.drain()
        except TimeoutError:
            log.warning(
                "ending with %d bindings and %d other writes unsent", self._bindings_in_flight, len(self.writer)
            )
        if not self._bindings_in_flight:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RELEASE):
                    await self.election.release()
        await self.election.stop()
        await self.binder.abandon()
        if self.extender is not None:
            await self.extender.close()
        await process.cancel(tasks)
        await self._grpc.stop()
        for server in self._servers:
            await server.stop()
        await self.client.close()

    @property
    def _bindings_in_flight(self) -> int:
        return self.binder.in_flight + (self.extender.in_flight if self.extender is not None else 0)

    async def _lead(self) -> None:
        await self.watches.wait_for_sync()
        self._garbage.settle()
        if not self.settings.leader_elect:
            self._expect_reports()
            await self._schedule()
            return
        await self.election.run(self._led)
        raise CaricoError("the lease was lost; this replica ends so that it can be restarted")

    async def _led(self) -> None:
        """Starts as a new leader, after a refresh that makes every binding of the previous one visible."""
        await self.watches.pods.refresh()
        self._expect_reports()
        self.parts.queue.activate_all(self.clock.monotonic())
        self.reports.announce()
        await self._schedule()

    def _expect_reports(self) -> None:
        """Gives agents one heartbeat to connect to a process that has just started."""
        self.parts.ledger.expect_reports(self.clock.monotonic() + self.listener.heartbeat())

    def _extender(self) -> Extender:
        pods = self.watches.pods.store
        return Extender(self.parts, self.clock, pods, self.client, self.writer, self.may_bind)

    def _tokens(self, token_metrics: TokenMetrics) -> Tokens | None:
        if not self.settings.token_audience:
            return None
        accounts = Accounts.of(self.settings, self.client.namespace)
        reviews = TokenReviews(self.client, self.settings.token_audience, accounts, self.clock, token_metrics)
        return Tokens(accounts, reviews, self.clock)

    def may_bind(self) -> bool:
        return self.election.leading or not self.settings.leader_elect

    def _standing(self) -> ReplicaStatus:
        """The state of this replica for the page."""
        holder = self.election.holder if self.settings.leader_elect else self.identity
        return ReplicaStatus(self.identity, self.may_bind(), holder, self.watches.is_synced, self.binder.bound)

    # --- scheduling ---

    async def _schedule(self) -> None:
        self._schedules = True
        self.parts.metrics.leader.set(1)
        try:
            while True:
                await self._next()
        finally:
            self._schedules = False
            self.parts.metrics.leader.set(0)

    async def _next(self) -> None:
        """Schedules pods for at most TURN seconds, then yields to watches, reports and answers."""
        await self.binder.wait_for_place()
        end, began = perf_counter() + TURN, thread_time()
        while self.binder.has_place:
            queued = self.parts.queue.pop(self.clock.monotonic()) if self.may_bind() else None
            if queued is None:
                await self._wait_for_news()
                return
            self._attempt(queued)
            self._garbage.tidy()
            if perf_counter() >= end:
                break
        if thread_time() - began < LONG_TURN:
            await asyncio.sleep(0)
        else:  # one iteration of the event loop is not enough for everything that waits
            await self.clock.sleep(PAUSE)

    def _attempt(self, queued: Queued) -> None:
        """One scheduling cycle; the pod then enters its binding cycle or is requeued."""
        if queued.pod_group is not None:
            self._attempt_group(queued)
            return
        profile = self.parts.profiles[queued.info.pod.spec.scheduler_name]
        began = perf_counter()
        try:
            decision = decide(profile, self.parts.cluster, queued.info, self._rng)
        except Exception as error:
            log.exception("scheduling %s broke", queued.info.pod.key)
            decision = broken(self.parts.cluster, queued.info, error)
        took = perf_counter() - began
        self.parts.metrics.algorithm_seconds.observe(took)
        self._record(profile, queued, decision, took)
        if decision.node and decision.figures.stale_rule:
            self.parts.metrics.stale_placements.labels(decision.figures.stale_rule).inc()
        if decision.node:
            self.binder.start(profile, queued, decision, began)
            return
        self._count_failure(profile, decision, took)
        self.failures.handle(queued, decision)

    def _attempt_group(self, first: Queued) -> None:
        """The same for all pods of a group: each of them enters its binding cycle, or they are requeued as one."""
        profile = self.parts.profiles[first.info.pod.spec.scheduler_name]
        began = perf_counter()
        try:
            found = decide_group(profile, self.parts.cluster, first.infos, self._rng)
        except Exception as error:
            log.exception("scheduling the group of %s broke", first.info.pod.key)
            found = GroupDecision(refused=broken(self.parts.cluster, first.info, error))
        took = perf_counter() - began
        self.parts.metrics.algorithm_seconds.observe(took)
        if found.refused is not None:
            self._count_failure(profile, found.refused, took)
            self._record(profile, first, found.refused, took)
            self.failures.handle_group(first, found.refused)
            return
        for queued, decision in zip(self.parts.queue.split(first), found.placed, strict=True):
            self._record(profile, queued, decision, took / len(found.placed))
            self.binder.start(profile, queued, decision, began)

    def _count_failure(self, profile: Profile, decision: Decision, took: float) -> None:
        result = "error" if decision.code is Code.ERROR else "unschedulable"
        self.parts.metrics.attempts.labels(result, profile.name).inc()
        self.parts.metrics.attempt_seconds.labels(result, profile.name).observe(took)

    def _record(self, profile: Profile, queued: Queued, decision: Decision, took: float) -> None:
        pod = queued.info.pod
        free = decision.figures.free if decision.node else None
        result = "scheduled" if decision.node else "error" if decision.code is Code.ERROR else "unschedulable"
        self.parts.ring.add(
            DecisionRecord(
                self.clock.wall(), pod.key, pod.uid, profile.name, queued.attempts, decision.node, result,
                decision.feasible, self.parts.snapshot.node_count, _rounded(free), units_of(pod),
                decision.message, round(took * 1e6, 1), _rounded(decision.figures.need),
            )
        )  # fmt: skip

    async def _wait_for_news(self) -> None:
        if not self.may_bind():  # the Lease is not fresh: no scheduling, also if pods are due
            await self.clock.sleep(HOUSEKEEPING)
            return
        self._news.clear()
        if self.parts.queue.ready:
            return
        pause = min(HOUSEKEEPING, max(0.0, self.parts.queue.next_due() - self.clock.monotonic()))
        try:
            async with asyncio.timeout(pause):
                await self._news.wait()
        except TimeoutError:
            pass

    def _on_queue_move(self, queue: str) -> None:
        if queue in ("active", "backoff"):
            self._news.set()

    def _busy(self) -> bool:
        return self.parts.slots.busy

    # --- health ---

    async def _keep_house(self) -> None:
        flushed_at = self.clock.monotonic()
        while True:
            now = self._turned_at = self.clock.monotonic()
            if self.listener.adjust_heartbeat():
                self.reports.announce()
            if now - flushed_at >= FLUSH_EVERY:
                flushed_at = now
                self.parts.queue.flush(now)
            if self.extender is not None:
                self.extender.reservations.let_go()
            self.parts.cluster.tick()
            if self.capacities is not None and self._schedules and self.may_bind():
                self.capacities.tick()
            self._garbage.tidy()
            if not self.parts.queue.counts()["active"]:
                self._garbage.sweep(now)
            await self.clock.sleep(HOUSEKEEPING)

    def why_not_alive(self) -> str | None:
        now = self.clock.monotonic()
        if now - self._turned_at > STALL_LIMIT:
            return f"the event loop has not run for {now - self._turned_at:.0f} s"
        if self.election.elected and now - self.election.renewed_at > RENEWAL_LIMIT:
            return f"this leader has not renewed its lease for {now - self.election.renewed_at:.0f} s"
        return None

    @property
    def reflectors(self) -> list[Reflector[Any]]:
        return [*self.watches.all, self.rejections.reflector]

    def why_not_ready(self) -> str | None:
        if not self.watches.is_synced:
            return "the initial lists of the API server's objects are not complete"
        return self.certificates.why_not_ready() if self.certificates is not None else None


def _rounded(figure: float | None) -> float | None:
    return None if figure is None else round(figure, 3)
