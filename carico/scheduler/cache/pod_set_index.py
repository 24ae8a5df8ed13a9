"""An index of the audiences that a pod can belong to, by its namespace and labels.

A cluster has an audience per Service, controller and affinity term: matching hundreds of them against every pod that is
added or removed would cost more than everything else. Nearly all of them name their namespaces and require one label.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Generic, TypeVar

from carico.scheduler.cache.affinity_terms import PodSet

T = TypeVar("T", bound=Hashable)

ANY = "*"  # any namespace: for audiences that select namespaces by labels
Place = tuple[str, str, str]  # namespace, key and value of a label; no key: no label is required


class AudienceIndex(Generic[T]):
    """Objects, indexed by their audience.

    >>> from carico.kube.selectors import NOTHING, from_labels
    >>> index = AudienceIndex()
    >>> index.add(PodSet(frozenset({"shop"}), NOTHING, from_labels({"app": "web"})), "web")
    >>> list(index.candidates("shop", {"app": "web", "pod": "web-1"})), list(index.candidates("shop", {"app": "db"}))
    (['web'], [])
    """

    def __init__(self) -> None:
        self._members: dict[Place, dict[T, None]] = {}
        self._places: dict[T, tuple[Place, ...]] = {}

    def __len__(self) -> int:
        return len(self._places)

    def add(self, audience: PodSet, member: T) -> None:
        places = self._places[member] = self._chosen(audience)
        for place in places:
            self._members.setdefault(place, {})[member] = None

    def remove(self, member: T) -> None:
        for place in self._places.pop(member):
            del self._members[place][member]
            if not self._members[place]:
                del self._members[place]

    def candidates(self, namespace: str, labels: Mapping[str, str]) -> Iterator[T]:
        """The objects whose audience may contain such a pod, each once."""
        for name in (namespace, ANY):
            yield from self._members.get((name, "", ""), ())
            for key, value in labels.items():
                yield from self._members.get((name, key, value), ())

    def _chosen(self, audience: PodSet) -> tuple[Place, ...]:
        """The keys of one required label: of several, the one with the fewest entries in the index."""
        if audience.selector.never:
            return ()
        names = audience.namespaces if audience.namespace_selector.never else (ANY,)
        demanded = [r for r in audience.selector.requirements if r.operator == "In"]
        if not demanded:
            return tuple((name, "", "") for name in names)
        options = [tuple((name, r.key, value) for name in names for value in r.values) for r in demanded]
        return min(options, key=lambda places: sum(len(self._members.get(place, ())) for place in places))
