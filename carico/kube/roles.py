"""The scheduler's ClusterRole and Role, generated from the list of its calls.

One rule for each resource, with the reason of each verb as a comment. Everything but the Lease is needed in all
namespaces: pods, claims and Events are wherever users create them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import groupby

from carico.kube.calls import CALLS, LEASES, ApiCall, NeededBy

NAME = "carico-scheduler"


def manifests(
    needed_by: Collection[NeededBy],
    lease_namespace: str,
    lease_name: str = NAME,
    *,
    name: str = NAME,
    also: Iterable[ApiCall] = (),
) -> str:
    """YAML of a ClusterRole and, where a Lease is needed, of a Role in its namespace; `also`: calls of plugins."""
    calls = [call for call in (*CALLS, *also) if call.needed_by & set(needed_by)]
    everywhere = [call for call in calls if call.resource is not LEASES]
    documents = [_document("ClusterRole", name, "", _rules(everywhere, needed_by))]
    if leases := [call for call in calls if call.resource is LEASES]:
        documents.append(_document("Role", name, lease_namespace, _lease_rules(leases, needed_by, lease_name)))
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


def _lease_rules(calls: list[ApiCall], parts: Collection[NeededBy], lease_name: str) -> Iterator[str]:
    """RBAC cannot restrict `create` to a name: the request has none when it is authorized."""
    yield from _rule([call for call in calls if call.verb == "create"], parts)
    yield from _rule([call for call in calls if call.verb != "create"], parts, lease_name)


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
