"""The rights that the calls in calls.py need, as RBAC's verbs on resources."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from carico.kube.calls import CALLS, LEASES, ApiCall, NeededBy


class Right(NamedTuple):
    verb: str
    group: str
    resource: str
    subresource: str = ""
    namespace: str = ""  # all of them

    def __str__(self) -> str:
        name = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        return f"{self.verb} {name}{f'.{self.group}' if self.group else ''}"


def rights(
    needed_by: Collection[NeededBy], lease_namespace: str = "", *, optional: bool = False, also: Iterable[ApiCall] = ()
) -> list[Right]:
    """What these parts need together, and `also` plugins. Only the Lease is in one namespace.

    >>> [str(right) for right in rights({NeededBy.PRIVATE_PAGES})]
    ['create tokenreviews.authentication.k8s.io', 'create subjectaccessreviews.authorization.k8s.io']
    """
    return [
        Right(
            call.verb,
            call.resource.group,
            call.resource.plural,
            call.subresource,
            lease_namespace if call.resource is LEASES else "",
        )
        for call in (*CALLS, *also)
        if call.needed_by & set(needed_by) and (optional or not call.optional)
    ]
