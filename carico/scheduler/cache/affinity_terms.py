"""Inter-pod affinity, compiled: the pods that a term selects, and the topology domain that it applies to."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from carico.kube.objects import Affinity, Pod, PodAffinity, PodAffinityTerm
from carico.kube.selectors import NOTHING, Selector, from_selector


@dataclass(frozen=True, slots=True)
class PodSet:
    """A set of pods: those of certain namespaces whose labels match."""

    namespaces: frozenset[str]
    namespace_selector: Selector  # by the namespaces' labels, in addition to the list
    selector: Selector

    def includes(self, namespace: str, namespace_labels: dict[str, str], labels: dict[str, str]) -> bool:
        if namespace not in self.namespaces and not self.namespace_selector.matches(namespace_labels):
            return False
        return self.selector.matches(labels)


@dataclass(frozen=True, slots=True)
class Term:
    """Affinity or anti-affinity: in the same domain of `topology_key` as these pods, or in no such domain."""

    topology_key: str
    pod_set: PodSet


class Weighted(NamedTuple):
    term: Term
    weight: int  # negative for anti-affinity


@dataclass(frozen=True, slots=True, weakref_slot=True)
class PodTerms:
    """All terms of a pod."""

    affinity: tuple[Term, ...] = ()
    anti_affinity: tuple[Term, ...] = ()
    preferred: tuple[Weighted, ...] = ()


NO_TERMS = PodTerms()

_LATEST = 4  # pods whose terms are kept
_latest: deque[tuple[Pod, PodTerms]] = deque(maxlen=_LATEST)


def of_pod(pod: Pod) -> PodTerms:
    """The pod's terms; those of the latest pods are cached, because hints of all waiting pods need a changed pod's."""
    affinity = pod.spec.affinity
    if affinity is None or (affinity.pod_affinity is None and affinity.pod_anti_affinity is None):
        return NO_TERMS
    for known, found in _latest:
        if known is pod:
            return found
    made = _compiled(pod, affinity)
    _latest.append((pod, made))
    return made


def _compiled(pod: Pod, affinity: Affinity) -> PodTerms:
    towards = affinity.pod_affinity or PodAffinity()
    away = affinity.pod_anti_affinity or PodAffinity()
    return PodTerms(
        affinity=tuple(_term(t, pod.namespace) for t in towards.required),
        anti_affinity=tuple(_term(t, pod.namespace) for t in away.required),
        preferred=(
            *(Weighted(_term(w.pod_affinity_term, pod.namespace), w.weight) for w in towards.preferred),
            *(Weighted(_term(w.pod_affinity_term, pod.namespace), -w.weight) for w in away.preferred),
        ),
    )


def _term(piece: PodAffinityTerm, namespace: str) -> Term:
    own = not piece.namespaces and piece.namespace_selector is None
    pod_set = PodSet(
        namespaces=frozenset({namespace} if own else piece.namespaces),
        namespace_selector=NOTHING if piece.namespace_selector is None else from_selector(piece.namespace_selector),
        selector=from_selector(piece.label_selector),
    )
    return Term(piece.topology_key, pod_set)
