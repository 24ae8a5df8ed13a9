"""Which nodes a caller may report for. A server checks it once per call, before it reads the first message.

With `token_audience` the caller's ServiceAccount token decides (tokens.py). Without it and without client certificates
all callers are unauthenticated and may send anything: suitable for a trusted network only. With `client_ca` the
certificate decides, by the rule of Kubernetes for its nodes: the
organisation is `system:nodes` and the name `system:node:NAME`, as in a kubelet's own certificate. The name is the
common name or an alternative name: a common name has at most 64 characters. A replica of the aggregator has the common
name `carico:aggregator`; a scheduler has `carico:scheduler` and may only receive. Any other certificate gives no
rights, even if the same CA signed it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from carico.errors import InvalidMessage, Unauthenticated

NODE_PREFIX = "system:node:"
NODES = "system:nodes"
REPLICA = "carico:aggregator"
SCHEDULER = "carico:scheduler"

AUTHORIZATION = "authorization"  # the header with a token

Facts = Mapping[str, Iterable[bytes]]  # the peer's TLS properties, by gRPC's property name
Metadata = Mapping[str, str]  # the call's headers

# One attribute of a subject as RFC 2253 writes it, e.g. `O=system:nodes`; a separator inside a value is escaped.
_ATTRIBUTE = re.compile(r"([^=,+]+)=((?:[^\\,+]|\\.)*)(?:[,+]|$)")


class Caller(NamedTuple):
    names: frozenset[str] | None  # nodes that it may report for; None = any
    is_replica: bool
    is_scheduler: bool = False

    def __str__(self) -> str:
        if self.names is None:
            return "an unknown caller"
        if self.is_scheduler:
            return SCHEDULER
        return REPLICA if self.is_replica else "/".join(sorted(self.names)[:3])

    def is_node(self) -> bool:
        return self.names is None or bool(self.names)

    def may_replicate(self) -> bool:
        return self.is_replica

    def may_subscribe(self) -> bool:
        """To class costs, which are for those that place or run pods."""
        return self.is_node() or self.is_scheduler

    def authorize_node(self, node: str) -> None:
        """Raises InvalidMessage if it may not."""
        if self.names is not None and node not in self.names:
            raise InvalidMessage("identity", f"{self} may not report for {node!r}")

    def authorize_replica(self) -> None:
        if not self.is_replica:
            raise InvalidMessage("identity", f"{self} may not act as a replica of the aggregator")


class Admission(NamedTuple):
    caller: Caller
    ends_in: float = math.inf  # s after which its credential is no longer valid


class CallerIdentity(Protocol):
    async def admit(self, facts: Facts, metadata: Metadata, address: str) -> Admission:
        """Who calls, from `address`; raises Unauthenticated, or TryAgain when that cannot be decided now."""


class AnyCaller:
    """No caller is checked; `plaintext`: any caller may also act as a replica, which reports for many nodes."""

    def __init__(self, *, plaintext: bool) -> None:
        self._plaintext = plaintext

    async def admit(self, facts: Facts, metadata: Metadata, address: str) -> Admission:  # noqa: ARG002
        if self._plaintext and AUTHORIZATION in metadata:
            raise Unauthenticated("this token came over plaintext, where others can read it; use TLS")
        return Admission(Caller(names=None, is_replica=self._plaintext))


class Certificates:
    """The names in the client's certificate.

    >>> subject = b"CN=system:node:n1,O=system:nodes"
    >>> Certificates.caller({"x509_subject": [subject], "x509_common_name": [b"system:node:n1"]}).names
    frozenset({'n1'})
    """

    async def admit(self, facts: Facts, metadata: Metadata, address: str) -> Admission:  # noqa: ARG002
        return Admission(self.caller(facts))

    @classmethod
    def caller(cls, facts: Facts) -> Caller:
        common = _texts(facts, "x509_common_name")
        if not common:
            raise Unauthenticated("a client certificate with a common name is needed here; give tls_cert and tls_key")
        caller = Caller(cls._nodes(facts, common), REPLICA in common, SCHEDULER in common)
        if not caller.names and not caller.is_replica and not caller.is_scheduler:
            raise Unauthenticated(
                f"the certificate of {common[0][:80]!r} names no node, replica or scheduler; "
                f"a node's has the organisation {NODES} and the name {NODE_PREFIX}NAME"
            )
        return caller

    @staticmethod
    def _nodes(facts: Facts, common: list[str]) -> frozenset[str]:
        if not any(NODES in organisations(subject) for subject in _texts(facts, "x509_subject")):
            return frozenset()
        names = [*common, *_texts(facts, "x509_subject_alternative_name")]
        return frozenset(name.removeprefix(NODE_PREFIX) for name in names if name.startswith(NODE_PREFIX)) - {""}


def organisations(subject: str) -> list[str]:
    r"""
    >>> organisations("CN=system:node:n1,O=system:nodes"), organisations("CN=x\\,O=system:nodes")
    (['system:nodes'], [])
    """
    found, at = [], 0
    while attribute := _ATTRIBUTE.match(subject, at):
        at = attribute.end()
        if attribute[1] == "O":
            found.append(re.sub(r"\\(.)", r"\1", attribute[2]))
    return found if at == len(subject) else []


def _texts(facts: Facts, name: str) -> list[str]:
    return [value.decode("utf-8", "replace") for value in facts.get(name, ())]
