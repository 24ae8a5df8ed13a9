"""NodeAffinity plugin: labels (or the name) that a node must have, and labels that are preferred."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from carico.kube.objects import Node, NodeSelector, NodeSelectorTerm, PodSpec
from carico.kube.selectors import Requirement, as_integer, from_labels, requirement
from carico.scheduler.cache.rows import Mask, RowArray
from carico.scheduler.cache.snapshot import Snapshot
from carico.scheduler.cache.template import PodInfo, PodTemplate
from carico.scheduler.framework.cluster_events import Action, EventInterest
from carico.scheduler.framework.contract import (
    OK,
    SKIP,
    Cycle,
    Filter,
    PreFilter,
    PreScore,
    Reuse,
    Score,
    Status,
    Verdict,
)
from carico.scheduler.framework.scoring import normalised
from carico.types import Vector

NAME_FIELD = "metadata.name"


@dataclass(frozen=True, slots=True)
class NodeTerm:
    """One term: all of its requirements must hold."""

    labels: tuple[Requirement, ...]
    names: tuple[Requirement, ...]  # on the node's name: In or NotIn, with one value

    def rows(self, snapshot: Snapshot, rows: RowArray | None) -> Mask:
        mask = snapshot.labels.matching(self.labels, rows)
        for wanted in self.names:
            mask &= _named(snapshot, next(iter(wanted.values)), rows) == (wanted.operator == "In")
        return mask

    def matches(self, node: Node) -> bool:
        labels = node.metadata.labels
        return all(r.admits(labels.get(r.key)) for r in self.labels) and all(r.admits(node.name) for r in self.names)


@dataclass(frozen=True, slots=True)
class Required:
    """What a node must meet: the selector's labels, and at least one of the terms if there are terms."""

    labels: tuple[Requirement, ...]
    terms: tuple[NodeTerm, ...] | None

    def rows(self, snapshot: Snapshot, rows: RowArray | None) -> Mask:
        if self.terms is None:
            return snapshot.labels.matching(self.labels, rows)
        mask = any_term(self.terms, snapshot, rows)
        if self.labels:
            mask &= snapshot.labels.matching(self.labels, rows)
        return mask

    def matches(self, node: Node) -> bool:
        labels = node.metadata.labels
        if not all(r.admits(labels.get(r.key)) for r in self.labels):
            return False
        return self.terms is None or any(term.matches(node) for term in self.terms)


def any_term(terms: tuple[NodeTerm, ...], snapshot: Snapshot, rows: RowArray | None) -> Mask:
    """The rows that meet at least one of the terms; none if there are no terms."""
    if not terms:
        return np.zeros(len(snapshot) if rows is None else len(rows), dtype=np.bool_)
    mask = terms[0].rows(snapshot, rows)
    for term in terms[1:]:
        mask |= term.rows(snapshot, rows)
    return mask


def required(template: PodTemplate) -> Required | None:
    """What the pod requires of a node's labels or name; None if it requires nothing."""
    if "node_affinity" not in template.memo:
        template.memo["node_affinity"] = _required(template.spec)
    found: Required | None = template.memo["node_affinity"]
    return found


def _required(spec: PodSpec) -> Required | None:
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    selector = affinity.required if affinity is not None else None
    if selector is None and not spec.node_selector:
        return None
    return Required(
        tuple(from_labels(spec.node_selector).requirements), None if selector is None else terms_of(selector)
    )


def terms_of(selector: NodeSelector, *, by_name: bool = True) -> tuple[NodeTerm, ...]:
    """The terms that can match: an empty or malformed one matches no node."""
    compiled = (_term(piece, by_name) for piece in selector.node_selector_terms)
    return tuple(term for term in compiled if term is not None)


def _term(piece: NodeSelectorTerm, by_name: bool = True) -> NodeTerm | None:
    if not piece.match_expressions and not piece.match_fields:
        return None
    labels = tuple(requirement(e) for e in piece.match_expressions)
    names = tuple(requirement(e) for e in piece.match_fields)
    if not all(_well_formed(r) for r in labels) or not all(_on_name(r) for r in names):
        return None
    return NodeTerm(labels, names if by_name else ())


def _well_formed(r: Requirement) -> bool:
    if r.operator in ("In", "NotIn"):
        return bool(r.values)
    if r.operator in ("Gt", "Lt"):
        return len(r.values) == 1 and as_integer(next(iter(r.values))) is not None
    return r.operator in ("Exists", "DoesNotExist") and not r.values


def _on_name(r: Requirement) -> bool:
    return r.key == NAME_FIELD and r.operator in ("In", "NotIn") and len(r.values) == 1


def _named(snapshot: Snapshot, name: str, rows: RowArray | None) -> Mask:
    number = snapshot.rows.number.get(name, -1)
    if rows is not None:
        same: Mask = rows == number
        return same
    mask = np.zeros(len(snapshot), dtype=np.bool_)
    if 0 <= number < len(mask):
        mask[number] = True
    return mask


class NodeAffinity(PreFilter, Filter, PreScore, Score):
    name = "NodeAffinity"
    reuse = Reuse.NODE

    @property
    def interests(self) -> tuple[EventInterest, ...]:
        return (EventInterest("Node", Action.ADD | Action.NODE_LABEL, _now_matches),)

    def pre_filter(self, cycle: Cycle) -> Status:
        return SKIP if required(cycle.pod.template) is None else OK

    def filter(self, cycle: Cycle, rows: RowArray | None) -> Verdict:
        wanted = required(cycle.pod.template)
        assert wanted is not None
        met = wanted.rows(cycle.snapshot, rows)
        refused = np.logical_not(met, out=met)
        return Verdict.refuse(refused, "node(s) didn't match Pod's node affinity/selector", unresolvable=True)

    def pre_score(self, cycle: Cycle, rows: RowArray) -> Status:
        return OK if _preferred(cycle.pod.template) else SKIP

    def score(self, cycle: Cycle, rows: RowArray) -> Vector:
        total = np.zeros(len(rows))
        for term, weight in _preferred(cycle.pod.template):
            total += weight * term.rows(cycle.snapshot, rows)
        return normalised(total)


def _preferred(template: PodTemplate) -> list[tuple[NodeTerm, int]]:
    found: list[tuple[NodeTerm, int]] | None = template.memo.get("preferred_nodes")
    if found is None:
        affinity = template.spec.affinity.node_affinity if template.spec.affinity is not None else None
        pieces = affinity.preferred if affinity is not None else ()
        compiled = [(_term(p.preference), p.weight) for p in pieces if p.weight]
        found = template.memo["preferred_nodes"] = [(term, weight) for term, weight in compiled if term is not None]
    return found


def _now_matches(pod: PodInfo, old: Node | None, new: Node) -> bool:
    wanted = required(pod.template)
    return wanted is None or (wanted.matches(new) and (old is None or not wanted.matches(old)))
