"""The page's addresses: its files, its stream of events, and one node in detail.

Nothing is fetched from elsewhere and nothing runs that is not one of these files: the content security policy says so
to the browser. All addresses in the files are relative, so the page also works behind a proxy's prefix.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from importlib import resources

import msgspec

from carico.health import Page, Request, Stream, text
from carico.scheduler.page.live import Live

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = (
    ("Content-Security-Policy", POLICY),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-cache"),
)
TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
JSON = "application/json"
RETRY_AFTER = "5"  # s


def files() -> dict[str, Callable[[], Page]]:
    """`/` and `/page/NAME` for each file of the page."""
    found: dict[str, Callable[[], Page]] = {}
    for file in resources.files(__package__).joinpath("assets").iterdir():
        kind = TYPES.get(file.name.rpartition(".")[2])
        if kind is not None:
            page = Page(HTTPStatus.OK, kind, file.read_bytes(), HEADERS)
            found["/" if file.name == "index.html" else f"/page/{file.name}"] = lambda page=page: page  # type: ignore[misc]
    return found


def asked(live: Live) -> dict[str, Callable[[Request], Page | Stream]]:
    return {"/page/live": lambda request: _live(live, request), "/page/node": lambda request: _node(live, request)}


def _live(live: Live, request: Request) -> Page | Stream:
    if request.method != "GET":
        return text(HTTPStatus.METHOD_NOT_ALLOWED, "only GET is answered here")
    if live.readers.full:
        headers = (("Retry-After", RETRY_AFTER), *HEADERS)
        why = f"{len(live.readers)} pages are open already; close one\n"
        return Page(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain; charset=utf-8", why.encode(), headers)
    return Stream("text/event-stream", live.follow, HEADERS[:-1])


def _node(live: Live, request: Request) -> Page:
    name = request.query.get("name", "")
    found = live.node(name) if request.method == "GET" else None
    if found is None:
        return text(HTTPStatus.NOT_FOUND, f"no node {name!r} is known here; ask with ?name=NODE")
    return Page(HTTPStatus.OK, JSON, msgspec.json.encode(found), HEADERS)
