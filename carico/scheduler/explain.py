"""Why this node, why not that one: the verdict of every plugin about every node, numbers included.

The same filters and scores as in a real cycle, asked about all nodes, and nothing is reserved.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from carico.kube.objects import Pod
from carico.scheduler.assembly import Parts
from carico.scheduler.feasible import Feasibility
from carico.scheduler.framework import Cycle, Nomination
from carico.scheduler.profiles import Profile
from carico.scheduler.template import PodInfo
from carico.scheduler.units import units_of
from carico.table import table


class NodeVerdict(msgspec.Struct, omit_defaults=True):
    node: str
    feasible: bool
    reasons: dict[str, list[str]] = {}  # by plugin
    scores: dict[str, float] = {}  # by plugin, weighted
    total: float = 0.0
    free: float | None = None  # pods; None without a report
    capacity: float | None = None
    reserved: float = 0.0
    report_age: float | None = None  # s
    stale: bool = False


class Explanation(msgspec.Struct, omit_defaults=True):
    pod: str
    profile: str
    units: float
    message: str = ""
    choice: list[str] = []  # nodes with the highest score: one of them would be chosen
    bound_to: str = ""
    waits_in: str = ""  # the queue
    preemption: dict[str, Any] = {}  # node and victims, if evicting pods would help
    nodes: list[NodeVerdict] = []


def explain(parts: Parts, pod: Pod, now: float) -> Explanation:
    """For a pod that runs already: as if it were not there."""
    name = pod.spec.scheduler_name if pod.spec.scheduler_name in parts.profiles else next(iter(parts.profiles))
    profile = parts.profiles[name]
    info = PodInfo(pod)
    known = parts.snapshot.pods.get(info.uid)
    if known is not None:
        parts.snapshot.remove_pod(info.uid)
    try:
        return _explain(parts, profile, info, now)
    finally:
        if known is not None:
            parts.snapshot.add_pod(known[0], pod.spec.node_name or parts.snapshot.name(known[1]))


def _explain(parts: Parts, profile: Profile, info: PodInfo, now: float) -> Explanation:
    pod, cycle = info.pod, Cycle(info, parts.snapshot)
    feasibility = profile.feasible.run(cycle, everywhere=True)
    queued = parts.queue.get(info.uid)
    result = Explanation(pod.key, profile.name, units_of(pod), bound_to=pod.spec.node_name)
    result.waits_in = queued.place if queued is not None else ""
    if queued is not None and queued.gate is not None:
        result.message = queued.gate.status.message
    verdicts = {row: _verdict(parts, feasibility, row, now) for row in np.flatnonzero(parts.snapshot.present).tolist()}
    result.nodes = sorted(verdicts.values(), key=lambda v: v.node)
    rows: list[int] = feasibility.rows.tolist()
    if rows:
        for plugin, weight, scores in profile.scoring.table(cycle, feasibility.rows):
            for row, score in zip(rows, scores, strict=True):
                verdicts[row].scores[plugin] = round(float(weight * score), 3)
        for row in rows:
            verdicts[row].total = round(sum(verdicts[row].scores.values()), 3)
        best = max(verdicts[row].total for row in rows)
        result.choice = sorted(verdicts[row].node for row in rows if verdicts[row].total == best)
    else:
        result.message = result.message or feasibility.message()
        for plugin_ in profile.post_filters:
            if isinstance(nomination := plugin_.post_filter(cycle, feasibility), Nomination):
                victims = [victim.pod.key for victim in nomination.victims]
                result.preemption = {"node": nomination.node, "victims": victims}
    return result


def _verdict(parts: Parts, feasibility: Feasibility, row: int, now: float) -> NodeVerdict:
    ledger, name = parts.ledger, parts.snapshot.name(row)
    if feasibility.verdicts:
        reasons = {plugin: [r.text for r in why] for plugin, why in feasibility.why(row).items()}
    else:
        reasons = {plugin: list(feasibility.status.reasons) for plugin in feasibility.refusing}
    if row in feasibility.nominated:
        reasons["Nominated"] = [feasibility.nominated[row]]
    verdict = NodeVerdict(name, bool(feasibility.mask[row]), reasons)
    account = ledger.account(name)
    if account is not None:
        verdict.reserved = round(float(ledger.reserved[row]), 3)
        verdict.stale = not ledger.is_fresh(row, now)
        if account.report is not None:
            verdict.capacity = round(float(ledger.capacity[row]), 3)
            verdict.free = round(float(ledger.free[row]), 3)
            verdict.report_age = round(now - account.sampled, 1)
    else:
        verdict.stale = True
    return verdict


def as_table(result: Explanation) -> str:
    """
    >>> print(as_table(Explanation("default/a", "carico", 1.0, nodes=[NodeVerdict("n1", True, free=2.5, total=90.0)])))
    default/a, profile carico, 1 unit(s)
    NODE  FREE  SCORE  VERDICT
    n1     2.5   90.0  ok
    """
    lines = []
    for v in result.nodes:
        why = "; ".join(f"{plugin}: {', '.join(texts)}" for plugin, texts in v.reasons.items())
        free = "?" if v.free is None else f"{v.free:.1f}"
        scores = ", ".join(f"{plugin} {score:g}" for plugin, score in v.scores.items())
        verdict = f"ok ({scores})" if scores else "ok"
        lines.append((v.node, free, f"{v.total:.1f}" if v.feasible else "-", verdict if v.feasible else why))
    return "\n".join([*_head(result), table(("NODE", "FREE", "SCORE", "VERDICT"), lines, right=(1, 2))])


def _head(result: Explanation) -> list[str]:
    head = [f"{result.pod}, profile {result.profile}, {result.units:g} unit(s)"]
    if result.bound_to:
        head.append(f"runs on {result.bound_to}")
    if result.waits_in:
        head.append(f"waits ({result.waits_in})")
    if result.choice:
        head.append(f"would go to {' or '.join(result.choice[:5])}{' …' if len(result.choice) > 5 else ''}")
    if result.message:
        head.append(result.message)
    if result.preemption:
        head.append(
            f"evicting {', '.join(result.preemption['victims'])} from {result.preemption['node']} would make room"
        )
    return head
