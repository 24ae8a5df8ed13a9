"""The rights that the calls in calls.py need, as RBAC's verbs on resources."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from carico.kube.calls import CALLS, LEASES, OWN_NAMES, ApiCall, NeededBy


class Right(NamedTuple):
    verb: str
    group: str
    resource: str
    subresource: str = ""
    namespace: str = ""  # all of them
    name: str = ""  # any

    def __str__(self) -> str:
        name = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        return f"{self.verb} {name}{f'.{self.group}' if self.group else ''}"


def rights(
    needed_by: Collection[NeededBy],
    own_namespace: str = "",
    lease_name: str = "",
    *,
    optional: bool = False,
    also: Iterable[ApiCall] = (),
) -> list[Right]:
    """What these parts need together, and `also` plugins.

    Lease, Secrets and ConfigMap are of one namespace, everything else of all.

    >>> [str(right) for right in rights({NeededBy.PRIVATE_PAGES})]
    ['create tokenreviews.authentication.k8s.io', 'create subjectaccessreviews.authorization.k8s.io']
    """
    own = {LEASES: (lease_name,), **OWN_NAMES}
    return [
        Right(
            call.verb,
            call.resource.group,
            call.resource.plural,
            call.subresource,
            own_namespace if call.resource in own else "",
            name,
        )
        for call in (*CALLS, *also)
        if call.needed_by & set(needed_by) and (optional or not call.optional)
        for name in (own.get(call.resource, ("",)) if call.verb != "create" else ("",))
    ]
