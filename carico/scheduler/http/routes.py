"""The scheduler's pages: health and metrics are open; ledger, classes, queue, decisions and explain are private."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from prometheus_client.core import GaugeMetricFamily

from carico.certificate_metrics import CertificateCollector, from_file
from carico.errors import TooManyRequests, UsageError
from carico.http.message import JSON, Page, Request, text
from carico.http.routes import POST, Route, exposition, health, shown
from carico.kube.decode import FAILURES
from carico.kube.objects import Pod
from carico.scheduler.cache.charge import RESOURCES
from carico.scheduler.cache.ledger import Ledger
from carico.scheduler.http import manifest
from carico.scheduler.http.class_view import ClassRow, class_rows
from carico.scheduler.http.dashboard import site
from carico.scheduler.http.explain import Explainer
from carico.scheduler.http.explanation import as_table, rounded
from carico.scheduler.informers import progress_lines
from carico.scheduler.metrics import ScrapeGauges, gauge

if TYPE_CHECKING:
    from carico.scheduler.process import Scheduler


CLASSES_SHOWN = 100  # in the metrics, the most expensive in total
POD_LIMIT = 2 << 20  # bytes: etcd accepts at most 1.5 MiB by default


def open_routes(scheduler: Scheduler) -> dict[str, Route]:
    """For probes and Prometheus; unauthenticated."""
    return exposition(scheduler.parts.registry) | health(
        scheduler.why_not_alive,
        scheduler.why_not_ready,
        lambda: progress_lines(scheduler.reflectors, scheduler.clock.monotonic()),
    )


def private_routes(scheduler: Scheduler) -> dict[str, Route]:
    """The open routes, the web page and everything that exposes pod names."""
    explainer, live = Explainer(scheduler.parts, scheduler.clock), scheduler.live
    return {
        **open_routes(scheduler),
        "/debug/ledger": shown(lambda: _json(ledger_rows(scheduler))),
        "/debug/classes": shown(lambda: _json({"classes": classes(scheduler)})),
        "/debug/queue": shown(lambda: _json(queue_rows(scheduler))),
        "/debug/decisions": shown(lambda: Page(HTTPStatus.OK, "application/jsonl", scheduler.parts.ring.dump())),
        "/explain": Route(lambda request: _explain(scheduler, explainer, request)),
        "/simulate": Route(lambda request: _simulate(explainer, request), POST, POD_LIMIT),
        **(site.routes(live) if live is not None else {}),
    }


def present(scheduler: Scheduler) -> ScrapeGauges:
    """Metrics that are computed at each scrape."""
    return ScrapeGauges(lambda: _present(scheduler))


def certificates(scheduler: Scheduler) -> CertificateCollector:
    """Expiry of the certificates of the servers here, and of the client of the API server."""
    shown = {"tls_cert": from_file(scheduler.settings.tls_cert), "kubeconfig": scheduler.client.certificate}
    if scheduler.certificates is not None:
        issuer = scheduler.certificates.issuer
        shown["authority"] = lambda: issuer.authority  # of the leader
    return CertificateCollector("scheduler", shown)


def ledger_rows(scheduler: Scheduler) -> dict[str, Any]:
    ledger, now = scheduler.parts.ledger, scheduler.clock.monotonic()
    rows = {
        node: {
            "capacity": rounded(float(ledger.pod_capacity[account.row])),
            "reserved": rounded(float(ledger.reserved[account.row])),
            "free": rounded(float(ledger.free[account.row])),
            "left": amounts_left(ledger, account.row),
            "starting": int(ledger.starting[account.row]),
            "stale": not ledger.is_fresh(account.row, now),
            "age": round(now - account.sampled, 2) if account.report else None,
            "pods": sorted(account.pods),
            "counted": len(account.counted or ()),
        }
        for node, account in sorted(ledger.accounts())
    }
    return {"leader": scheduler.may_bind(), "heartbeat": ledger.heartbeat, "nodes": rows}


def classes(scheduler: Scheduler, order: str = "difference") -> list[ClassRow]:
    return class_rows(scheduler.parts.classes, scheduler.parts.ledger, scheduler.clock.monotonic(), order)


def queue_rows(scheduler: Scheduler) -> dict[str, Any]:
    queue, waiting, now = scheduler.parts.queue, scheduler.parts.waiting, scheduler.clock.monotonic()
    pods = [
        {
            "pod": q.info.pod.key,
            "queue": q.place,
            "priority": q.info.priority,
            "attempts": q.attempts,
            "waited": round(now - q.queued_at, 2),
            "pause": round(max(0.0, q.ready_at - now), 2),
            "refused_by": sorted(q.refusal.plugins) or ([q.gate.plugin] if q.gate else []),
            "waits_for": in_flight.waits_for if (in_flight := waiting.get(q.uid)) is not None else "",
        }
        for q in queue.pods()
    ]
    return {"counts": queue.counts(), "pods": pods}


async def _explain(scheduler: Scheduler, explainer: Explainer, request: Request) -> Page:
    key = request.query.get("pod", "")
    pod = scheduler.watches.pods.store.get(key)
    if pod is None:
        return text(HTTPStatus.NOT_FOUND, f"no pod {key!r} is known here" if key else "use ?pod=NAMESPACE/NAME")
    return await _respond(explainer, pod, request)


async def _simulate(explainer: Explainer, request: Request) -> Page:
    try:
        plain = msgspec.json.decode(request.body, type=dict[str, Any])
        pod = manifest.as_pod(plain, "the body")
    except (*FAILURES, UsageError) as error:
        return text(HTTPStatus.BAD_REQUEST, f"the body is not a pod: {error}")
    # Only the API server assigns UIDs: without one, its defaults and admission are missing.
    return await _respond(explainer, manifest.as_stranger(pod), request, *(() if pod.uid else (manifest.UNKNOWN,)))


async def _respond(explainer: Explainer, pod: Pod, request: Request, *notes: str) -> Page:
    try:
        result = await explainer.explain(pod)
    except TooManyRequests:
        return text(HTTPStatus.TOO_MANY_REQUESTS, "too many explanations are requested at once; try again")
    result.notes += notes
    if request.query.get("format") == "table":
        return text(HTTPStatus.OK, await asyncio.to_thread(as_table, result))
    return Page(HTTPStatus.OK, JSON, msgspec.json.encode(result))


def _json(value: Any) -> Page:
    return Page(HTTPStatus.OK, JSON, msgspec.json.encode(value))


def _present(scheduler: Scheduler) -> Iterable[GaugeMetricFamily]:
    parts = scheduler.parts
    queue, ledger, snapshot = parts.queue, parts.ledger, parts.snapshot
    counts = queue.counts()
    names = {"active": "active", "backoff": "backoff", "unschedulable": "waiting", "gated": "gated"}
    pending = {(shown,): float(counts[name]) for shown, name in names.items()}
    yield gauge("scheduler_pending_pods", "Pending pods, by the queue.", pending, ("queue",))
    size = {
        ("nodes",): float(snapshot.node_count),
        ("pods",): float(len(snapshot.pods)),
        ("assumed_pods",): float(len(parts.cluster.assumed)),
    }
    yield gauge("scheduler_cache_size", "Nodes, pods and assumed pods in the cache.", size, ("type",))
    yield gauge(
        "scheduler_unschedulable_pods",
        "Waiting pods by the plugin that refused them.",
        _refused(scheduler),
        ("plugin", "profile"),
    )
    fresh = ledger.fresh(scheduler.clock.monotonic())[: len(snapshot)]
    stale = int(np.count_nonzero(snapshot.present[: len(fresh)] & ~fresh))
    yield GaugeMetricFamily("carico_scheduler_stale_nodes", "Nodes without a recent report.", value=stale)
    measured = {name for profile in parts.profiles.values() for name in profile.measured}
    yield GaugeMetricFamily(
        "carico_scheduler_pods_waiting_for_capacity",
        "Pods that wait for Pod-Capacity.",
        value=queue.refused_by(measured),
    )
    yield gauge(
        "carico_scheduler_watch_progress_timestamp_seconds",
        "When the last event, bookmark or list of a watch came.",
        _watch_progress(scheduler),
        ("kind",),
    )
    in_flight = {(what,): float(count) for what, count in parts.waiting.counts().items()}
    about = "Pods that have a node, by what they wait for."
    yield gauge("carico_scheduler_pods_in_flight", about, in_flight, ("waits_for",))
    events = len(scheduler.recorder)
    yield GaugeMetricFamily("carico_scheduler_events_waiting", "Events that have not been sent.", value=events)
    unsent = {(kind.name.lower(),): float(count) for kind, count in scheduler.writer.counts().items()}
    yield gauge("carico_scheduler_writes_waiting", "Writes to the API server that have not ended.", unsent, ("kind",))
    if scheduler.capacities is not None:
        about = "Nodes whose NodeCapacity object is not what this leader knows."
        yield GaugeMetricFamily(
            "carico_scheduler_node_capacities_outdated", about, value=scheduler.capacities.due.differing
        )
    lease = {(scheduler.settings.leader_elect_resource_name,): float(scheduler.election.elected)}
    yield gauge(
        "leader_election_master_status",
        "1 while this replica holds the Lease of this name, 0 while it stands by.",
        lease if scheduler.settings.leader_elect else {},
        ("name",),
    )
    if snapshot.node_count <= scheduler.settings.per_node_metrics:
        rows = {(node,): account.row for node, account in ledger.accounts()}
        for name, column, about in (
            ("free", ledger.free, "How many more pods the scheduler would place on a node: capacity minus reserved."),
            ("reserved", ledger.reserved, "Pods that are reserved on a node and that its report does not count yet."),
        ):
            values = {node: float(column[row]) for node, row in rows.items()}
            yield gauge(f"carico_node_{name}_pods", about, values, ("node",))
        left = {node: amounts_left(ledger, row) for node, row in rows.items()}
        yield from _by_unit("carico_node_left", "on a node that is not reserved", left, "node")
    yield from _class_gauges(scheduler)


def _class_gauges(scheduler: Scheduler) -> Iterable[GaugeMetricFamily]:
    """Of the most expensive classes only: users can create any number of classes."""
    rows = classes(scheduler, "cost")
    yield GaugeMetricFamily("carico_scheduler_classes", "Classes of pods that are known.", value=len(rows))
    measured = sum(row.measured > 0 for row in rows)
    yield GaugeMetricFamily("carico_scheduler_measured_classes", "Classes of pods that were measured.", value=measured)
    top = rows[:CLASSES_SHOWN]
    pods = {(row.family,): float(row.pods) for row in top}
    yield gauge("carico_scheduler_class_pods", "Pods on nodes, of the most expensive classes.", pods, ("family",))
    charged = {(row.family,): row.charged for row in top}
    about = "that is reserved for one pod, of the most expensive classes"
    yield from _by_unit("carico_scheduler_class_cost", about, charged, "family")


def _by_unit(
    name: str, about: str, amounts: Mapping[tuple[str], Mapping[str, float]], label: str
) -> Iterable[GaugeMetricFamily]:
    """One metric per resource: a metric name has one unit."""
    for resource, unit, what in (("cpu", "cores", "CPU"), ("memory", "bytes", "Memory")):
        values: dict[tuple[str, ...], float] = {
            key: each[resource] for key, each in amounts.items() if resource in each
        }
        yield gauge(f"{name}_{resource}_{unit}", f"{what} {about}.", values, (label,))


def amounts_left(ledger: Ledger, row: int) -> dict[str, float]:
    """Room that is not reserved, by resource; empty where no room is reported."""
    column = ledger.left[:, row].tolist() if ledger.has_room[row] else []
    return {name: amount for name, amount in zip(RESOURCES, column, strict=False) if amount < math.inf}


def _watch_progress(scheduler: Scheduler) -> dict[tuple[str, ...], float]:
    """As Unix time, so that Prometheus can compute the age at query time."""
    offset = scheduler.clock.wall() - scheduler.clock.monotonic()
    return {(reflector.resource.kind,): offset + reflector.progressed_at for reflector in scheduler.reflectors}


def _refused(scheduler: Scheduler) -> dict[tuple[str, ...], float]:
    found: dict[tuple[str, ...], float] = {}
    for queued in scheduler.parts.queue.pods():
        for plugin in queued.refusal.plugins if queued.place == "waiting" else ():
            key = (plugin, queued.info.pod.spec.scheduler_name)
            found[key] = found.get(key, 0.0) + 1
    return found
