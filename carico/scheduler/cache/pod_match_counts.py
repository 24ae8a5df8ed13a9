"""Number of matching pods on each node, per selector, updated pod by pod.

Topology spread and inter-pod affinity need, for every pod that is scheduled, the number of pods that match a selector
on each node. It is computed once, cached as an array and corrected whenever a pod is added or removed, so that the next
pod of the same workload costs a few array operations, independent of the number of pods. An added or removed pod is
matched only against the counts that its namespace and labels select (pod_set_index.py): nothing is kept per pair of
count and pod.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from carico.columns import grown
from carico.scheduler.cache.affinity_terms import PodSet, Term, Weighted
from carico.scheduler.cache.label_columns import MISSING
from carico.scheduler.cache.pod_set_index import PodSetIndex
from carico.scheduler.cache.template import LabelSet, PodInfo

Counts = NDArray[np.int64]
PodSets = tuple[PodSet, ...]
K = TypeVar("K")

KEPT = 512  # cached counts; the least recently used is dropped first
DENSE = 64  # nonzero rows from which an array is faster than a dictionary


class RowCounts:
    """A count per row: a dictionary of those that are not 0, and the whole array once it was requested."""

    __slots__ = ("_dense", "sparse")

    def __init__(self) -> None:
        self.sparse: dict[int, int] = {}
        self._dense: Counts | None = None

    def add(self, row: int, change: int) -> None:
        count = self.sparse.get(row, 0) + change
        if count:
            self.sparse[row] = count
        else:
            self.sparse.pop(row, None)
        if self._dense is not None:
            self._dense = grown(self._dense, row + 1)
            self._dense[row] = count

    def vector(self, length: int) -> Counts:
        """One count for each of the first `length` rows; read-only."""
        if self._dense is None or len(self._dense) < length:
            self._dense = np.zeros(length, dtype=np.int64)
            for row, count in self.sparse.items():
                self._dense[row] = count
        return self._dense[:length]

    def by_domain(self, codes: NDArray[np.int32], domains: int) -> Counts:
        """The sum over the rows of each domain; `codes[row]` is the row's domain, or MISSING."""
        if len(self.sparse) >= DENSE:
            return summed(self.vector(len(codes)), codes, domains)
        totals = np.zeros(domains, dtype=np.int64)
        for row, count in self.sparse.items():
            if row < len(codes) and codes[row] != MISSING:
                totals[codes[row]] += count
        return totals


def summed(counts: Counts, codes: NDArray[np.int32], domains: int) -> Counts:
    """Counts per row, added up per domain; rows without a domain count nowhere.

    >>> summed(np.array([1, 2, 4, 8]), np.array([0, 1, MISSING, 1], dtype=np.int32), 3).tolist()
    [1, 10, 0]
    """
    totals = np.bincount(codes + 1, weights=counts, minlength=domains + 1)
    return totals[1:].astype(np.int64)


class _Answer:
    """Number of pods that belong to every one of some pod sets, by row."""

    __slots__ = ("counts", "pod_sets", "terminating")

    def __init__(self, pod_sets: PodSets, terminating: bool) -> None:
        self.pod_sets = pod_sets
        self.terminating = terminating  # whether pods that are being deleted count
        self.counts = RowCounts()


class PodMatchCounts:
    """All pods by identity, the cached counts, and the affinity terms of running pods."""

    def __init__(self, namespace_labels: Callable[[str], dict[str, str]]) -> None:
        self._namespace_labels = namespace_labels
        # how many pods of an identity are on a row, by namespace: all of them, and those that are being deleted
        self._pods: dict[str, dict[LabelSet, RowCounts]] = {}
        self._leaving: dict[LabelSet, RowCounts] = {}
        self._answers: OrderedDict[tuple[PodSets, bool], _Answer] = OrderedDict()
        self._index: PodSetIndex[_Answer] = PodSetIndex()
        self.anti_affinity: dict[Term, RowCounts] = {}  # required terms of running pods
        self.affinity: dict[Term, RowCounts] = {}
        self.preferred: dict[Weighted, RowCounts] = {}

    def add(self, pod: PodInfo, row: int) -> None:
        self._change(pod, row, 1)

    def remove(self, pod: PodInfo, row: int) -> None:
        self._change(pod, row, -1)

    def namespace_changed(self, old: dict[str, str], new: dict[str, str]) -> None:
        """Labels of a namespace changed: drops the counts that select namespaces by them."""
        for key in [key for key, answer in self._answers.items() if _chooses(answer.pod_sets, old, new)]:
            self._forget(key)

    def count(self, pod_set: PodSet, length: int, *, terminating: bool) -> Counts:
        """Pods of the pod set on each row."""
        return self.count_all((pod_set,), length, terminating=terminating)

    def count_all(self, pod_sets: PodSets, length: int, *, terminating: bool) -> Counts:
        """Pods on each row that belong to every one of the pod sets, of which there is at least one."""
        key = (pod_sets, terminating)
        answer = self._answers.get(key)
        if answer is None:
            answer = self._answers[key] = self._counted(pod_sets, terminating)
            self._index.add(pod_sets[0], answer)
            if len(self._answers) > KEPT:
                self._forget(next(iter(self._answers)))
        self._answers.move_to_end(key)
        return answer.counts.vector(length)

    def included(self, pod_set: PodSet, identity: LabelSet) -> bool:
        return pod_set.includes(identity.namespace, self._namespace_labels(identity.namespace), identity.labels)

    def _included(self, pod_sets: PodSets, identity: LabelSet) -> bool:
        return all(self.included(pod_set, identity) for pod_set in pod_sets)

    def _forget(self, key: tuple[PodSets, bool]) -> None:
        answer = self._answers.pop(key)
        self._index.remove(answer)

    def _counted(self, pod_sets: PodSets, terminating: bool) -> _Answer:
        answer = _Answer(pod_sets, terminating)
        for identity, pods in self._candidates(pod_sets[0]):
            if self._included(pod_sets, identity):
                leaving = None if terminating else self._leaving.get(identity)
                for row, count in pods.sparse.items():
                    answer.counts.add(row, count - (leaving.sparse.get(row, 0) if leaving is not None else 0))
        return answer

    def _candidates(self, pod_set: PodSet) -> Iterator[tuple[LabelSet, RowCounts]]:
        """Pods of all namespaces that the pod set can reach."""
        names = pod_set.namespaces if pod_set.namespace_selector.never else self._pods.keys()
        for name in names:
            yield from self._pods.get(name, {}).items()

    def _change(self, pod: PodInfo, row: int, change: int) -> None:
        identity = pod.identity
        leaving = pod.pod.terminating
        here = self._pods.get(identity.namespace)
        if here is None:
            here = self._pods[identity.namespace] = {}
        _bump(here, identity, row, change)
        if not here:
            del self._pods[identity.namespace]
        if leaving:
            _bump(self._leaving, identity, row, change)
        for answer in self._index.candidates(identity.namespace, identity.labels) if self._answers else ():
            if (answer.terminating or not leaving) and self._included(answer.pod_sets, identity):
                answer.counts.add(row, change)
        self._change_terms(pod, row, change)

    def _change_terms(self, pod: PodInfo, row: int, change: int) -> None:
        for term in pod.terms.anti_affinity:
            _bump(self.anti_affinity, term, row, change)
        for term in pod.terms.affinity:
            _bump(self.affinity, term, row, change)
        for weighted in pod.terms.preferred:
            _bump(self.preferred, weighted, row, change)


def _bump(table: dict[K, RowCounts], key: K, row: int, change: int) -> None:
    counts = table.get(key)
    if counts is None:
        counts = table[key] = RowCounts()
    counts.add(row, change)
    if not counts.sparse:
        del table[key]


def _chooses(pod_sets: PodSets, old: dict[str, str], new: dict[str, str]) -> bool:
    """Whether the change of a namespace's labels takes it into one of the pod sets, or out of it."""
    return any(a.namespace_selector.matches(old) != a.namespace_selector.matches(new) for a in pod_sets)
