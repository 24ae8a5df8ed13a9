"""The page's routes: its files, its stream of events, and one node in detail.

The content security policy allows only these files: nothing is fetched from another host and no other script runs. All
URLs in the files are relative, so the page also works behind a proxy's path prefix.
"""

from __future__ import annotations

from http import HTTPStatus
from importlib import resources

import msgspec

from carico.http.message import JSON, Page, Request, Stream, text
from carico.http.routes import Route, shown
from carico.scheduler.http.dashboard.publisher import Publisher

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
RETRY_AFTER = "5"  # s


def routes(live: Publisher) -> dict[str, Route]:
    return files() | {
        "/page/live": Route(lambda _: _live(live)),
        "/page/node": Route(lambda request: _node(live, request)),
    }


def files() -> dict[str, Route]:
    """`/` and `/page/NAME` for each file of the page."""
    found: dict[str, Route] = {}
    for file in resources.files(__package__).joinpath("assets").iterdir():
        kind = TYPES.get(file.name.rpartition(".")[2])
        if kind is not None:
            page = Page(HTTPStatus.OK, kind, file.read_bytes(), HEADERS)
            found["/" if file.name == "index.html" else f"/page/{file.name}"] = _fixed(page)
    return found


def _fixed(page: Page) -> Route:
    return shown(lambda: page)


def _live(live: Publisher) -> Page | Stream:
    if live.readers.full:
        headers = (("Retry-After", RETRY_AFTER), *HEADERS)
        why = f"{len(live.readers)} pages are open already; close one\n"
        return Page(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain; charset=utf-8", why.encode(), headers)
    return Stream("text/event-stream", live.follow, HEADERS[:-1])


def _node(live: Publisher, request: Request) -> Page:
    name = request.query.get("name", "")
    found = live.node(name)
    if found is None:
        return text(HTTPStatus.NOT_FOUND, f"no node {name!r} is known here; use ?name=NODE")
    return Page(HTTPStatus.OK, JSON, msgspec.json.encode(found), HEADERS)
