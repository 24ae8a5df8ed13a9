"""Verifies ServiceAccount tokens by TokenReview, with a cache and a limit on the requests.

What a token claims about itself is checked first: a wrong audience, another account or an end in the past costs no
request. A positive answer is kept for a short time and never past the token's end; a negative one for a shorter time.
While the API server does not answer, tokens in the cache pass, and calls with others end with UNAVAILABLE.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Collection
from typing import Any, NamedTuple

import msgspec
from prometheus_client import CollectorRegistry, Counter

from carico import token_claims
from carico.clock import Clock
from carico.errors import CaricoError, TokenRefused, TryAgain
from carico.kube import reviews
from carico.kube.client import Client
from carico.kube.review_budget import ReviewBudget
from carico.token_claims import Claims
from carico.types import ReviewedToken

log = logging.getLogger(__name__)

ACCEPTED_FOR = 60.0  # s that a positive answer is kept
REFUSED_FOR = 10.0  # s that a negative one is
ENTRIES = 20_000  # of each kind
PATIENCE = 5.0  # s for one review
AT_ONCE = 32  # reviews
LOG_EVERY = 10.0  # s between two lines about failures
NODE_NAME = "authentication.kubernetes.io/node-name"
REASONS = ("malformed", "audience", "account", "expired", "unknown", "no-node", "no-token", "plaintext")
RESULTS = ("authenticated", "refused", "error")


class TokenMetrics:
    """Of every process that verifies tokens."""

    def __init__(self, registry: CollectorRegistry, component: str) -> None:
        def counter(name: str, about: str, label: str, values: Collection[str]) -> dict[str, Counter]:
            found = Counter(name, about, ["component", label], registry=registry)
            return {value: found.labels(component, value) for value in values}

        self.reviews = counter("carico_token_reviews", "TokenReviews, by the result.", "result", RESULTS)
        self.cached = counter(
            "carico_token_cache_answers",
            "Tokens that were answered from the cache, by the answer.",
            "answer",
            ("accepted", "refused"),
        )
        self.refused = counter(
            "carico_tokens_refused", "Calls that were refused because of their token, by reason.", "reason", REASONS
        )
        about = "Calls that ended with UNAVAILABLE because their token could not be reviewed in time."
        self.postponed = Counter("carico_tokens_postponed", about, ["component"], registry=registry).labels(component)


class _Kept(NamedTuple):
    """A review's answer."""

    until: float  # s, monotonic
    token: ReviewedToken | None
    refused: tuple[str, str] = ("", "")


class TokenReviews:
    """`users` are the names of the accounts that can have any rights here."""

    def __init__(
        self, client: Client, audience: str, users: Collection[str], clock: Clock, metrics: TokenMetrics
    ) -> None:
        self._client, self._audience, self._users = client, audience, frozenset(users)
        self._clock, self._metrics = clock, metrics
        self._accepted: OrderedDict[bytes, _Kept] = OrderedDict()
        self._refused: OrderedDict[bytes, _Kept] = OrderedDict()
        self._under_way: dict[bytes, asyncio.Task[_Kept]] = {}
        self._budget = ReviewBudget(clock)
        self._places = asyncio.Semaphore(AT_ONCE)
        self._logged_at = float("-inf")

    async def review(self, token: str, address: str) -> ReviewedToken:
        """Raises TokenRefused, or TryAgain. `address` is where the caller calls from, without its port."""
        try:
            kept = await self._known_or_reviewed(token, address)
            if kept.token is None:
                raise TokenRefused(*kept.refused)
            return kept.token
        except TokenRefused as error:
            self.refuse(error.reason)
            raise
        except TryAgain:
            self._metrics.postponed.inc()
            raise

    def refuse(self, reason: str) -> None:
        """Counts a call that is refused because of its token."""
        self._metrics.refused[reason].inc()

    async def _known_or_reviewed(self, token: str, address: str) -> _Kept:
        claims = self._checked(token)
        key = hashlib.sha256(token.encode()).digest()
        if (kept := self._known(key)) is not None:
            self._metrics.cached["refused" if kept.token is None else "accepted"].inc()
            return kept
        if (running := self._under_way.get(key)) is None:
            running = self._under_way[key] = asyncio.create_task(self._review(token, claims, address))
            running.add_done_callback(lambda task: self._reviewed(key, task))
        return await asyncio.shield(running)

    def _checked(self, token: str) -> Claims:
        claims = token_claims.read(token)
        if self._audience not in claims.audiences:
            raise TokenRefused("audience", f"this token is not for the audience {self._audience!r}")
        if claims.subject not in self._users:
            raise TokenRefused("account", f"{claims.subject[:200]!r} has no rights here")
        if (ago := self._clock.wall() - claims.ends_at) >= 0:
            raise TokenRefused("expired", f"this token ended {ago:.0f} s ago by this machine's clock")
        return claims

    def _known(self, key: bytes) -> _Kept | None:
        for table in (self._accepted, self._refused):
            if (kept := table.get(key)) is not None and self._clock.monotonic() < kept.until:
                return kept
        return None

    def _reviewed(self, key: bytes, task: asyncio.Task[_Kept]) -> None:
        self._under_way.pop(key, None)
        if task.cancelled() or task.exception() is not None:
            return
        kept = task.result()
        table = self._refused if kept.token is None else self._accepted
        table[key] = kept
        table.move_to_end(key)
        if len(table) > ENTRIES:
            table.popitem(last=False)

    async def _review(self, token: str, claims: Claims, address: str) -> _Kept:
        await self._budget.take(address)
        status = await self._status(token)
        now, left = self._clock.monotonic(), claims.ends_at - self._clock.wall()
        try:
            found = self._accepted_by(status, claims)
        except TokenRefused as error:
            self._metrics.reviews["refused"].inc()
            return _Kept(now + REFUSED_FOR, None, (error.reason, error.detail))
        self._metrics.reviews["authenticated"].inc()
        return _Kept(now + min(ACCEPTED_FOR, left), found)

    async def _status(self, token: str) -> dict[str, Any]:
        try:
            async with self._places, asyncio.timeout(PATIENCE):
                return await reviews.token(self._client, token, (self._audience,))
        except (CaricoError, OSError, msgspec.DecodeError) as error:  # a timeout is an OSError
            self._metrics.reviews["error"].inc()
            self._log(str(error) or f"no answer within {PATIENCE:g} s")
            raise TryAgain("the API server does not review this token now; try again") from error

    def _log(self, why: str) -> None:
        now = self._clock.monotonic()
        if now - self._logged_at >= LOG_EVERY:
            self._logged_at = now
            log.warning("a token could not be reviewed: %s", why)

    def _accepted_by(self, status: dict[str, Any], claims: Claims) -> ReviewedToken:
        if status.get("authenticated") is not True:
            raise TokenRefused("unknown", "the API server does not accept this token")
        if self._audience not in (status.get("audiences") or ()):
            raise TokenRefused("audience", f"the API server did not verify the audience {self._audience!r}")
        user = status.get("user") or {}
        if user.get("username") != claims.subject:
            raise TokenRefused("account", "the API server names another user than this token")
        nodes: list[str] = (user.get("extra") or {}).get(NODE_NAME) or []
        return ReviewedToken(claims.subject, nodes[0] if len(nodes) == 1 else "", claims.ends_at)
