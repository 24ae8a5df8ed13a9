"""Pictures of the web page for docs/: a real scheduler, simulated nodes, a real browser. `make pictures` runs it.

Pods start and end for a minute and a half before, so that the charts show data.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page

from harness.dashboard.browser import chromium
from harness.dashboard.stage import Stage

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pictures"
WIDE = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 780, "is_mobile": True, "has_touch": True}
NODES, MANY = 24, 5000
SECONDS = 90  # in which pods start and end


def main() -> int:
    with tempfile.TemporaryDirectory() as folder, Stage(Path(folder), [], simulated=NODES) as stage:
        _fill(stage)
        with chromium() as browser:
            _take(browser, stage, "page-light", WIDE)
            _take(browser, stage, "page-dark", WIDE, detail=True, color_scheme="dark")
            _take(browser, stage, "page-phone", PHONE)
    with tempfile.TemporaryDirectory() as folder, Stage(Path(folder), [], simulated=MANY) as stage:
        for i in range(MANY):
            stage.create_pod(f"batch-{i:04}")
        with chromium() as browser:
            _take(browser, stage, "page-5000", WIDE)
    return 0


def _fill(stage: Stage) -> None:
    """Jobs of different lengths; two unschedulable pods and one with a scheduling gate."""
    chance = random.Random(7)
    stage.create_pod("needs-a-gpu", nodeSelector={"accelerator": "gpu"})
    stage.create_pod("needs-fast-disk", nodeSelector={"disk": "nvme"})
    stage.create_pod("waits-for-quota", schedulingGates=[{"name": "example.com/quota"}])
    for second in range(SECONDS):
        for i in range(chance.randint(0, 12)):
            stage.create_pod(f"batch-{second:02}-{i}", runs_for=f"{chance.randint(20, 120)}s")
        time.sleep(1)


def _take(
    browser: Browser, stage: Stage, name: str, size: dict[str, Any], *, detail: bool = False, **options: Any
) -> None:
    width, height = size["width"], size["height"]
    others = {key: value for key, value in size.items() if key not in ("width", "height")}
    context = browser.new_context(viewport={"width": width, "height": height}, **others, **options)
    page = context.new_page()
    page.goto(stage.url)
    page.locator("#decisions li .badge").first.wait_for()
    if detail:
        _open_a_node(page)
    page.wait_for_timeout(1500)  # until the bars' animation has ended
    file = PICTURES / f"{name}.png"
    page.screenshot(path=file)
    print(f"{file.relative_to(ROOT)}  {file.stat().st_size >> 10} kB", flush=True)
    context.close()


def _open_a_node(page: Page) -> None:
    page.locator("#space .row").nth(3).click()
    page.locator("#usage-chart path.line").first.wait_for(state="attached")


if __name__ == "__main__":
    sys.exit(main())
