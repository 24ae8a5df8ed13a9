"""The browser of these tests, and what must not stand on its console."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from harness.dashboard.browser import chromium

expect.set_options(timeout=30_000)  # ms; the default of five seconds is little on a busy machine


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """For one file only: while it lives, an event loop runs in this thread, and others could not start theirs."""
    with chromium() as browser:
        yield browser


@pytest.fixture
def tab(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens an address in a browser of its own; afterwards nothing may stand on its console."""
    said: list[str] = []
    contexts = []

    def open_tab(url: str, width: int = 1280, height: int = 800, **options: Any) -> Page:
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page = context.new_page()

        def elsewhere(asked: str) -> list[str]:
            return [] if asked.startswith(url) else [f"asked for {asked}"]

        page.set_default_timeout(30_000)
        page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: said.append(f"error: {error}"))
        page.on("request", lambda request: said.extend(elsewhere(request.url)))
        page.goto(url)
        page.locator("#link[data-state=live]").wait_for()
        return page

    yield open_tab
    for context in contexts:
        context.close()
    # A scheduler that was killed on purpose is an error on the console of every browser.
    killed = ("ERR_CONNECTION_REFUSED", "ERR_CONNECTION_RESET", "ERR_INCOMPLETE_CHUNKED")
    assert [line for line in said if not any(error in line for error in killed)] == []


@pytest.fixture(scope="session")
def axe() -> str:
    import axe_playwright_python  # type: ignore[import-untyped]

    return (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()
