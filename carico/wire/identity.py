"""Whom a caller may speak for. A server asks once per call, before it reads the first message.

Without client certificates nobody is known and everybody may say anything: fit for a trusted network only. With them
(the server has `tls_ca`) the certificate's names decide. A node's is `system:node:NAME`, as the kubelet's own, or NAME;
a replica of the aggregator's is `carico:aggregator`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from carico.errors import CaricoError, RefusedMessage

NODE_PREFIX = "system:node:"
REPLICA = "carico:aggregator"

Facts = Mapping[str, Iterable[bytes]]  # what TLS says about the other side, by gRPC's property name
Metadata = Mapping[str, str]  # the call's headers


class Unauthenticated(CaricoError):
    """The caller did not prove to be anybody. Ends the call."""


class Caller(NamedTuple):
    names: frozenset[str] | None  # nodes that it may speak for; None = any
    is_replica: bool

    def speaks_for(self, node: str) -> None:
        """Raises RefusedMessage if it may not."""
        if self.names is not None and node not in self.names:
            raise RefusedMessage("identity", f"{'/'.join(sorted(self.names)) or 'nobody'} may not speak for {node!r}")

    def speaks_for_replicas(self) -> None:
        if not self.is_replica:
            raise RefusedMessage("identity", f"only a certificate of {REPLICA!r} may speak as a replica")


class Identity(Protocol):
    def caller(self, facts: Facts, metadata: Metadata) -> Caller:
        """Who calls, or Unauthenticated."""


class Anyone:
    """Nobody is checked."""

    def caller(self, facts: Facts, metadata: Metadata) -> Caller:  # noqa: ARG002
        return Caller(names=None, is_replica=True)


class Certificates:
    """The names in the client's certificate.

    >>> Certificates().caller({"x509_common_name": [b"system:node:n1"]}, {}).names
    frozenset({'n1'})
    """

    def caller(self, facts: Facts, metadata: Metadata) -> Caller:  # noqa: ARG002
        raw = [*facts.get("x509_common_name", ()), *facts.get("x509_subject_alternative_name", ())]
        names = {name.decode("utf-8", "replace") for name in raw}
        if not names:
            raise Unauthenticated(
                "a client certificate with a name is needed here; give the client tls_cert and tls_key"
            )
        return Caller(frozenset(name.removeprefix(NODE_PREFIX) for name in names - {REPLICA}), REPLICA in names)
