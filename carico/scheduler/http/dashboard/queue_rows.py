"""The queue with reasons, and the decisions, as rows of the page: the first few, and how many more there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import islice
from typing import Any

from carico.kube.objects import Pod
from carico.scheduler.cache.units import of_baseline
from carico.scheduler.cycle.decision_log import DecisionLog, DecisionRecord
from carico.scheduler.framework.amounts import cores, size
from carico.scheduler.http.class_view import ClassRow, quantities
from carico.scheduler.queue.entries import Queued
from carico.scheduler.queue.scheduling_queue import Queue

LISTED = 100  # pods of the queue that are listed
COUNTED = 5000  # pods that are examined: a queue of 100,000 must not block the event loop
DECISIONS = 50  # that a reader keeps
TEXT = 400  # characters of a reason


def queue_view(queue: Queue) -> dict[str, Any]:
    """Counts per place, the reasons by how many pods they hold back, and the pods that have waited longest."""
    looked_at = list(islice(queue.pods(), COUNTED))
    held = [queued for queued in looked_at if queued.place in ("waiting", "gated", "backoff")]
    listed = (held or looked_at)[:LISTED]
    blocked = Counter(", ".join(_refused_by(queued)) for queued in held if _refused_by(queued))
    return {
        "counts": queue.counts(),
        "blocked": [[plugins, count] for plugins, count in blocked.most_common(8)],
        "looked_at": len(looked_at),
        "pods": [_pod_row(queued) for queued in listed],
    }


def _pod_row(queued: Queued) -> dict[str, Any]:
    pod = queued.info.pod
    return {
        "uid": pod.uid,
        "pod": pod.key,
        "place": queued.place,
        "since": round(queued.queued_at, 1),
        "attempts": queued.attempts,
        "priority": queued.info.priority,
        "by": _refused_by(queued),
        "why": _why(queued)[:TEXT],
    }


def _refused_by(queued: Queued) -> list[str]:
    return sorted(queued.refusal.plugins) or ([queued.gate.plugin] if queued.gate else [])


def _why(queued: Queued) -> str:
    """The same sentence as in `kubectl describe pod`."""
    if queued.gate is not None:
        return queued.gate.status.message
    return scheduled_condition(queued.info.pod) if queued.attempts else ""


def scheduled_condition(pod: Pod) -> str:
    messages = (c.message for c in pod.status.conditions if c.type == "PodScheduled" and c.status == "False")
    return next(messages, "")


def decision_rows(ring: DecisionLog, mark: int) -> list[dict[str, Any]]:
    """What was decided since `ring.added` was `mark`, the newest first."""
    return [_decision(record) for record in ring.latest(min(DECISIONS, ring.added - mark))]


def _decision(record: DecisionRecord) -> dict[str, Any]:
    return {
        "at": round(record.at, 3),
        "pod": record.pod,
        "node": record.node,
        "result": record.result,
        "attempt": record.attempt,
        "feasible": record.feasible,
        "nodes": record.nodes,
        "free": record.free_before,
        "why": record.reasons[:TEXT],
        "micros": record.micros,
    }


def pod_rows(pods: Iterable[Pod], answered: Iterable[str], most: int) -> list[list[str]]:
    """Name, phase, and whether the node's report counts the pod yet."""
    known = frozenset(answered)
    ordered = sorted(pods, key=lambda pod: pod.key)[:most]
    return [[pod.key, pod.status.phase, _hand_over(pod, known)] for pod in ordered]


def _hand_over(pod: Pod, known: frozenset[str]) -> str:
    if of_baseline(pod):
        return "baseline"
    return "counted" if pod.uid in known else "reserved"


def class_row(row: ClassRow) -> dict[str, Any]:
    uses = f"{cores(row.uses.get('cpu', 0.0))} and {size(row.uses.get('memory', 0.0))}"
    return {
        "family": row.family,
        "pods": row.pods,
        "measured": row.measured,
        "uses": uses,
        "requests": quantities(row.requests),
        "suggested": quantities(row.suggested),
    }
