"""Feasible nodes of a pod: pre-filters, filters, and the cached verdicts of the last pod of the same template.

Filters that depend only on the template and the row (`Reuse.NODE`, `Reuse.ROW`) run over all rows once, and from then
on only over rows that changed. The others run every time. A node that is nominated for a pod of the same or a higher
priority must pass the filters both with and without that pod, as in kube-scheduler.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import numpy as np

from carico.scheduler.cache.rows import Mask, RowArray
from carico.scheduler.cache.snapshot import Snapshot
from carico.scheduler.cache.template import PodInfo, PodTemplate
from carico.scheduler.framework.contract import (
    OK,
    Code,
    CostlyFilter,
    Cycle,
    Filter,
    Plugin,
    PreFilter,
    PreFilterExtensions,
    Reason,
    Reuse,
    Status,
    Supply,
    Verdict,
)

LEAST_TEMPLATES, MOST_TEMPLATES = 128, 256  # whose verdicts are cached; on few nodes each takes 4 KB with its spec
KEPT_ROWS = 1 << 21  # rows of all of them together; at 20,000 nodes a template takes some 100 KB


@dataclass(slots=True)
class FilterResult:
    """The result: `rows` can take the pod; for the others `verdicts` have the reasons. Valid until the next cycle."""

    snapshot: Snapshot
    filters: FilterRunner
    mask: Mask
    status: Status = OK  # of the pre-filters; when it is not OK no filter was run
    refusing: set[str] = field(default_factory=set)  # plugins that rejected the pod or a node
    verdicts: list[tuple[str, Verdict]] = field(default_factory=list)  # in the profile's order, over all rows
    nominated: dict[int, str] = field(default_factory=dict)  # rows rejected because they are nominated for another pod
    kept_by: set[str] = field(default_factory=set)  # plugins that reject those rows with that pod hypothetically added

    @property
    def rows(self) -> RowArray:
        return np.flatnonzero(self.mask)

    def reasons(self) -> Counter[str]:
        """Number of rejected nodes by reason; a node counts for the first plugin that rejected it."""
        counts: Counter[str] = Counter()
        standing = self.snapshot.present.copy()
        for _, verdict in self.verdicts:
            refused = standing & (verdict.bits != 0)
            bits = verdict.bits[refused]
            for i, reason in enumerate(verdict.reasons):
                counts[reason.text] += int(np.count_nonzero(bits >> np.uint8(i) & np.uint8(1)))
            standing &= ~refused
        counts.update(text for row, text in self.nominated.items() if standing[row])
        return +counts

    def message(self) -> str:
        """What `kubectl describe pod` shows: "0/19 nodes are available: 12 Insufficient cpu, 7 …"."""
        head = f"0/{self.snapshot.node_count} nodes are available"
        if self.status.code is not Code.SUCCESS:
            return f"{head}: {self.status.message}."
        parts = sorted(f"{count} {text}" for text, count in self.reasons().items())
        return f"{head}: {', '.join(parts)}." if parts else f"{head}."

    def why(self, row: int) -> dict[str, list[Reason]]:
        """For one node, the reasons of every plugin that rejected it."""
        return {name: verdict.at(row) for name, verdict in self.verdicts if verdict.bits[row]}

    def concerned(self) -> set[str]:
        """Every plugin that rejected a node, also where another one rejected it first."""
        if not self.verdicts:
            return set(self.refusing)
        present = self.snapshot.present
        return self.kept_by | {name for name, verdict in self.verdicts if np.any(verdict.bits[present])}

    def without(self, names: Collection[str]) -> Mask:
        """Nodes that would be feasible without these plugins."""
        mask = self.snapshot.present.copy()
        for name, verdict in self.verdicts:
            if name not in names:
                mask &= verdict.bits == 0
        mask[list(self.nominated)] = False
        return mask

    def refused_by(self, names: Collection[str]) -> Mask:
        """Nodes that one of these plugins rejected."""
        mask = np.zeros(len(self.mask), dtype=np.bool_)
        for name, verdict in self.verdicts:
            if name in names:
                mask |= verdict.bits != 0
        return mask

    def resolvable(self, ignoring: Collection[str] = ()) -> Mask:
        """Nodes that were rejected only for reasons that evicting pods could remove, or by plugins to ignore."""
        mask = self.snapshot.present & ~self.mask
        if self.status.code is not Code.SUCCESS:
            return np.zeros_like(mask)
        for name, verdict in self.verdicts:
            if name in ignoring:
                continue
            unresolvable = sum(1 << i for i, reason in enumerate(verdict.reasons) if reason.unresolvable)
            if unresolvable:
                mask &= (verdict.bits & verdict.bits.dtype.type(unresolvable)) == 0
        return mask


@dataclass(slots=True)
class _Kept:
    """Cached verdicts of the reusable filters for one template."""

    mask: Mask
    by_node: Mask  # by the filters that depend on the Node alone
    verdicts: dict[str, Verdict]
    node_mark: int
    pod_mark: int


class FilterRunner:
    """The filters of one profile."""

    def __init__(self, plugins: Sequence[Plugin]) -> None:
        self._pre_filters = [p for p in plugins if isinstance(p, PreFilter)]
        self._filters = [p for p in plugins if isinstance(p, Filter)]
        # Amounts that nodes report: they lag behind the API server, and recover without an event.
        self.measured = {p.name for p in self._filters if isinstance(p, Supply) and p.reuse is Reuse.NEVER}
        self.costly = {p.name for p in self._filters if isinstance(p, CostlyFilter) and p.costly}
        self._extensions = [p for p in plugins if isinstance(p, PreFilterExtensions)]
        self._kept: OrderedDict[PodTemplate, _Kept] = OrderedDict()
        self.hits = 0  # cycles with and without cached verdicts
        self.misses = 0

    def run(self, cycle: Cycle, *, everywhere: bool = False) -> FilterResult:
        """`everywhere`: run every filter on every node, also the costly ones on nodes that are rejected already."""
        snapshot = cycle.snapshot
        snapshot.labels.trim()  # codes of the previous cycle are not in use any more
        status, plugin = self._pre_filter(cycle)
        if status.code is not Code.SUCCESS:
            return FilterResult(snapshot, self, np.zeros(len(snapshot), dtype=np.bool_), status, {plugin})
        kept = self._reused(cycle)
        alive = kept.mask & snapshot.present
        result = FilterResult(snapshot, self, alive)
        for plugin_ in self._filters:
            if plugin_.name in cycle.skipped:
                continue
            verdict = kept.verdicts.get(plugin_.name)
            if verdict is None:
                verdict = self._asked(plugin_, cycle, alive, everywhere)
                alive &= verdict.bits == 0
            result.verdicts.append((plugin_.name, verdict))
        self._respect_nominated(cycle, result)
        if not alive.any():
            result.refusing = self._refusing(result)
        return result

    def _pre_filter(self, cycle: Cycle) -> tuple[Status, str]:
        times = cycle.times
        for plugin in self._pre_filters:
            if times is None:
                status = plugin.pre_filter(cycle)
            else:
                status = times.call("PreFilter", plugin.name, plugin.pre_filter, cycle)
            if status.code is Code.SKIP:
                cycle.skipped.add(plugin.name)
            elif status.code is not Code.SUCCESS:
                return status, plugin.name
        return OK, ""

    def _asked(self, plugin: Filter, cycle: Cycle, alive: Mask, everywhere: bool) -> Verdict:
        """Runs a filter; a costly one, which goes node by node, only on rows that are still feasible."""
        if everywhere or plugin.name not in self.costly:
            return _filtered(plugin, cycle, None)
        rows = np.flatnonzero(alive)
        answer = _filtered(plugin, cycle, rows)
        bits = np.zeros(len(alive), dtype=answer.bits.dtype)
        bits[rows] = answer.bits
        return Verdict(bits, answer.reasons)

    def _reused(self, cycle: Cycle) -> _Kept:
        template, snapshot = cycle.pod.template, cycle.snapshot
        if snapshot.tried_rows:
            return self._on_trial(cycle)
        kept = self._kept.get(template)
        nodes = snapshot.node_changes.since(kept.node_mark) if kept else None
        pods = snapshot.pod_changes.since(kept.pod_mark) if kept else None
        if kept is None or nodes is None or pods is None or not self._worth_patching(kept, snapshot, nodes, pods):
            self.misses += 1
            kept = self._kept[template] = self._compute(cycle)
            while len(self._kept) > _templates_kept(len(snapshot)):
                self._kept.popitem(last=False)
        else:
            self.hits += 1
            self._patch(cycle, kept, nodes, pods)
        kept.node_mark, kept.pod_mark = snapshot.node_changes.mark, snapshot.pod_changes.mark
        self._kept.move_to_end(template)
        return kept

    def _on_trial(self, cycle: Cycle) -> _Kept:
        """As `_reused`, with the pods of a trial, which are in no journal: leaves the cached verdicts as they are."""
        snapshot, cached = cycle.snapshot, self._kept.get(cycle.pod.template)
        nodes = snapshot.node_changes.since(cached.node_mark) if cached else None
        pods = snapshot.pod_changes.since(cached.pod_mark) if cached else None
        if cached is None or nodes is None or pods is None or len(cached.mask) != len(snapshot):
            return self._compute(cycle)
        verdicts = {name: Verdict(verdict.bits.copy(), verdict.reasons) for name, verdict in cached.verdicts.items()}
        copy = _Kept(cached.mask.copy(), cached.by_node.copy(), verdicts, 0, 0)
        tried = np.fromiter(snapshot.tried_rows, dtype=np.intp, count=len(snapshot.tried_rows))
        self._patch(cycle, copy, nodes, np.union1d(pods, tried))
        return copy

    @staticmethod
    def _worth_patching(kept: _Kept, snapshot: Snapshot, nodes: RowArray, pods: RowArray) -> bool:
        """Filtering scattered rows costs more per row than filtering all of them."""
        return len(kept.mask) == len(snapshot) and len(nodes) + len(pods) <= max(16, len(snapshot) // 8)

    def _reusable(self, cycle: Cycle) -> Iterator[Filter]:
        return (p for p in self._filters if p.reuse is not Reuse.NEVER and p.name not in cycle.skipped)

    def _compute(self, cycle: Cycle) -> _Kept:
        length = len(cycle.snapshot)
        kept = _Kept(np.ones(length, dtype=np.bool_), np.ones(length, dtype=np.bool_), {}, 0, 0)
        for plugin in self._reusable(cycle):
            verdict = kept.verdicts[plugin.name] = _filtered(plugin, cycle, None)
            mask = kept.by_node if plugin.reuse is Reuse.NODE else kept.mask
            mask &= verdict.bits == 0
        kept.mask &= kept.by_node
        return kept

    def _patch(self, cycle: Cycle, kept: _Kept, nodes: RowArray, pods: RowArray) -> None:
        if len(nodes):
            kept.by_node[nodes] = self._patched(cycle, kept, nodes, Reuse.NODE)
            pods = np.concatenate((nodes, pods))
        if len(pods):
            kept.mask[pods] = self._patched(cycle, kept, pods, Reuse.ROW) & kept.by_node.take(pods)

    def _patched(self, cycle: Cycle, kept: _Kept, rows: RowArray, reuse: Reuse) -> Mask:
        """Runs the filters with this `reuse` on the rows again; returns which rows they accept."""
        accepted = np.ones(len(rows), dtype=np.bool_)
        for plugin in self._reusable(cycle):
            if plugin.reuse is reuse:
                bits = _filtered(plugin, cycle, rows).bits
                kept.verdicts[plugin.name].bits[rows] = bits
                accepted &= bits == 0
        return accepted

    def _refusing(self, result: FilterResult) -> set[str]:
        names = set(result.kept_by)
        standing = result.snapshot.present.copy()
        for name, verdict in result.verdicts:
            refused = standing & (verdict.bits != 0)
            if refused.any():
                names.add(name)
                standing &= ~refused
        return names

    def _respect_nominated(self, cycle: Cycle, result: FilterResult) -> None:
        for row, waiting in self._kept_for_others(cycle).items():
            if result.mask[row]:
                with self.pretending(cycle, row, add=waiting):
                    name = self._refuses(cycle, row)
                if name is not None:
                    result.mask[row] = False
                    result.nominated[row] = f"node(s) kept for a pod of higher priority ({name})"
                    result.kept_by.add(name)

    def _kept_for_others(self, cycle: Cycle) -> dict[int, list[PodInfo]]:
        kept: dict[int, list[PodInfo]] = {}
        for nominated in cycle.snapshot.nominated.values():
            pod, row = nominated.pod, cycle.snapshot.rows.number.get(nominated.node)
            if row is None or pod.uid == cycle.pod.uid or pod.priority < cycle.pod.priority:
                continue
            if row < len(cycle.snapshot) and pod.uid not in cycle.snapshot.on[row]:
                kept.setdefault(row, []).append(pod)
        return kept

    @contextmanager
    def pretending(
        self, cycle: Cycle, row: int, *, add: Sequence[PodInfo] = (), remove: Sequence[PodInfo] = ()
    ) -> Iterator[None]:
        """Pods hypothetically added to or removed from the row; also for filters that depend on other rows."""
        with ExitStack() as undo:
            undo.enter_context(cycle.snapshot.pretending(row, add=list(add), remove=list(remove)))
            for plugin in self._extensions:
                if plugin.name in cycle.skipped:
                    continue
                for pod in remove:
                    plugin.remove_pod(cycle, pod, row)
                    undo.callback(plugin.add_pod, cycle, pod, row)
                for pod in add:
                    plugin.add_pod(cycle, pod, row)
                    undo.callback(plugin.remove_pod, cycle, pod, row)
            yield

    def give_back(self, cycle: Cycle, row: int) -> None:
        """Without the cycle's pod, which reports count on this row; for the rest of the cycle.

        The snapshot does not have the pod any more. The plugins whose amounts nodes report do not follow the snapshot.
        """
        for plugin in self._extensions:
            if plugin.name in self.measured:
                plugin.remove_pod(cycle, cycle.pod, row)

    def fits(self, cycle: Cycle, row: int) -> bool:
        """Whether one node can take the pod in the present snapshot; the pre-filters have run."""
        if self._refuses(cycle, row) is not None:
            return False
        waiting = self._kept_for_others(cycle).get(row)
        if waiting is None:
            return True
        with self.pretending(cycle, row, add=waiting):
            return self._refuses(cycle, row) is None

    def will_fit(self, cycle: Cycle, row: int, *, reported: bool) -> bool:
        """The same without transient reasons and, unless `reported`, filters that depend on the node's report."""
        waiting = self._kept_for_others(cycle).get(row, ())
        unasked = () if reported else self.measured
        with self.pretending(cycle, row, add=waiting):
            return self._refuses(cycle, row, unasked, transient=False) is None

    def is_closed_for_now(self, cycle: Cycle, row: int) -> bool:
        """Whether a filter rejects the node for a transient reason."""
        rows = np.array([row], dtype=np.intp)
        asked = (plugin for plugin in self._filters if plugin.name not in cycle.skipped)
        return any(reason.transient for plugin in asked for reason in plugin.filter(cycle, rows).at(0))

    def _refuses(self, cycle: Cycle, row: int, unasked: Collection[str] = (), *, transient: bool = True) -> str | None:
        """The first plugin that rejects the node; `transient`: also for transient reasons."""
        rows = np.array([row], dtype=np.intp)
        for plugin in self._filters:
            if plugin.name in cycle.skipped or plugin.name in unasked:
                continue
            verdict = plugin.filter(cycle, rows)
            if verdict.bits[0] and (transient or not all(reason.transient for reason in verdict.at(0))):
                return plugin.name
        return None


def _filtered(plugin: Filter, cycle: Cycle, rows: RowArray | None) -> Verdict:
    times = cycle.times
    return (
        plugin.filter(cycle, rows) if times is None else times.call("Filter", plugin.name, plugin.filter, cycle, rows)
    )


def _templates_kept(rows: int) -> int:
    """
    >>> _templates_kept(100), _templates_kept(5_000), _templates_kept(20_000)
    (256, 256, 128)
    """
    return min(MOST_TEMPLATES, max(LEAST_TEMPLATES, KEPT_ROWS // max(1, rows)))
