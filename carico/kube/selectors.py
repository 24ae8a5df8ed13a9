"""Label selectors, compiled once and evaluated often.

A `Selector` is a set of requirements on one dictionary of labels. Equal selectors compare and hash equal whatever the
order in which they were written, so that they can key a cache.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from carico.kube.meta import LabelRequirement, LabelSelector

_INTEGER = re.compile(r"[+-]?[0-9]+")


@dataclass(frozen=True, slots=True)
class Requirement:
    """One test of one label."""

    key: str
    operator: str  # In, NotIn, Exists, DoesNotExist, Gt, Lt
    values: frozenset[str] = frozenset()

    def admits(self, value: str | None) -> bool:
        """Whether a label of this value (None: the label is missing) passes.

        >>> Requirement("zone", "NotIn", frozenset({"a"})).admits(None)
        True
        >>> Requirement("cores", "Gt", frozenset({"8"})).admits("16")
        True
        """
        if self.operator == "In":
            return value in self.values
        if self.operator == "NotIn":
            return value not in self.values
        if self.operator == "Exists":
            return value is not None
        if self.operator == "DoesNotExist":
            return value is None
        return self._compares(value)

    def _compares(self, value: str | None) -> bool:
        limit = next(iter(self.values), None)
        mine, theirs = as_integer(value), as_integer(limit)
        if mine is None or theirs is None:
            return False
        return mine > theirs if self.operator == "Gt" else mine < theirs


def as_integer(text: str | None) -> int | None:
    """The text as a 64-bit integer, or None.

    >>> as_integer("12"), as_integer("1_2"), as_integer("12 "), as_integer("9" * 30)
    (12, None, None, None)
    """
    if text is None or _INTEGER.fullmatch(text) is None:
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


@dataclass(frozen=True, slots=True)
class Selector:
    """All requirements must hold; without requirements everything matches."""

    requirements: frozenset[Requirement] = frozenset()
    never: bool = False  # matches nothing, whatever the requirements

    def matches(self, labels: Mapping[str, str]) -> bool:
        if self.never:
            return False
        return all(r.admits(labels.get(r.key)) for r in self.requirements)

    @property
    def empty(self) -> bool:
        """Matches everything."""
        return not self.never and not self.requirements

    def plus(self, more: Selector) -> Selector:
        """Matches what both match."""
        if more.empty:
            return self
        return Selector(self.requirements | more.requirements, self.never or more.never)


EVERYTHING = Selector()
NOTHING = Selector(never=True)


def from_labels(labels: Mapping[str, str]) -> Selector:
    """
    >>> from_labels({"app": "web"}).matches({"app": "web", "tier": "front"})
    True
    """
    return Selector(frozenset(Requirement(key, "In", frozenset({value})) for key, value in labels.items()))


def requirement(piece: LabelRequirement) -> Requirement:
    return Requirement(piece.key, piece.operator, frozenset(piece.values))


def from_selector(piece: LabelSelector | None) -> Selector:
    """As everywhere in Kubernetes: no selector matches nothing, an empty one everything.

    >>> from_selector(None).matches({}), from_selector(LabelSelector()).matches({})
    (False, True)
    """
    if piece is None:
        return NOTHING
    expressions = Selector(frozenset(requirement(e) for e in piece.match_expressions))
    return from_labels(piece.match_labels).plus(expressions)
