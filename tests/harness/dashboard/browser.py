"""Debian's Chromium, driven over its own protocol, for the tests, the benchmark and the pictures of the page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


@contextmanager
def chromium(*arguments: str) -> Iterator[Browser]:
    """Without a window, in a profile of its own. While it lives, an event loop runs in this thread."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=[*ARGUMENTS, *arguments])
        try:
            yield browser
        finally:
            browser.close()
