"""The page's files: what they may load in a browser."""

from __future__ import annotations

import re
from importlib import resources

from carico.http.message import Page, Request
from carico.scheduler.http.dashboard import site


def test_every_file_forbids_what_the_page_does_not_need() -> None:
    for path, route in site.files().items():
        page = route.answer(Request("GET", {}))
        assert isinstance(page, Page)
        headers = dict(page.headers)
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy, path
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["X-Frame-Options"] == "DENY"


def test_the_files_name_nothing_outside() -> None:
    """No other host, no inline script or style: the policy would refuse them, and people would see half a page."""
    for file in resources.files("carico.scheduler.http.dashboard").joinpath("assets").iterdir():
        text = file.read_text().replace("http://www.w3.org/2000/svg", "")
        assert "://" not in text, file.name
        assert "innerHTML" not in text, file.name
        if file.name == "index.html":
            assert not re.search(r"<script(?![^>]*src=)|\sstyle=|\son[a-z]+=", text)
            named = set(re.findall(r'(?:src|href)="page/([^"]+)"', text))
            assert named <= {path.removeprefix("/page/") for path in site.files()}
