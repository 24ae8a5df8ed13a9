"""5,000 nodes: only those in view exist, and all can be reached. `make bench NAME=page-scroll` measures the speed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from harness.dashboard.stage import Stage

pytestmark = [pytest.mark.slow, pytest.mark.needs("chromium")]

NODES = 5000


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with Stage(tmp_path_factory.mktemp("many"), [], simulated=NODES) as stage:
        yield stage


def test_all_of_them_can_be_reached(stage: Stage, tab: Callable[..., Page]) -> None:
    page = tab(stage.url)
    grid = page.locator("#grid")
    expect(page.locator("#shown")).to_have_text("5,000")
    expect(grid).to_have_attribute("aria-rowcount", "5001")
    assert page.locator("#space .row").count() < 60
    grid.focus()
    page.keyboard.press("End")
    expect(page.locator("#space [aria-rowindex='5001'] .name")).to_have_text("sim-4999")
    expect(page.locator("#space [aria-rowindex='5001']")).to_be_in_viewport()
    page.locator("#search").fill("4321")
    expect(page.locator("#space .row:visible .name")).to_have_text(["sim-4321"])
    page.locator("#search").fill("")
    stage.create_pod("one", nodeSelector={"kubernetes.io/hostname": "sim-2500"})
    expect(page.locator("#decisions li", has_text="sim-2500").first).to_be_visible()
    page.get_by_role("columnheader", name="Pods").get_by_role("button").click()
    expect(page.locator("#space [aria-rowindex='2'] .name")).to_have_text("sim-2500")
    page.locator("#which").select_option("stale")
    expect(page.locator("#empty")).to_have_text("No node fits this search.", timeout=60_000)
