"""An index of the pod sets that a pod can belong to, by its namespace and labels.

A cluster has a pod set per Service, controller and affinity term: matching hundreds of them against every pod that is
added or removed would cost more than everything else. Nearly all of them name their namespaces and require one label.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Generic, TypeVar

from carico.scheduler.cache.affinity_terms import PodSet

T = TypeVar("T", bound=Hashable)

ANY = "*"  # any namespace: for pod sets that select namespaces by labels
Place = tuple[str, str, str]  # namespace, key and value of a label; no key: no label is required


class PodSetIndex(Generic[T]):
    """Objects, indexed by their pod set.

    >>> from carico.kube.selectors import NOTHING, from_labels
    >>> index = PodSetIndex()
    >>> index.add(PodSet(frozenset({"shop"}), NOTHING, from_labels({"app": "web"})), "web")
    >>> list(index.candidates("shop", {"app": "web", "pod": "web-1"})), list(index.candidates("shop", {"app": "db"}))
    (['web'], [])
    """

    def __init__(self) -> None:
        self._members: dict[Place, dict[T, None]] = {}
        self._places: dict[T, tuple[Place, ...]] = {}

    def __len__(self) -> int:
        return len(self._places)

    def add(self, pod_set: PodSet, member: T) -> None:
        places = self._places[member] = self._chosen(pod_set)
        for place in places:
            self._members.setdefault(place, {})[member] = None

    def remove(self, member: T) -> None:
        for place in self._places.pop(member):
            del self._members[place][member]
            if not self._members[place]:
                del self._members[place]

    def candidates(self, namespace: str, labels: Mapping[str, str]) -> Iterator[T]:
        """The objects whose pod set may contain such a pod, each once."""
        for name in (namespace, ANY):
            yield from self._members.get((name, "", ""), ())
            for key, value in labels.items():
                yield from self._members.get((name, key, value), ())

    def _chosen(self, pod_set: PodSet) -> tuple[Place, ...]:
        """The keys of one required label: of several, the one with the fewest entries in the index."""
        if pod_set.selector.never:
            return ()
        names = pod_set.namespaces if pod_set.namespace_selector.never else (ANY,)
        demanded = [r for r in pod_set.selector.requirements if r.operator == "In"]
        if not demanded:
            return tuple((name, "", "") for name in names)
        options = [tuple((name, r.key, value) for name in names for value in r.values) for r in demanded]
        return min(options, key=lambda places: sum(len(self._members.get(place, ())) for place in places))
