"""Unsupported plugin: rejects pods that need a feature missing here; a wrong placement would be worse than none."""

from __future__ import annotations

from carico.kube.objects import Node
from carico.scheduler.cache import requests
from carico.scheduler.cache.object_store import ObjectStore
from carico.scheduler.cache.template import PodInfo
from carico.scheduler.framework.cluster_events import Action, EventInterest
from carico.scheduler.framework.contract import SKIP, Cycle, PreFilter, Status, unresolvable

CLASS_PREFIX = "deviceclass.resource.kubernetes.io/"  # plus a DeviceClass's name: the resource that every class has


def unsupported(cycle: Cycle) -> dict[str, list[str]]:
    """The features that the pod needs and that are missing here, each with the resources that require it."""
    spec = cycle.pod.pod.spec
    found: dict[str, list[str]] = {}
    if spec.resource_claims:
        found["dynamic resource allocation (spec.resourceClaims)"] = []
    if resources := _without_device_plugin(cycle):
        found["dynamic resource allocation (an extended resource of a DeviceClass)"] = resources
    if spec.scheduling_group is not None:
        found["pod groups (spec.schedulingGroup)"] = []
    if spec.workload_ref is not None:
        found["pod groups (spec.workloadRef)"] = []
    return found


def _without_device_plugin(cycle: Cycle) -> list[str]:
    """Resources that the pod can only get from a DeviceClass: no node offers them."""
    wanted = [name for name, amount in cycle.pod.template.requests.items() if "/" in name and amount > 0]
    if not wanted:
        return []
    served, present = _served(cycle.snapshot.store), cycle.snapshot.present
    from_classes = [name for name in wanted if name in served or name.startswith(CLASS_PREFIX)]
    return [name for name in from_classes if not (cycle.snapshot.allocatable(name)[present] > 0).any()]


def _served(store: ObjectStore) -> set[str]:
    return {device_class.spec.extended_resource_name for device_class in store.device_classes.values()}


class Unsupported(PreFilter):
    name = "Unsupported"

    @property
    def interests(self) -> tuple[EventInterest, ...]:
        """Apart from these events, only a change of the pod itself helps."""
        return (
            EventInterest("Node", Action.ADD | Action.NODE_ALLOCATABLE, _offers),
            EventInterest("DeviceClass", Action.DELETE | Action.UPDATE, _needs_devices),
        )

    def pre_filter(self, cycle: Cycle) -> Status:
        found = unsupported(cycle)
        if not found:
            return SKIP
        listed = (f"{feature}{': ' + ', '.join(what) if what else ''}" for feature, what in found.items())
        return unresolvable(f"carico does not support {' and '.join(listed)}; use another schedulerName for this pod")


def _needs_devices(pod: PodInfo, old: object, new: object) -> bool:
    return any("/" in name for name in pod.template.requests)


def _offers(pod: PodInfo, old: Node | None, new: Node) -> bool:
    """Whether the node has an extended resource that the pod wants and that it did not have before."""
    has = requests.allocatable(new.status.allocatable)
    had = requests.allocatable(old.status.allocatable) if old is not None else {}
    return any("/" in name and has.get(name, 0) > 0 >= had.get(name, 0) for name in pod.template.requests)
