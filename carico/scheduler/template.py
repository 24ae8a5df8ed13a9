"""What makes two pods one template.

The pods of a Job or a ReplicaSet differ in name, labels and the volume of their token, not in what a node must offer
them. A `Template` stands for everything of a pod that a node is measured against; filters that need no more keep
their answers per template. Labels and namespace, which other pods' rules look at, are interned apart, as `Identity`.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import msgspec

from carico.kube.objects import Container, Pod, PodSpec, Volume
from carico.scheduler import requests, terms
from carico.scheduler.charge import Claim
from carico.scheduler.requests import Requests
from carico.scheduler.terms import PodTerms
from carico.types import ClassKey

_encode = msgspec.json.Encoder().encode


class Template:
    """One for all pods alike; `memo` is where plugins keep what they compiled from the spec, under their name."""

    __slots__ = ("__weakref__", "memo", "requests", "spec")

    def __init__(self, pod: Pod) -> None:
        self.spec: PodSpec = pod.spec
        self.requests: Requests = requests.of_pod(pod, running=False)
        self.memo: dict[str, Any] = {}


class Identity:
    """Namespace and labels: what selectors see of a pod."""

    __slots__ = ("__weakref__", "classes", "labels", "namespace")

    def __init__(self, namespace: str, labels: dict[str, str]) -> None:
        self.namespace = namespace
        self.labels = labels
        self.classes: WeakKeyDictionary[Template, ClassKey] = WeakKeyDictionary()  # of pods without annotations


class PodInfo:
    """A pod with all that is worked out once and used at every attempt."""

    __slots__ = ("claim", "identity", "pod", "requests", "template", "terms", "volumes")

    def __init__(self, pod: Pod) -> None:
        self.claim: Claim | None = None  # worked out when it is first asked for (class_costs.py)
        self.pod = pod
        self.template = template_of(pod)
        self.identity = identity_of(pod)
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
        """What the pod occupies where it is; until it runs that is what its template asks for."""
        status = self.pod.status
        kept = (*status.container_statuses, *status.init_container_statuses)
        if status.resources is None and all(s.resources is None for s in kept):
            return self.template.requests
        return requests.of_pod(self.pod, running=True)

    def _terms(self) -> PodTerms:
        if self.pod.spec.affinity is None:
            return terms.NO_TERMS
        # The default namespace of a term is the pod's own. Kept while pods have them: namespaces come and go.
        memo: WeakValueDictionary[str, PodTerms] | None = self.template.memo.get("terms")
        if memo is None:
            memo = self.template.memo["terms"] = WeakValueDictionary()
        found = memo.get(self.pod.namespace)
        if found is None:
            found = memo[self.pod.namespace] = terms.of_pod(self.pod)
        return found


_templates: WeakValueDictionary[bytes, Template] = WeakValueDictionary()
_identities: WeakValueDictionary[tuple[str, frozenset[tuple[str, str]]], Identity] = WeakValueDictionary()


def template_of(pod: Pod) -> Template:
    key = _encode(_traits(pod.spec))
    found = _templates.get(key)
    if found is None:
        found = _templates[key] = Template(pod)
    return found


def identity_of(pod: Pod) -> Identity:
    key = (pod.namespace, frozenset(pod.metadata.labels.items()))
    found = _identities.get(key)
    if found is None:
        found = _identities[key] = Identity(pod.namespace, pod.metadata.labels)
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
    """Volumes that tie a pod to nodes; the others (token, config map, empty directory) are everywhere."""
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
