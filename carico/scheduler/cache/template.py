"""Templates: pods with equal requirements to a node share one.

The pods of a Job or a ReplicaSet differ in name, labels and the volume of their token, not in their requirements to a
node. A `PodTemplate` holds all fields of a pod that nodes are filtered by; filters that need no more cache their
verdicts per template. Labels and namespace, which selectors of other pods match, are interned separately, as
`LabelSet`.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import msgspec

from carico.kube.objects import Container, Pod, PodSpec, Volume
from carico.scheduler.cache import affinity_terms, requests
from carico.scheduler.cache.affinity_terms import PodTerms
from carico.scheduler.cache.charge import Claim
from carico.scheduler.cache.requests import Requests
from carico.types import ClassKey

_encode = msgspec.json.Encoder().encode


class PodTemplate:
    """Shared by all equal pods; in `memo` plugins cache what they compiled from the spec, under their name."""

    __slots__ = ("__weakref__", "memo", "requests", "spec")

    def __init__(self, pod: Pod) -> None:
        self.spec: PodSpec = pod.spec
        self.requests: Requests = requests.of_pod(pod, running=False)
        self.memo: dict[str, Any] = {}


class LabelSet:
    """Namespace and labels: what selectors match of a pod."""

    __slots__ = ("__weakref__", "class_key", "classes", "labels", "namespace")

    def __init__(self, namespace: str, labels: dict[str, str]) -> None:
        self.namespace = namespace
        self.labels = labels
        # Of pods without annotations: their class where the labels determine it, and by template where the images do.
        self.class_key: ClassKey | None = None
        self.classes: WeakKeyDictionary[PodTemplate, ClassKey] | None = None


class PodInfo:
    """A pod with the values that are computed once and used at every attempt.

    The scheduler makes them by `PodTemplates.info`. Without `templates` a pod shares its template with no other.
    """

    __slots__ = ("claim", "identity", "pod", "requests", "template", "terms", "volumes")

    def __init__(self, pod: Pod, templates: PodTemplates | None = None) -> None:
        templates = PodTemplates() if templates is None else templates
        self.claim: Claim | None = None  # computed at first use (class_costs.py)
        self.pod = pod
        self.template = templates.template_of(pod)
        self.identity = templates.labels_of(pod)
        self.volumes = relevant_volumes(pod.spec)
        self.requests = self._requests()
        self.terms = self._terms()

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid

    @property
    def priority(self) -> int:
        return self.pod.spec.priority

    def __repr__(self) -> str:
        return f"PodInfo({self.pod.key})"

    def _requests(self) -> Requests:
        """What the pod occupies on its node; until it runs, the requests of its template."""
        status = self.pod.status
        kept = (*status.container_statuses, *status.init_container_statuses)
        if status.resources is None and all(s.resources is None for s in kept):
            return self.template.requests
        return requests.of_pod(self.pod, running=True)

    def _terms(self) -> PodTerms:
        if self.pod.spec.affinity is None:
            return affinity_terms.NO_TERMS
        # By namespace, the default of a term. Weak references, so that terms of deleted namespaces are dropped.
        memo: WeakValueDictionary[str, PodTerms] | None = self.template.memo.get("terms")
        if memo is None:
            memo = self.template.memo["terms"] = WeakValueDictionary()
        found = memo.get(self.pod.namespace)
        if found is None:
            found = memo[self.pod.namespace] = affinity_terms.of_pod(self.pod)
        return found


class PodTemplates:
    """The templates and label sets of one scheduler: equal pods share one, and those without a pod are dropped.

    What plugins and class costs cache in them depends on that scheduler's nodes and settings, so they have one owner.
    """

    def __init__(self) -> None:
        self._templates: WeakValueDictionary[bytes, PodTemplate] = WeakValueDictionary()
        self._label_sets: WeakValueDictionary[tuple[str, frozenset[tuple[str, str]]], LabelSet] = WeakValueDictionary()

    def info(self, pod: Pod) -> PodInfo:
        return PodInfo(pod, self)

    def template_of(self, pod: Pod) -> PodTemplate:
        key = _encode(_traits(pod.spec))
        found = self._templates.get(key)
        if found is None:
            found = self._templates[key] = PodTemplate(pod)
        return found

    def labels_of(self, pod: Pod) -> LabelSet:
        key = (pod.namespace, frozenset(pod.metadata.labels.items()))
        found = self._label_sets.get(key)
        if found is None:
            found = self._label_sets[key] = LabelSet(pod.namespace, pod.metadata.labels)
        return found


def _traits(spec: PodSpec) -> tuple[Any, ...]:
    return (
        [_container(c) for c in spec.containers],
        [_container(c) for c in spec.init_containers],
        spec.resources,
        spec.overhead,
        spec.node_selector,
        spec.affinity,
        spec.tolerations,
        spec.topology_spread_constraints,
        relevant_volumes(spec),
        spec.resource_claims,
        spec.scheduling_group,
        spec.workload_ref,
        spec.host_network,
        spec.host_users,
    )


def _container(c: Container) -> tuple[Any, ...]:
    return (c.resources.requests, c.ports, c.image, c.restart_policy, c.restart_policy_rules)


def relevant_volumes(spec: PodSpec) -> tuple[Volume, ...]:
    """Volumes that restrict a pod to nodes; the others (token, config map, empty directory) exist on any node."""
    return tuple(v for v in spec.volumes if _ties(v))


def _ties(volume: Volume) -> bool:
    return (
        volume.persistent_volume_claim is not None
        or volume.ephemeral is not None
        or volume.gce_persistent_disk is not None
        or volume.aws_elastic_block_store is not None
        or volume.iscsi is not None
        or volume.rbd is not None
    )
