"""Authentication and authorization of the private pages, where they are reachable from outside this host.

As on kube-scheduler's own port: the API server authenticates the bearer token (TokenReview) and then authorizes its
user to `get` or `post` the path (SubjectAccessReview). Positive and negative answers are cached for some seconds.
Reviews are sent at a limited rate, so that clients that guess tokens cannot load the API server.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus
from typing import NamedTuple

import msgspec

from carico.clock import Clock
from carico.errors import CaricoError, RejectedRequest
from carico.http.head import RequestHead
from carico.kube import reviews
from carico.kube.client import Client

log = logging.getLogger(__name__)

KEPT = 10.0  # s that an answer is cached, as in kube-scheduler
REMEMBERED = 1000  # answers
REVIEWS = 10.0  # requests/s to the API server
BURST = 20.0  # requests at once
PATIENCE = 5.0  # s: timeout of one request
_BEARER = re.compile(r"[Bb]earer +([A-Za-z0-9._~+/-]{1,8192}=*)")


class _Kept(NamedTuple):
    until: float  # s, monotonic
    refused: RejectedRequest | None


class AccessReview:
    def __init__(self, client: Client, clock: Clock) -> None:
        self._client, self._clock = client, clock
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()
        self._tokens, self._at = BURST, clock.monotonic()

    async def check(self, head: RequestHead) -> None:
        """Raises RejectedRequest for a caller that is not authorized."""
        found = _BEARER.fullmatch(head.headers.get("authorization", ""))
        if found is None:
            raise _unknown("a bearer token is needed")
        verb = head.method.lower()
        key = hashlib.sha256("\n".join((found[1], verb, head.path)).encode()).digest()
        kept = self._kept.get(key)
        if kept is None or kept.until <= self._clock.monotonic():
            kept = _Kept(self._clock.monotonic() + KEPT, await self._review(found[1], verb, head.path))
            self._keep(key, kept)
        if kept.refused is not None:
            raise kept.refused.with_traceback(None)  # else each raise of the kept error adds to its traceback

    def _keep(self, key: bytes, kept: _Kept) -> None:
        self._kept[key] = kept
        self._kept.move_to_end(key)
        if len(self._kept) > REMEMBERED:
            self._kept.popitem(last=False)

    async def _review(self, token: str, verb: str, path: str) -> RejectedRequest | None:
        status = await self._call(partial(reviews.token, self._client, token))
        if not status.get("authenticated"):
            return _unknown("the API server does not know this token")
        user = status.get("user") or {}
        names = {"user": user.get("username", ""), "uid": user.get("uid", ""), "groups": user.get("groups") or []}
        extra = {"extra": user["extra"]} if user.get("extra") else {}
        about = {"nonResourceAttributes": {"path": path, "verb": verb}}
        status = await self._call(partial(reviews.subject_access, self._client, names | extra | about))
        if status.get("allowed") and not status.get("denied"):
            return None
        return RejectedRequest(HTTPStatus.FORBIDDEN, f"{names['user']!r} may not {verb} {path!r}")

    async def _call(self, review: Callable[[], Awaitable[reviews.Status]]) -> reviews.Status:
        self._take()
        try:
            async with asyncio.timeout(PATIENCE):
                return await review()
        except (CaricoError, OSError, msgspec.DecodeError) as error:
            log.warning("a caller of the private pages could not be reviewed: %s", error)
            again = (("Retry-After", "1"),)
            raise RejectedRequest(
                HTTPStatus.SERVICE_UNAVAILABLE, "the API server does not review requests now", again
            ) from error

    def _take(self) -> None:
        now = self._clock.monotonic()
        self._tokens, self._at = min(BURST, self._tokens + (now - self._at) * REVIEWS), now
        if self._tokens < 1:
            raise RejectedRequest(HTTPStatus.TOO_MANY_REQUESTS, "too many callers to review", (("Retry-After", "1"),))
        self._tokens -= 1


def _unknown(reason: str) -> RejectedRequest:
    return RejectedRequest(HTTPStatus.UNAUTHORIZED, reason, (("WWW-Authenticate", "Bearer"),))
