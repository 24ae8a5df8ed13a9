"""Which audiences a pod can belong to at all, found by its namespace and labels instead of asking each of them.

A cluster has an audience per Service, controller and affinity term: asking hundreds of them about every pod that comes
or goes would cost more than all the rest. Nearly all of them name their namespaces and demand a certain label.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Generic, TypeVar

from carico.scheduler.terms import Audience

T = TypeVar("T", bound=Hashable)

ANY = "*"  # stands for all namespaces, where they are chosen by their labels
Place = tuple[str, str, str]  # namespace, key and value of a label; no key: nothing is known before it is asked


class AudienceIndex(Generic[T]):
    """Things by the audience that they are about.

    >>> from carico.kube.selectors import NOTHING, from_labels
    >>> index = AudienceIndex()
    >>> index.add(Audience(frozenset({"shop"}), NOTHING, from_labels({"app": "web"})), "web")
    >>> list(index.candidates("shop", {"app": "web", "pod": "web-1"})), list(index.candidates("shop", {"app": "db"}))
    (['web'], [])
    """

    def __init__(self) -> None:
        self._things: dict[Place, dict[T, None]] = {}
        self._places: dict[T, tuple[Place, ...]] = {}

    def __len__(self) -> int:
        return len(self._places)

    def add(self, audience: Audience, thing: T) -> None:
        places = self._places[thing] = self._chosen(audience)
        for place in places:
            self._things.setdefault(place, {})[thing] = None

    def remove(self, thing: T) -> None:
        for place in self._places.pop(thing):
            del self._things[place][thing]
            if not self._things[place]:
                del self._things[place]

    def candidates(self, namespace: str, labels: Mapping[str, str]) -> Iterator[T]:
        """Everything about audiences to which such a pod may belong, each once."""
        for name in (namespace, ANY):
            yield from self._things.get((name, "", ""), ())
            for key, value in labels.items():
                yield from self._things.get((name, key, value), ())

    def _chosen(self, audience: Audience) -> tuple[Place, ...]:
        """Under one demanded label: of several, the one that shares its place with the fewest others."""
        if audience.selector.never:
            return ()
        names = audience.namespaces if audience.namespace_selector.never else (ANY,)
        demanded = [r for r in audience.selector.requirements if r.operator == "In"]
        if not demanded:
            return tuple((name, "", "") for name in names)
        options = [tuple((name, r.key, value) for name in names for value in r.values) for r in demanded]
        return min(options, key=lambda places: sum(len(self._things.get(place, ())) for place in places))
