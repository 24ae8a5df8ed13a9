"""Resource requests of a pod, computed as in kube-scheduler.

Containers that run together are summed; an init container runs before them, together with the sidecars that were
started earlier, so it counts as a maximum. Pod-level requests replace the sum (KEP-2837); the RuntimeClass overhead is
added. A pod that is being resized in place (KEP-1287) occupies the largest of what its spec requests, what was
allocated and what it has. Sums are exact and rounded up once, at the end.

No value in an object may overflow the sums of a node: amounts are limited to 0 … MOST. An invalid quantity counts as
MOST in a pod, and as 0 in a node: overestimating is safe.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

from carico.kube import quantity
from carico.kube.objects import Container, ContainerStatus, Pod, ResourceRequirements

CPU, MEMORY, EPHEMERAL = "cpu", "memory", "ephemeral-storage"
PODS = "pods"
MOST = 2**53  # 9 PB, or 9e12 cores; a thousand of them still fit into the 64 bits of a node's sum

Amounts = dict[str, Fraction]
NOTHING, TOO_MUCH = Fraction(0), Fraction(MOST)
Requests = dict[str, int]  # cpu in thousandths of a core, everything else in whole units


def of_pod(pod: Pod, *, running: bool) -> Requests:
    """Of a waiting pod by its spec, of a `running` one by its status as well."""
    amounts = _of_containers(pod, running)
    amounts.update(_of_whole_pod(pod, running))
    _add(amounts, _exact(pod.spec.overhead))
    return {name: _rounded(name, amount) for name, amount in amounts.items() if counted(name)}


def allocatable(amounts: Mapping[str, str]) -> Requests:
    """The allocatable amounts of a node, in the same units."""
    known = ((name, _parsed(text, NOTHING)) for name, text in amounts.items() if counted(name) or name == PODS)
    return {name: _rounded(name, amount) for name, amount in known}


def counted(name: str) -> bool:
    """Resources that scheduling counts: native ones, huge pages, and everything with a domain in its name.

    >>> [counted(n) for n in ("cpu", "hugepages-2Mi", "example.com/gpu", "storage")]
    [True, True, True, False]
    """
    return name in (CPU, MEMORY, EPHEMERAL) or "/" in name or name.startswith(("hugepages-", "attachable-volumes-"))


def _of_containers(pod: Pod, running: bool) -> Amounts:
    have = _statuses(pod) if running else {}
    total: Amounts = {}
    for container in pod.spec.containers:
        _add(total, _of_container(pod, container, have.get(container.name)))
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in pod.spec.init_containers:
        sidecar = container.restart_policy == "Always"
        mine = _of_container(pod, container, have.get(container.name) if sidecar else None)
        if sidecar:
            _add(total, mine)
            _add(sidecars, mine)
            _raise(peak, sidecars)
        else:
            _raise(peak, _sum(mine, sidecars))
    _raise(total, peak)
    return total


def _of_container(pod: Pod, container: Container, status: ContainerStatus | None) -> Amounts:
    if status is None or status.resources is None:
        return _exact(container.resources.requests)
    return _effective(pod, container.resources.requests, status.resources.requests, status.allocated_resources)


def _of_whole_pod(pod: Pod, running: bool) -> Amounts:
    whole = pod.spec.resources
    if whole is None:
        return {}
    wanted = {name: text for name, text in whole.requests.items() if _of_whole_pods(name)}
    actuated: ResourceRequirements | None = pod.status.resources if running else None
    if actuated is None:
        return _exact(wanted)
    effective = _effective(pod, whole.requests, actuated.requests, pod.status.allocated_resources)
    return {name: effective.get(name, Fraction(0)) for name in wanted}


def _of_whole_pods(name: str) -> bool:
    """Resources that pod-level requests may have."""
    return name in (CPU, MEMORY) or name.startswith("hugepages-")


def _effective(pod: Pod, wanted: Mapping[str, str], has: Mapping[str, str], granted: Mapping[str, str]) -> Amounts:
    """The largest of the three; a resize that the kubelet marked Infeasible does not count."""
    infeasible = any(c.type == "PodResizePending" and c.reason == "Infeasible" for c in pod.status.conditions)
    amounts = _exact(has)
    _raise(amounts, _exact(granted))
    if not infeasible:
        _raise(amounts, _exact(wanted))
    return amounts


def _statuses(pod: Pod) -> dict[str, ContainerStatus]:
    both: Iterable[ContainerStatus] = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    return {status.name: status for status in both}


def _exact(amounts: Mapping[str, str]) -> Amounts:
    return {name: _parsed(text, TOO_MUCH) for name, text in amounts.items()}


def _parsed(text: str, otherwise: Fraction) -> Fraction:
    try:
        return quantity.parse(text)
    except ValueError:
        return otherwise


def _add(total: Amounts, more: Amounts) -> None:
    for name, amount in more.items():
        total[name] = total[name] + amount if name in total else amount


def _sum(a: Amounts, b: Amounts) -> Amounts:
    total = dict(a)
    _add(total, b)
    return total


def _raise(total: Amounts, least: Amounts) -> None:
    for name, amount in least.items():
        if name not in total or amount > total[name]:
            total[name] = amount


def _rounded(name: str, amount: Fraction) -> int:
    return max(0, min(MOST, quantity.ceiling(amount * 1000 if name == CPU else amount)))
