"""Contract checks of filters: verdicts over rows and over all, reuse, hypothetical pods, amounts."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from carico.scheduler.cache.rows import RowArray
from carico.scheduler.cache.template import PodInfo
from carico.scheduler.framework.contract import Code, Cycle, Filter, Reason, Reuse, Supply, Verdict
from carico.scheduler.framework.filtering import FilterRunner
from carico.testing.plugin_trial import PluginTrial


def verdicts(at: PluginTrial) -> None:
    """The verdict over rows equals the verdict over all, is of the right shape, and changes nothing."""
    plugin = at.plugin
    if not isinstance(plugin, Filter):
        return
    for cycle in at.filtered():
        before, whole = at.fingerprint(), plugin.filter(cycle, None)
        _check_shape(at, cycle, whole, len(at.snapshot))
        reasons = [whole.at(row) for row in range(len(at.snapshot))]
        for rows in _choices(at):
            given = rows.copy()
            part = plugin.filter(cycle, rows)
            _check_shape(at, cycle, part, len(rows))
            if not np.array_equal(rows, given):
                raise at.fail("filter changed the rows that it was given", cycle.pod)
            for index, row in enumerate(given.tolist()):
                if part.at(index) != reasons[row]:
                    found = f"{_shown(part.at(index))} for rows {given.tolist()}, {_shown(reasons[row])} over all"
                    raise at.fail(f"filter says of row {row}: {found}", cycle.pod)
        at.check_unchanged(before, "filter", cycle.pod)


def _check_shape(at: PluginTrial, cycle: Cycle, verdict: Verdict, length: int) -> None:
    if not isinstance(verdict, Verdict):
        raise at.fail(f"filter returned {verdict!r}, not a Verdict", cycle.pod)
    bits, count = verdict.bits, len(verdict.reasons)
    if bits.shape != (length,):
        raise at.fail(f"filter returned {bits.shape} entries for {length} rows", cycle.pod)
    if not np.issubdtype(bits.dtype, np.unsignedinteger) or np.iinfo(bits.dtype).bits < count:
        raise at.fail(f"filter returned bits of type {bits.dtype}, which cannot hold {count} reasons", cycle.pod)
    if length and int(bits.max()) >> count:
        raise at.fail(f"filter set a bit above its {count} reasons: {int(bits.max()):b}", cycle.pod)
    if bad := [reason for reason in verdict.reasons if not isinstance(reason, Reason) or not reason.text]:
        raise at.fail(f"filter returned the reason {bad[0]!r}; users read it, so it needs a text", cycle.pod)


def _choices(at: PluginTrial) -> Iterator[RowArray]:
    """None, one, some in any order, all backwards."""
    every = list(range(len(at.snapshot)))
    some = at.rng.sample(every, at.rng.randint(1, len(every)))
    for rows in ([], [at.rng.choice(every)], some, every[::-1]):
        yield np.array(rows, dtype=np.intp)


def _shown(reasons: list[Reason]) -> str:
    return " and ".join(repr(reason.text) for reason in reasons) or "feasible"


def reuse(at: PluginTrial) -> None:
    """A verdict is valid for other pods of the template as long as `reuse` says, and may be written to."""
    plugin = at.plugin
    if not isinstance(plugin, Filter) or plugin.reuse is Reuse.NEVER:
        return
    for pod in at.waiting:
        cycle, status = at.pre_filtered(pod)
        verdict = plugin.filter(cycle, None) if status.ok else None
        changed = set(_pods_change(at)) if plugin.reuse is Reuse.ROW else _none_of(_pods_change(at))
        changed.add(at.changed_node())
        twin = at.other_pod(pod, labels={"of": "another workload"}, namespace="elsewhere")
        later, status_later = at.pre_filtered(twin)
        if status_later.code is not status.code:
            found = f"{status.code.name}, then {status_later.code.name}"
            raise at.fail(f"reuse is {plugin.reuse}, but pre_filter of two pods of one template said {found}", pod)
        if verdict is None:
            continue
        fresh = plugin.filter(later, None)
        if fresh.reasons != verdict.reasons:
            raise at.fail(f"reuse is {plugin.reuse}, but two pods of one template got other lists of reasons", pod)
        for row in at.present_rows().tolist():
            if row not in changed and fresh.at(row) != verdict.at(row):
                found = f"{_shown(verdict.at(row))}, then {_shown(fresh.at(row))}"
                raise at.fail(f"reuse is {plugin.reuse}, but the verdict of unchanged row {row} was {found}", pod)
        _check_own_array(at, plugin, later)


def _pods_change(at: PluginTrial) -> list[int]:
    """Pods come and go on two rows, which are returned."""
    one, other = (int(at.rng.choice(at.present_rows().tolist())) for _ in range(2))
    at.parts.cluster.assume(at.other_pod(at.rng.choice(at.spare)), at.snapshot.name(one))
    there = list(at.snapshot.on[other].values())
    if there:
        at.parts.cluster.pod_changed(there[0].pod, None)
    return [one, other]


def _none_of(_: object) -> set[int]:
    return set()


def _check_own_array(at: PluginTrial, plugin: Filter, cycle: Cycle) -> None:
    before, verdict = at.fingerprint(), plugin.filter(cycle, None)
    found = verdict.bits.copy()
    if not verdict.bits.flags.writeable:
        raise at.fail("reuse is not NEVER, so the framework corrects the verdict: its bits must be writable", cycle.pod)
    verdict.bits[:] = 1
    at.check_unchanged(before, "writing to a verdict", cycle.pod)
    if not np.array_equal(plugin.filter(cycle, None).bits, found):
        raise at.fail("writing to a verdict changed the next one: they share memory", cycle.pod)


def hypothetical_pods(at: PluginTrial) -> None:
    """With pods added and removed hypothetically, rows and all agree; afterwards everything is as before."""
    plugin = at.plugin
    if not isinstance(plugin, Filter):
        return
    runner = FilterRunner([plugin])
    for cycle in at.filtered():
        before, verdict = at.fingerprint(), plugin.filter(cycle, None)
        reasons = [verdict.at(row) for row in range(len(at.snapshot))]
        for row in at.rng.sample(at.present_rows().tolist(), min(4, at.snapshot.node_count)):
            there = list(at.snapshot.on[row].values())
            with (
                runner.pretending(cycle, row, remove=there),
                runner.pretending(cycle, row, add=[*there[:1], *at.spare]),
            ):
                whole, part = plugin.filter(cycle, None), plugin.filter(cycle, np.array([row], dtype=np.intp))
                if part.at(0) != whole.at(row):
                    found = f"{_shown(part.at(0))} when called with rows, {_shown(whole.at(row))} over all"
                    raise at.fail(f"with hypothetical pods filter says of row {row}: {found}", cycle.pod)
        at.check_unchanged(before, "adding and removing hypothetical pods", cycle.pod)
        again = plugin.filter(cycle, None)
        if [again.at(row) for row in range(len(at.snapshot))] != reasons:
            raise at.fail("add_pod and remove_pod do not undo each other: the verdict has changed", cycle.pod)


def hypothetical_equals_real(at: PluginTrial) -> None:
    """A hypothetical change of a row gives the verdict that the change itself gives."""
    plugin = at.plugin
    if not isinstance(plugin, Filter):
        return
    runner = FilterRunner([plugin])
    for pod in at.waiting:
        row = int(at.rng.choice(at.present_rows().tolist()))
        _compare_added(at, plugin, runner, pod, row)
        if not runner.measured:  # reports do not show at once that a pod is gone
            _compare_removed(at, plugin, runner, pod, row)


def _compare_added(at: PluginTrial, plugin: Filter, runner: FilterRunner, pod: PodInfo, row: int) -> None:
    cycle, status = at.pre_filtered(pod)
    if not status.ok:
        return
    added = at.other_pod(at.rng.choice(at.spare))
    with runner.pretending(cycle, row, add=[added]):
        supposed = plugin.filter(cycle, None)
    at.parts.cluster.assume(added, at.snapshot.name(row))
    _compare(at, plugin, pod, supposed, f"adding a pod to row {row}")
    at.parts.cluster.unassume(added)


def _compare_removed(at: PluginTrial, plugin: Filter, runner: FilterRunner, pod: PodInfo, row: int) -> None:
    cycle, status = at.pre_filtered(pod)
    there = list(at.snapshot.on[row].values())
    if not status.ok or not there:
        return
    with runner.pretending(cycle, row, remove=there[:1]):
        supposed = plugin.filter(cycle, None)
    at.parts.cluster.pod_changed(there[0].pod, None)
    _compare(at, plugin, pod, supposed, f"removing a pod from row {row}")


def _compare(at: PluginTrial, plugin: Filter, pod: PodInfo, supposed: Verdict, change: str) -> None:
    cycle, status = at.pre_filtered(pod)
    if status.code not in (Code.SUCCESS, Code.SKIP):
        return  # rejected as a whole, which a hypothetical pod cannot do
    real = plugin.filter(cycle, None) if status.ok else Verdict(np.zeros_like(supposed.bits), ())
    for row in at.present_rows().tolist():
        if bool(supposed.bits[row]) != bool(real.bits[row]):
            found = f"{_shown(supposed.at(row))} when it was hypothetical, {_shown(real.at(row))} when it was real"
            raise at.fail(f"after {change} row {row} was {found}; see PreFilterExtensions", pod)


def supply(at: PluginTrial) -> None:
    """`filter` and `available` agree about every node."""
    plugin = at.plugin
    if not isinstance(plugin, Supply) or not isinstance(plugin, Filter):
        return
    for cycle in at.filtered():
        needs, verdict = plugin.needs(cycle), plugin.filter(cycle, None)
        for row in at.present_rows().tolist():
            has = {need: plugin.available(need.resource, row) for need in needs}
            if any(math.isnan(amount) for amount in has.values()):
                raise at.fail(f"available returned NaN for row {row}", cycle.pod)
            lacks = [need.resource for need, amount in has.items() if amount < need.least]
            if bool(lacks) != bool(verdict.bits[row]):
                found = f"filter says {_shown(verdict.at(row))}, by `available` it lacks {lacks or 'nothing'}"
                raise at.fail(f"row {row}: {found}", cycle.pod)
