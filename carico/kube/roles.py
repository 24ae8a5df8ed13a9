"""The scheduler's ClusterRole and Role, generated from the list of its calls.

One rule for each resource, with the reason of each verb as a comment. Everything but the Lease and Carico's own Secrets
and ConfigMap is needed in all namespaces: pods, claims and Events are wherever users create them. The aggregator needs
`manifests({NeededBy.TOKENS}, "", name="carico-aggregator")`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import groupby

from carico.kube.calls import CALLS, LEASES, OWN_NAMES, ApiCall, ApiResource, NeededBy

NAME = "carico-scheduler"


def manifests(
    needed_by: Collection[NeededBy],
    lease_namespace: str,
    lease_name: str = NAME,
    *,
    name: str = NAME,
    also: Iterable[ApiCall] = (),
) -> str:
    """YAML of a ClusterRole and, where a Lease or certificates are needed, of a Role in their namespace.

    They have one namespace here, the one of the scheduler's pods; a Lease elsewhere needs a Role there. `also`: calls
    of plugins.
    """
    names = {LEASES: (lease_name,), **OWN_NAMES}
    calls = [call for call in (*CALLS, *also) if call.needed_by & set(needed_by)]
    everywhere = [call for call in calls if call.resource not in names]
    documents = [_document("ClusterRole", name, "", _rules(everywhere, needed_by))]
    if any(call.resource in names for call in calls):
        rules = [rule for resource, only in names.items() for rule in _named_rules(calls, needed_by, resource, only)]
        documents.append(_document("Role", name, lease_namespace, rules))
    return "---\n".join(documents)


def _document(kind: str, name: str, namespace: str, rules: Iterable[str]) -> str:
    where = [f"  namespace: {namespace}"] if namespace else []
    head = ["apiVersion: rbac.authorization.k8s.io/v1", f"kind: {kind}", "metadata:", f"  name: {name}", *where]
    return "\n".join([*head, "rules:", *rules]) + "\n"


def _rules(calls: Iterable[ApiCall], parts: Collection[NeededBy]) -> Iterator[str]:
    def of(call: ApiCall) -> tuple[str, str, str]:
        return call.resource.group, call.resource.plural, call.subresource

    in_order = sorted(calls, key=of)
    for _, same in groupby(in_order, key=of):
        yield from _rule(list(same), parts)


def _named_rules(
    calls: list[ApiCall], parts: Collection[NeededBy], resource: ApiResource, names: tuple[str, ...]
) -> Iterator[str]:
    """RBAC cannot restrict `create` to a name: the request has none when it is authorized."""
    of_resource = [call for call in calls if call.resource is resource]
    if not of_resource:
        return
    yield from _rule([call for call in of_resource if call.verb == "create"], parts)
    yield from _rule([call for call in of_resource if call.verb != "create"], parts, ", ".join(names))


def _rule(calls: list[ApiCall], parts: Collection[NeededBy], only: str = "") -> Iterator[str]:
    for why, same in groupby(calls, key=lambda call: "; ".join(call.why[part] for part in call.why if part in parts)):
        yield f"# {', '.join(call.verb for call in same)}: {why}"
    first = calls[0]
    resource = f"{first.resource.plural}/{first.subresource}" if first.subresource else first.resource.plural
    yield f'- apiGroups: ["{first.resource.group}"]'
    yield f"  resources: [{resource}]"
    if only:
        yield f"  resourceNames: [{only}]"
    yield f"  verbs: [{', '.join(call.verb for call in calls)}]"
