"""Callers that are identified by the projected token of their ServiceAccount, in the header `authorization`.

The account decides what a caller may do, and the node that the API server names for the token decides which node it may
report for: the node on which the pod of this token was placed. The content of messages affects neither.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Protocol

from carico import token_claims
from carico.clock import Clock
from carico.errors import TokenRefused, Unauthenticated
from carico.settings import ServerTlsFiles
from carico.types import ReviewedToken
from carico.wire.identity import AUTHORIZATION, Admission, Caller, Facts, Metadata

_BEARER = re.compile(r"[Bb]earer +(\S+)")
NO_NODE = (
    "the API server names no node for this token, as those before Kubernetes 1.30 do not; identify agents by "
    "certificates there (client_ca instead of token_audience)"
)


class TokenReviewer(Protocol):
    async def review(self, token: str, address: str) -> ReviewedToken:
        """Raises TokenRefused, or TryAgain."""

    def refuse(self, reason: str) -> None:
        """Counts a call that is refused because of its token."""


class Accounts(NamedTuple):
    """User names of the ServiceAccounts that have rights here."""

    agent: str
    peer: str
    scheduler: str

    @classmethod
    def of(cls, files: ServerTlsFiles, namespace: str) -> Accounts:
        """`namespace`: of accounts that are given without one."""
        names = (files.agent_account, files.peer_account, files.scheduler_account)
        return cls(*(token_claims.username(name, namespace) for name in names))


class Tokens:
    def __init__(self, accounts: Accounts, reviewer: TokenReviewer, clock: Clock) -> None:
        self._accounts, self._reviewer, self._wall = accounts, reviewer, clock.wall

    async def admit(self, facts: Facts, metadata: Metadata, address: str) -> Admission:
        if b"ssl" not in facts.get("transport_security_type", ()):
            raise self._refused("plaintext", "tokens are accepted over TLS only")
        found = _BEARER.fullmatch(metadata.get(AUTHORIZATION, ""))
        if found is None:
            raise self._refused("no-token", "a ServiceAccount token is needed here; give token_file")
        try:
            token = await self._reviewer.review(found[1], address)
        except TokenRefused as error:
            raise Unauthenticated(str(error)) from error
        return Admission(self._caller(token), token.ends_at - self._wall())

    def _caller(self, token: ReviewedToken) -> Caller:
        if token.user != self._accounts.agent:
            is_peer, is_scheduler = token.user == self._accounts.peer, token.user == self._accounts.scheduler
            return Caller(frozenset(), is_replica=is_peer, is_scheduler=is_scheduler)
        if not token.node:
            raise self._refused("no-node", NO_NODE)
        return Caller(frozenset((token.node,)), is_replica=False)

    def _refused(self, reason: str, detail: str) -> Unauthenticated:
        self._reviewer.refuse(reason)
        return Unauthenticated(f"{reason}: {detail}")
