"""Explains a placement: the verdict of every plugin about every node, with numbers.

The filters and scores are those of a real cycle, and nothing is reserved. All plugins run in one step, over a
consistent state; the answer per node is then built from copies, a few hundred nodes at a time, so that a scheduler of
thousands of nodes continues to work meanwhile.
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np

from carico.clock import Clock
from carico.errors import TooManyRequests
from carico.kube.objects import Pod
from carico.scheduler.assembly import Components
from carico.scheduler.cache.accounts import Account
from carico.scheduler.cache.charge import RESOURCES, Sum
from carico.scheduler.cache.rows import Mask, RowArray
from carico.scheduler.cache.template import PodInfo
from carico.scheduler.cache.units import counts, units_of
from carico.scheduler.cycle.profiles import Profile, RowTexts
from carico.scheduler.framework import amounts
from carico.scheduler.framework.contract import Cycle, Nomination, Reason, Verdict, Wait
from carico.scheduler.framework.filtering import FilterResult
from carico.scheduler.http.explanation import Explanation, NodeVerdict, rounded
from carico.scheduler.plugins.capacity_explained import room_left

SLICE = 200  # nodes per step of the event loop
PREEMPTION_ROWS = 50  # nodes on which evicting pods is simulated, at some 2 ms each
WAITING = 8  # explanations that may wait while another is in progress


class Explainer:
    """For a running scheduler: one explanation at a time, and the event loop runs between its steps."""

    def __init__(self, parts: Components, clock: Clock) -> None:
        self._parts, self._clock = parts, clock
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def explain(self, pod: Pod) -> Explanation:
        if self._waiting > WAITING:
            raise TooManyRequests
        self._waiting += 1
        try:
            async with self._turn:
                judged = judge(self._parts, pod, self._clock.monotonic())
                for _ in judged.slices():
                    await asyncio.sleep(0)
                return judged.result
        finally:
            self._waiting -= 1


def explain(parts: Components, pod: Pod, now: float) -> Explanation:
    """The same in one step, for commands. A pod that runs already is hypothetically removed."""
    judged = judge(parts, pod, now)
    for _ in judged.slices():
        pass
    return judged.result


class _Figures(NamedTuple):
    """The ledger's figures; lists with one entry per node."""

    known: list[bool]
    fresh: list[bool]
    free: list[float]
    capacity: list[float]
    reserved: list[float]
    sampled: list[float | None]  # s, monotonic; None: it never reported
    left: list[list[float] | None]  # absolute demand, per RESOURCES; None: no room is reported
    busy: list[str]  # how much of its cpu a node uses, as text


@dataclass(slots=True)
class PluginResults:
    """The results of plugins and ledger at one moment; `slices` turns them into verdicts per node."""

    result: Explanation
    now: float  # s, monotonic
    names: list[str]  # of the nodes, in order
    feasible: list[bool]
    refusals: list[tuple[str, list[int], tuple[Reason, ...]]]  # plugin, bits and what they mean
    everywhere: dict[str, list[str]]  # reasons of pre-filters that rejected the pod as a whole
    scores: list[tuple[str, dict[str, float]]]  # plugin, and weighted score by node
    totals: dict[str, float]
    nominated: dict[str, str]  # nodes that are nominated for another pod, and why
    details: list[tuple[str, dict[str, int], RowTexts]]  # plugin, index by node that it rejected, and its texts
    figures: _Figures

    def slices(self) -> Iterator[None]:
        """Fills `result.nodes`, and yields after every SLICE of them."""
        for start in range(0, len(self.names), SLICE):
            self.result.nodes += [self._verdict(i) for i in range(start, min(start + SLICE, len(self.names)))]
            yield

    def _verdict(self, i: int) -> NodeVerdict:
        name, figures = self.names[i], self.figures
        reasons = {plugin: _texts(bits[i], known) for plugin, bits, known in self.refusals if bits[i]}
        reasons |= self.everywhere
        if name in self.nominated:
            reasons["Nominated"] = [self.nominated[name]]
        scores = {plugin: by_node[name] for plugin, by_node in self.scores if name in by_node}
        verdict = NodeVerdict(name, self.feasible[i], reasons, scores, self.totals.get(name, 0.0))
        texts = {plugin: text_of(by_node[name]) for plugin, by_node, text_of in self.details if name in by_node}
        verdict.details = {plugin: found for plugin, found in texts.items() if found}
        verdict.stale = not (figures.known[i] and figures.fresh[i])
        verdict.reserved = rounded(figures.reserved[i]) if figures.known[i] else 0.0
        sampled = figures.sampled[i]
        if sampled is not None:
            verdict.capacity, verdict.free = rounded(figures.capacity[i]), rounded(figures.free[i])
            verdict.report_age = round(self.now - sampled, 1)
        if (left := figures.left[i]) is not None:
            verdict.left = {name: amount for name, amount in zip(RESOURCES, left, strict=True) if amount < math.inf}
            verdict.room = room_left(verdict.left) + figures.busy[i]
        return verdict


def _texts(bits: int, reasons: tuple[Reason, ...]) -> list[str]:
    return [reason.text for i, reason in enumerate(reasons) if bits >> i & 1]


def judge(parts: Components, pod: Pod, now: float) -> PluginResults:
    """Runs all plugins. A pod that runs already is hypothetically removed, and treated as unbound."""
    name = pod.spec.scheduler_name if pod.spec.scheduler_name in parts.profiles else next(iter(parts.profiles))
    profile = parts.profiles[name]
    info = parts.snapshot.templates.info(pod)
    unbound = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=""))
    cycle = Cycle(parts.snapshot.templates.info(unbound), parts.snapshot)
    with _without(parts, info), _release_reservation(parts, profile, cycle) as given_back:
        feasibility = profile.feasible.run(cycle)
        result = _opening(parts, profile, info)
        totals, scores = _scored(profile, cycle, feasibility.rows)
        if totals:
            best = max(totals.values())
            result.choice = sorted(node for node, total in totals.items() if total == best)
        else:
            result.message = result.message or feasibility.message()
            _explain_preemption(profile, cycle, feasibility, result)
        result.notes += _partly_run(profile, feasibility)
        # Copies: the plugins' answers are valid only until the next cycle.
        rows = np.array(sorted(np.flatnonzero(parts.snapshot.present).tolist(), key=parts.snapshot.name), dtype=np.intp)
        refusals = [(plugin, v.bits[rows].tolist(), v.reasons) for plugin, v in feasibility.verdicts if v.bits.any()]
        status = list(feasibility.status.reasons)
        return PluginResults(
            result=result,
            now=now,
            names=[parts.snapshot.name(row) for row in rows.tolist()],
            feasible=feasibility.mask[rows].tolist(),
            refusals=refusals,
            everywhere={} if feasibility.status.ok else dict.fromkeys(feasibility.refusing, status),
            scores=scores,
            totals=totals,
            nominated={parts.snapshot.name(row): why for row, why in feasibility.nominated.items()},
            details=_details(profile, cycle, feasibility),
            figures=_figures(parts, rows, given_back, now),
        )


@contextmanager
def _without(parts: Components, info: PodInfo) -> Iterator[None]:
    """The snapshot without the pod while the context lasts; no journal notes it."""
    snapshot = parts.snapshot
    if info.uid not in snapshot.pods:
        yield
        return
    row = snapshot.pods[info.uid][1]
    before = dict(snapshot.on[row])
    snapshot.try_without(info.uid)
    try:
        yield
    finally:
        snapshot.undo_try(row, before)


@contextmanager
def _release_reservation(parts: Components, profile: Profile, cycle: Cycle) -> Iterator[dict[int, Sum]]:
    """Counts the pod's own charge in the ledger as free while the context lasts; returns it by row."""
    entry = parts.ledger.entry(cycle.pod.uid)
    account = parts.ledger.account(entry.node) if entry is not None else None
    if entry is None or account is None or not profile.feasible.measured or not counts(cycle.pod.pod):
        yield {}
        return
    profile.feasible.give_back(cycle, account.row)
    parts.ledger.starting[account.row] -= entry.starting
    released = Sum()
    released.add(entry.charge, -1)
    try:
        yield {account.row: released}
    finally:
        parts.ledger.starting[account.row] += entry.starting


def _opening(parts: Components, profile: Profile, info: PodInfo) -> Explanation:
    result = Explanation(info.pod.key, profile.name, units_of(info.pod), bound_to=info.pod.spec.node_name)
    result.needs = profile.explain_need(info, exact=True)
    queued = parts.queue.get(info.uid)
    if queued is not None:
        result.waits_in = queued.place
        if queued.gate is not None:
            result.message = queued.gate.status.message
    return result


def _scored(
    profile: Profile, cycle: Cycle, rows: RowArray
) -> tuple[dict[str, float], list[tuple[str, dict[str, float]]]]:
    """The total of every feasible node, and the weighted score of each plugin; rounded for display."""
    names = [cycle.snapshot.name(row) for row in rows.tolist()]
    total = np.zeros(len(rows))
    by_plugin: list[tuple[str, dict[str, float]]] = []
    for plugin, weight, scores in profile.scoring.table(cycle, rows) if names else ():
        weighted = np.round(weight * scores, 3)
        total += weighted
        by_plugin.append((plugin, dict(zip(names, weighted.tolist(), strict=True))))
    return dict(zip(names, np.round(total, 3).tolist(), strict=True)), by_plugin


def _explain_preemption(profile: Profile, cycle: Cycle, feasibility: FilterResult, result: Explanation) -> None:
    limited, candidates = _limited(feasibility)
    for plugin in profile.post_filters:
        for found in plugin.post_filter(cycle, limited):
            if isinstance(found, Nomination):
                result.preemption = {"node": found.node, "victims": [victim.pod.key for victim in found.victims]}
            elif isinstance(found, Wait):  # victims of an earlier attempt are terminating
                nominated = cycle.snapshot.nominated.get(cycle.pod.uid)
                result.preemption = {"node": nominated.node if nominated is not None else "", "victims": []}
    if candidates > PREEMPTION_ROWS:
        result.notes.append(f"evicting pods was simulated for {PREEMPTION_ROWS} of {candidates} nodes")


def _limited(feasibility: FilterResult) -> tuple[FilterResult, int]:
    """The result limited to PREEMPTION_ROWS nodes on which evicting pods could help, and how many there were."""
    candidates = np.flatnonzero(feasibility.resolvable())
    beyond: Mask = np.zeros(len(feasibility.mask), dtype=np.bool_)
    beyond[candidates[PREEMPTION_ROWS:]] = True
    verdict = Verdict.refuse(beyond, "not looked at", unresolvable=True)
    return dataclasses.replace(feasibility, verdicts=[*feasibility.verdicts, ("", verdict)]), len(candidates)


def _partly_run(profile: Profile, feasibility: FilterResult) -> list[str]:
    """Notes about costly plugins, which are not called for nodes that are rejected already."""
    asked = {name for name, _ in feasibility.verdicts}
    costly = [p.name for p in profile.plugins if p.name in profile.feasible.costly & asked]
    others = [verdict.bits for name, verdict in feasibility.verdicts if name not in costly]
    if not any((bits[feasibility.snapshot.present] != 0).any() for bits in others):
        return []
    return [f"{name} did not run for nodes that plugins before it had rejected" for name in costly]


def _figures(parts: Components, rows: RowArray, given_back: dict[int, Sum], now: float) -> _Figures:
    ledger = parts.ledger
    ledger.extend()
    free, left = ledger.free.copy(), ledger.left.copy()
    for row, change in given_back.items():
        left[:, row], free[row] = ledger.supposing(row, change, pending=False)
    accounts = {account.row: account for _, account in ledger.accounts()}
    found = [accounts.get(row) for row in rows.tolist()]
    return _Figures(
        known=[account is not None for account in found],
        fresh=ledger.fresh(now)[rows].tolist(),
        free=free[rows].tolist(),
        capacity=ledger.pod_capacity[rows].tolist(),
        reserved=ledger.reserved[rows].tolist(),
        sampled=[account.sampled if account is not None and account.report is not None else None for account in found],
        left=[left[:, row].tolist() if ledger.has_room[row] else None for row in rows.tolist()],
        busy=[_busy(parts, account) for account in found],
    )


def _busy(parts: Components, account: Account | None) -> str:
    known = account is not None and account.row < len(parts.snapshot)
    return amounts.busy(account.report, parts.snapshot.nodes[account.row]) if account is not None and known else ""


def _details(profile: Profile, cycle: Cycle, feasibility: FilterResult) -> list[tuple[str, dict[str, int], RowTexts]]:
    name = cycle.snapshot.name
    return [
        (plugin, {name(row): index for index, row in enumerate(rows.tolist())}, texts)
        for plugin, rows, texts in profile.explain_rows(cycle, feasibility)
    ]
