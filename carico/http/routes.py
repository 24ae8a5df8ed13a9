"""The methods and body limit of each path; probes and /metrics, which every process has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from enum import Enum
from http import HTTPStatus
from time import perf_counter
from typing import NamedTuple

from prometheus_client import CollectorRegistry

from carico import metrics
from carico.http.message import Answer, Page, Request, text

BODY_LIMIT = 8 << 10  # bytes
SCRAPES_SHARE, SCRAPES_BURST = 0.1, 1.0  # s per s, and s in a row, that making /metrics may take
GET = ("GET", "HEAD")
POST = ("POST",)

WhyNot = Callable[[], str | None]


class Access(Enum):
    PROBE = "any client"
    SCRAPE = "clients that pass the server's check"
    PRIVATE = "the same, but from no other site's web page"
    LOCAL = "the same, but only on this machine, also where the server listens beyond loopback"


class Route(NamedTuple):
    answer: Callable[[Request], Answer | Awaitable[Answer]]
    methods: tuple[str, ...] = GET
    body_limit: int = BODY_LIMIT  # bytes of a POST
    access: Access = Access.PRIVATE


def shown(page: Callable[[], Page], access: Access = Access.PRIVATE) -> Route:
    """A page that does not depend on the request."""
    return Route(lambda _: page(), access=access)


def probe(name: str, why_not: WhyNot, lines: Callable[[], Iterable[str]] = lambda: ()) -> Route:
    """A health page from a function that returns a problem, or None.

    `?verbose` is answered with `lines`, then the outcome, as in Kubernetes' own probes.
    """

    def answer(request: Request) -> Page:
        problem = why_not()
        status = HTTPStatus.SERVICE_UNAVAILABLE if problem else HTTPStatus.OK
        if "verbose" not in request.query:
            return text(status, problem or "ok")
        outcome = f"failed: {problem}" if problem else "passed"
        return text(status, "\n".join([*lines(), f"{name} check {outcome}"]))

    return Route(answer, access=Access.PROBE)


def health(alive: WhyNot, ready: WhyNot, lines: Callable[[], Iterable[str]] = lambda: ()) -> dict[str, Route]:
    """The three paths that Kubernetes' components have; /healthz is the older name of /livez."""
    return {
        "/healthz": probe("healthz", alive),
        "/livez": probe("livez", alive),
        "/readyz": probe("readyz", ready, lines),
    }


def exposition(registry: CollectorRegistry) -> dict[str, Route]:
    return {"/metrics": Route(_Exposition(registry).answer, access=Access.SCRAPE)}


class _Exposition:
    """Repeated scrapes take at most a tenth of the process's time; beyond that the last page is returned again."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._left, self._at = SCRAPES_BURST, perf_counter()
        self._last: dict[metrics.Format, Page] = {}

    def answer(self, request: Request) -> Page:
        form = metrics.Format.of(request.headers.get("accept", ""), request.headers.get("accept-encoding", ""))
        now = perf_counter()
        self._left, self._at = min(SCRAPES_BURST, self._left + (now - self._at) * SCRAPES_SHARE), now
        if self._left <= 0 and form in self._last:
            return self._last[form]
        content_type, body, headers = metrics.page(self._registry, form)
        self._left -= perf_counter() - now
        page = self._last[form] = Page(HTTPStatus.OK, content_type, body, headers)
        return page
