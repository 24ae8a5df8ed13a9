"""Keyboard, screen reader, phone, dark, and less motion."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from harness.dashboard.stage import Stage

pytestmark = [pytest.mark.slow, pytest.mark.needs("chromium")]

Tab = Callable[..., Page]
PHONE = {"width": 360, "height": 740, "is_mobile": True, "has_touch": True}


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with Stage(tmp_path_factory.mktemp("page"), [f"node-{i}" for i in range(30)]) as stage:
        stage.create_pod("placed-with-a-name-that-is-rather-long-for-a-phone-0123456789")
        stage.create_pod("gated", schedulingGates=[{"name": "example.com/quota"}])
        stage.create_pod("refused", nodeSelector={"disk": "none"})
        yield stage


def ready(page: Page) -> Page:
    expect(page.locator("#queue li", has_text="gated")).to_be_visible()
    expect(page.locator("#queue li", has_text="refused")).to_be_visible()
    expect(page.locator("#blocked .meter").first).to_be_attached()
    expect(page.locator("#decisions li", has_text="placed-with").first).to_be_visible()
    return page


def open_first(page: Page) -> None:
    page.locator("#grid").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#usage-chart path.line").first).to_be_attached()


def violations(page: Page, axe: str) -> list[str]:
    page.evaluate(axe)
    found: dict[str, Any] = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [f"{v['id']}: {n['target']} {n['failureSummary']}" for v in found["violations"] for n in v["nodes"]]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [{"width": 1280, "height": 800}, PHONE], ids=["wide", "phone"])
def test_axe_finds_nothing(stage: Stage, tab: Tab, axe: str, scheme: str, size: dict[str, Any]) -> None:
    page = ready(tab(stage.url, color_scheme=scheme, reduced_motion="reduce", **size))
    assert violations(page, axe) == []
    open_first(page)
    page.locator("summary").click()
    assert violations(page, axe) == []


def focused(page: Page) -> str:
    return str(page.evaluate("document.activeElement.id || document.activeElement.textContent.trim()"))


def test_with_the_keyboard_alone(stage: Stage, tab: Tab) -> None:
    page = ready(tab(stage.url))
    page.keyboard.press("Tab")
    assert focused(page) == "Skip to the nodes"
    page.keyboard.press("Enter")
    grid = page.locator("#grid")
    expect(grid).to_be_focused()
    assert grid.evaluate("e => getComputedStyle(e).outlineStyle") != "none"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    active = grid.get_attribute("aria-activedescendant")
    assert page.locator(f"#{active} .name").inner_text() == "node-2"
    assert page.locator(f"#{active}").get_attribute("aria-rowindex") == "4"  # the head is the first
    page.keyboard.press("End")
    active = grid.get_attribute("aria-activedescendant")
    assert page.locator(f"#{active} .name").inner_text() == "node-29"
    expect(page.locator(f"#{active}")).to_be_in_viewport()
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    expect(page.locator("#detail h2")).to_have_text("node-0")
    page.keyboard.press("Escape")
    expect(grid).to_be_focused()  # the focus comes back
    page.keyboard.press("/")
    page.keyboard.type("node-1")
    expect(page.locator("#shown")).to_have_text("11 of 30")
    expect(page.locator("#spoken")).to_have_text("11 nodes shown")


def test_columns_sort_by_keyboard_and_say_so(stage: Stage, tab: Tab) -> None:
    page = ready(tab(stage.url))
    name = page.get_by_role("columnheader", name="Node")
    expect(name).to_have_attribute("aria-sort", "ascending")
    name.get_by_role("button").focus()
    page.keyboard.press("Enter")
    expect(name).to_have_attribute("aria-sort", "descending")
    expect(page.locator("#space [aria-rowindex='2'] .name")).to_have_text("node-29")
    page.get_by_role("columnheader", name="Pods").get_by_role("button").press("Enter")
    expect(name).not_to_have_attribute("aria-sort", "descending")
    expect(page.locator("#space [aria-rowindex='2'] [data-label=Pods]")).to_have_text("1")


def test_what_moves_is_not_read_out(stage: Stage, tab: Tab) -> None:
    """Figures change all the time; a screen reader announces only what people have to know."""
    page = ready(tab(stage.url))
    page.evaluate("""() => {
        window.spoken = [];
        new MutationObserver(() => window.spoken.push(document.getElementById("spoken").textContent))
            .observe(document.getElementById("spoken"), {childList: true, characterData: true, subtree: true});
    }""")
    for i in range(5):
        stage.create_pod(f"quiet-{i}")
    expect(page.locator("#decisions li", has_text="quiet-4").first).to_be_visible()
    assert page.evaluate("window.spoken") == []
    assert page.locator("[aria-live], [role=log], [role=alert]").count() == 0


def test_on_a_phone_nothing_runs_over_the_edge(stage: Stage, tab: Tab) -> None:
    for i in range(3):  # more than any other node has, wherever the scheduler put those
        stage.create_pod(f"here-{i}", nodeSelector={"kubernetes.io/hostname": "node-7"})
    page = ready(tab(stage.url, **PHONE))
    over = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(over) == 0
    row = page.locator("#space .row:visible").first
    assert "free" in row.evaluate("e => getComputedStyle(e.querySelector('[data-label=Free]'), '::after').content")
    row.tap()
    expect(page.locator("#usage-chart path.line").first).to_be_attached()
    assert page.evaluate(over) == 0
    box = page.locator("#detail").bounding_box()
    assert box is not None
    assert box["width"] == 360
    page.locator("#close").tap()
    page.locator("#sort").select_option("pods")
    expect(page.locator("#space [aria-rowindex='2'] .name")).to_have_text("node-7")


def paper(page: Page) -> int:
    """How bright the background is, 0 to 255."""
    colour: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return sum(int(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3]) // 3


def test_light_and_dark_follow_the_system_or_the_button(stage: Stage, tab: Tab) -> None:
    page = tab(stage.url, color_scheme="dark")
    assert paper(page) < 60
    button = page.locator("#theme")
    button.click()
    expect(button).to_have_text("Theme: light")
    assert paper(page) > 200
    page.reload()
    expect(button).to_have_text("Theme: light")  # remembered
    assert paper(page) > 200
    button.click()
    assert paper(page) < 60
    assert paper(tab(stage.url, color_scheme="light")) > 200


def test_less_motion_means_none(stage: Stage, tab: Tab) -> None:
    asked = "getComputedStyle(document.querySelector('#blocked .meter i')).transitionDuration"
    assert ready(tab(stage.url)).evaluate(asked) == "0.3s"
    assert ready(tab(stage.url, reduced_motion="reduce")).evaluate(asked) == "0s"
