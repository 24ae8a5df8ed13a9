"""The contract of scheduler plugins (carico.scheduler.framework.contract), checked over random clusters and pods.

    from carico.testing import check_plugin

    def test_contract() -> None:
        check_plugin(make)  # the factory of the plugin's entry point

The checks are what the framework takes for granted and no type checker sees. A failure names the plugin, the seed and
the pod: `check_plugin(make, seeds=[7])` repeats it. `bind`, `pre_bind` and `post_bind` are not called, because they
write to the API server.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from carico.scheduler.cache.template import PodInfo
from carico.scheduler.framework import contract
from carico.scheduler.framework.cluster_events import Action, ClusterEvent, EventInterest, node_change, pod_change
from carico.scheduler.framework.contract import (
    MAX_SCORE,
    Code,
    Cycle,
    Filter,
    Nomination,
    Permit,
    PermitWait,
    PostFilter,
    PreEnqueue,
    PreScore,
    QueueSort,
    Reserve,
    Score,
    Status,
)
from carico.scheduler.plugins.registry import Factory
from carico.testing import filter_checks
from carico.testing.plugin_trial import PluginTrial, trial

# Protocol of each extension point by the method that makes a plugin one of it.
POINTS: dict[str, type] = {
    "pre_enqueue": contract.PreEnqueue,
    "group_of": contract.GroupPods,
    "sort_key": contract.QueueSort,
    "pre_filter": contract.PreFilter,
    "add_pod": contract.PreFilterExtensions,
    "filter": contract.Filter,
    "needs": contract.Supply,
    "needs_of": contract.PricedSupply,
    "pods_that_fit": contract.MeasuredSupply,
    "post_filter": contract.PostFilter,
    "pre_score": contract.PreScore,
    "score": contract.Score,
    "reserve": contract.Reserve,
    "permit": contract.Permit,
    "pre_bind": contract.PreBind,
    "bind": contract.Bind,
    "post_bind": contract.PostBind,
    "explain_need": contract.Explain,
    "explain_rows": contract.ExplainRows,
}
MAY_AWAIT = ("pre_bind", "bind")
SEEDS = range(8)
OF_FILTERS_ON_A_CLUSTER_THAT_CHANGES = ("reuse", "hypothetical equals real")


def check_plugin(make: Factory, *, seeds: Iterable[int] = SEEDS, without: Iterable[str] = ()) -> None:
    """Runs every check but those named in `without`; raises AssertionError with what is wrong."""
    left_out = set(without)
    if unknown := left_out - CHECKS.keys():
        raise ValueError(f"no check is called {min(unknown)!r}; there are {', '.join(CHECKS)}")
    for seed in seeds:
        at = trial(make, seed)
        for name, check in CHECKS.items():
            if name in left_out:
                continue
            if name in OF_FILTERS_ON_A_CLUSTER_THAT_CHANGES and isinstance(at.plugin, Filter):
                at = trial(make, seed)
            check(at)


def _extension_points(at: PluginTrial) -> None:
    plugin = at.plugin
    if not isinstance(plugin.name, str) or not plugin.name:
        raise at.fail(f"its name is {plugin.name!r}, not text")
    if bad := [interest for interest in plugin.interests if not isinstance(interest, EventInterest)]:
        raise at.fail(f"interests has {bad[0]!r}, which is no EventInterest")
    has = [method for method in POINTS if callable(getattr(plugin, method, None))]
    if not has:
        raise at.fail(f"it has no extension point; these are the methods: {', '.join(POINTS)}")
    for method in has:
        if not isinstance(plugin, POINTS[method]):
            lacking = [name for name in _members(POINTS[method]) if not hasattr(plugin, name)]
            raise at.fail(f"it has {method}, but lacks {', '.join(lacking)}: the framework would never call it")
        if inspect.iscoroutinefunction(getattr(plugin, method)) != (method in MAY_AWAIT):
            raise at.fail(f"{method} must {'' if method in MAY_AWAIT else 'not '}be `async def`")


def _members(protocol: type) -> list[str]:
    """Of the protocol and of those that it extends."""
    names = {name for base in protocol.__mro__ for name in (*vars(base), *vars(base).get("__annotations__", ()))}
    return sorted(name for name in names if name[0] != "_")


def _queueing(at: PluginTrial) -> None:
    plugin = at.plugin
    if isinstance(plugin, PreEnqueue):
        for pod in at.waiting:
            if not isinstance(status := plugin.pre_enqueue(pod), Status):
                raise at.fail(f"pre_enqueue returned {status!r}, not a Status", pod)
    if isinstance(plugin, QueueSort):
        keys = [plugin.sort_key(pod, at.rng.choice((1.0, 2.0))) for pod in (*at.waiting, *at.spare)]
        for key, other in itertools.pairwise(keys):
            if not (key < other or other < key or key == other):
                raise at.fail(f"sort_key returned {key!r} and {other!r}, neither of which goes first")


def _scores(at: PluginTrial) -> None:
    """Finite, in [0, 100], one per row, the same when asked again."""
    plugin = at.plugin
    if not isinstance(plugin, Score):
        return
    for pod in at.waiting:
        present = at.present_rows().tolist()
        rows = np.array(sorted(at.rng.sample(present, at.rng.randint(1, len(present)))), dtype=np.intp)
        cycle, status = at.pre_filtered(pod)
        if status.code not in (Code.SUCCESS, Code.SKIP):
            continue
        before = at.fingerprint()
        if isinstance(plugin, PreScore) and plugin.pre_score(cycle, rows).code is Code.SKIP:
            continue
        given, scores = rows.copy(), plugin.score(cycle, rows)
        if scores.shape != rows.shape:
            raise at.fail(f"score returned {scores.shape} entries for {len(rows)} rows", pod)
        if not np.isfinite(scores).all() or scores.min() < 0 or scores.max() > MAX_SCORE * (1 + 1e-9):
            raise at.fail(f"score returned {scores.tolist()}; scores are finite and in [0, {MAX_SCORE:g}]", pod)
        found = scores.copy()
        if not np.array_equal(plugin.score(cycle, rows), found):
            raise at.fail("score differs when it is called again in the same cycle", pod)
        if not np.array_equal(rows, given):
            raise at.fail("score changed the rows that it was given", pod)
        at.check_unchanged(before, "score", pod)


def _reservations(at: PluginTrial) -> None:
    """`unreserve` undoes `reserve`, also when it is called twice or without it."""
    plugin = at.plugin
    if not isinstance(plugin, Reserve):
        return
    for pod in at.waiting:
        node = at.snapshot.name(int(at.rng.choice(at.present_rows().tolist())))
        before = at.fingerprint()
        _unreserved(at, plugin, Cycle(pod, at.snapshot), node, "unreserve in a cycle without pre_filter")
        at.check_unchanged(before, "unreserve in a cycle without pre_filter", pod)
        cycle, status = at.pre_filtered(pod)
        if status.code not in (Code.SUCCESS, Code.SKIP):
            continue
        _unreserved(at, plugin, cycle, node, "unreserve without reserve")
        at.check_unchanged(before, "unreserve without reserve", pod)
        for times in (1, 2):
            if not isinstance(result := plugin.reserve(cycle, node), Status):
                raise at.fail(f"reserve returned {result!r}, not a Status", pod)
            for _ in range(times):
                _unreserved(at, plugin, cycle, node, "unreserve, called twice," if times > 1 else "unreserve")
                at.check_unchanged(before, "reserve and unreserve", pod)


def _unreserved(at: PluginTrial, plugin: Reserve, cycle: Cycle, node: str, what: str) -> None:
    try:
        plugin.unreserve(cycle, node)
    except Exception as error:
        raise at.fail(f"{what} raised {error!r}; it must be harmless", cycle.pod) from error


def _permits(at: PluginTrial) -> None:
    plugin = at.plugin
    if not isinstance(plugin, Permit):
        return
    for pod in at.waiting:
        cycle, status = at.pre_filtered(pod)
        if status.code not in (Code.SUCCESS, Code.SKIP):
            continue
        node = at.snapshot.name(int(at.rng.choice(at.present_rows().tolist())))
        if isinstance(plugin, Reserve):
            plugin.reserve(cycle, node)
        result = plugin.permit(cycle, node)
        if not isinstance(result, Status | PermitWait):
            raise at.fail(f"permit returned {result!r}, neither a Status nor a PermitWait", pod)
        if isinstance(result, PermitWait) and not 0 < result.seconds < math.inf:
            raise at.fail(f"permit waits {result.seconds} s; a wait is finite and above 0", pod)
        if isinstance(plugin, Reserve):
            plugin.unreserve(cycle, node)


def _preemption(at: PluginTrial) -> None:
    """A nomination names a node of the cluster, and pods of lower priority on it."""
    plugin = at.plugin
    if not isinstance(plugin, PostFilter):
        return
    for pod in at.waiting:
        before, cycle = at.fingerprint(), Cycle(pod, at.snapshot)
        found = at.parts.profiles["carico"].feasible.run(cycle)
        if found.mask.any():
            continue
        actions = plugin.post_filter(cycle, found)
        if not isinstance(actions, Sequence):
            raise at.fail(f"post_filter returned {actions!r}, not a sequence of actions", pod)
        for action in actions:
            _check_action(at, pod, action)
        at.check_unchanged(before, "post_filter", pod)


def _check_action(at: PluginTrial, pod: PodInfo, action: object) -> None:
    if not isinstance(action, contract.PostFilterAction):
        raise at.fail(f"post_filter returned {action!r}, which is no PostFilterAction", pod)
    if not isinstance(action, Nomination):
        return
    row = at.snapshot.rows.number.get(action.node)
    if row is None or not at.snapshot.present[row]:
        raise at.fail(f"it nominated node {action.node!r}, which does not exist", pod)
    wrong = [v for v in action.victims if v.uid not in at.snapshot.on[row] or v.priority >= pod.priority]
    if wrong:
        raise at.fail(f"victim {wrong[0]} is not on {action.node}, or not of lower priority", pod)


def _hints(at: PluginTrial) -> None:
    """No queueing hint raises, whatever happens."""
    for interest in at.plugin.interests:
        for event in _events(at):
            if interest.kind != event.kind or not interest.action & event.action:
                continue
            what = f"the hint for {event.kind} {event.action.name}"
            for pod in at.waiting:
                try:
                    useful = interest.hint is None or interest.hint(pod, event.old, event.new)
                except Exception as error:
                    raise at.fail(f"{what} raised {error!r}", pod) from error
                if not isinstance(useful, bool | np.bool_):
                    raise at.fail(f"{what} returned {useful!r}, not a bool", pod)


def _events(at: PluginTrial) -> Iterator[ClusterEvent]:
    nodes = [node for node in at.snapshot.nodes if node is not None][:8]
    for old_node, node in zip([None, *nodes], nodes, strict=False):
        yield node_change(old_node, node)
        yield node_change(node, None)
    pods = [pod.pod for pod, _ in list(at.snapshot.pods.values())[:8]]
    for old_pod, pod in zip([None, *pods], pods, strict=False):
        yield pod_change(old_pod, pod)
        yield pod_change(pod, None)
    store = at.snapshot.store
    tables: tuple[dict[str, Any], ...] = (
        store.claims, store.volumes, store.storage_classes, store.csi_nodes, store.csi_drivers, store.attachments,
    )  # fmt: skip
    for obj in (obj for table in tables for obj in list(table.values())[:4]):
        kind = type(obj).__name__
        yield ClusterEvent(kind, Action.ADD, None, obj)
        yield ClusterEvent(kind, Action.UPDATE, obj, obj)
        yield ClusterEvent(kind, Action.DELETE, obj, None)


CHECKS: dict[str, Callable[[PluginTrial], None]] = {
    "extension points": _extension_points,
    "queueing": _queueing,
    "verdicts": filter_checks.verdicts,
    "hypothetical pods": filter_checks.hypothetical_pods,
    "supply": filter_checks.supply,
    "scores": _scores,
    "reservations": _reservations,
    "permits": _permits,
    "preemption": _preemption,
    "hints": _hints,
    "reuse": filter_checks.reuse,
    "hypothetical equals real": filter_checks.hypothetical_equals_real,
}
