"""The page in a real browser, served by a real scheduler."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from harness.cluster.ports import free_port
from harness.dashboard.stage import Stage

pytestmark = [pytest.mark.slow, pytest.mark.needs("chromium")]

Tab = Callable[..., Page]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with Stage(tmp_path_factory.mktemp("page"), ["node-1", "node-2", "node-10"]) as stage:
        yield stage


def test_it_shows_the_cluster_and_follows_it(stage: Stage, tab: Tab) -> None:
    page = tab(stage.url)
    expect(page.locator("#space .row:visible .name")).to_have_text(["node-1", "node-2", "node-10"])
    expect(page.locator("#role")).to_have_text("leads")
    expect(page.locator("[data-figure=nodes] .big")).to_have_text("3")
    expect(page.locator("#space .row", has_text="node-10").locator(".badge")).to_have_text("settled")
    expect(page.locator("#space .row", has_text="node-2").locator("[data-label=CPU]")).to_have_text("20 %")
    before = int(page.locator("[data-figure=pods] .big").inner_text())
    stage.create_pod("shown-1")
    decision = page.locator("#decisions li", has_text="shown-1").first
    expect(decision).to_contain_text("placed")
    expect(decision).to_contain_text("of 3 nodes could take it")
    expect(page.locator("[data-figure=pods] .big")).to_have_text(str(before + 1))
    stage.create_pod("nowhere-1", nodeSelector={"disk": "none"})
    waiting = page.locator("#queue li", has_text="nowhere-1")
    expect(waiting).to_contain_text("0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.")
    expect(page.locator("#blocked")).to_contain_text("NodeAffinity")
    stage.create_node("node-3")
    expect(page.locator("#space .row:visible .name")).to_have_text(["node-1", "node-2", "node-3", "node-10"])
    expect(page.locator("#space .row", has_text="node-3").locator(".badge")).to_have_text("no report")


def test_a_label_is_text_whatever_a_node_calls_a_dimension(stage: Stage, tab: Tab) -> None:
    ask = "async (name) => (await import('/page/nodes.js')).labelOf(name)"
    page = tab(stage.url)
    for name, label in {"cpu": "CPU", "constructor": "constructor", "__proto__": "__proto__"}.items():
        assert page.evaluate(ask, name) == label


def test_a_node_in_detail(stage: Stage, tab: Tab) -> None:
    stage.create_pod("here-1", nodeSelector={"kubernetes.io/hostname": "node-2"})
    page = tab(stage.url)
    page.locator("#space .row", has_text="node-2").click()
    dialog = page.locator("#detail")
    expect(dialog.locator("h2")).to_have_text("node-2")
    expect(dialog.locator("#pods-here li", has_text="here-1")).to_contain_text("counted", timeout=30_000)
    for chart in ("usage-chart", "pods-chart"):
        path = dialog.locator(f"#{chart} path.line").first
        expect(path).to_have_attribute("d", re.compile(r"M[\d.]+ [\d.]+L"))
    dialog.locator("summary").click()
    expect(dialog.locator("#as-table tbody tr").first).to_contain_text("20 %")
    page.keyboard.press("ArrowRight")
    expect(dialog.locator("h2")).to_have_text("node-3")
    expect(dialog).to_contain_text("This node has not reported yet.")
    page.keyboard.press("Escape")
    expect(dialog).not_to_be_visible()


def test_the_scheduler_may_end_and_start_again(stage: Stage, tab: Tab) -> None:
    page = tab(stage.url)
    expect(page.locator("#identity")).not_to_be_empty()  # it is drawn some frames after the link is live
    before = page.locator("#identity").inner_text()
    stage.stop_scheduler(signal.SIGKILL)
    expect(page.locator("#link")).to_have_attribute("data-state", "lost")
    expect(page.locator("#notice")).to_contain_text("these figures are old")
    expect(page.locator("#spoken")).to_have_text("The connection to the scheduler is lost")
    expect(page.locator("#space .row:visible").first).to_be_visible()  # what was known stays
    stage.start_scheduler()
    expect(page.locator("#link")).to_have_attribute("data-state", "live", timeout=30_000)
    expect(page.locator("#identity")).not_to_have_text(before)
    expect(page.locator("#role")).to_have_text("leads", timeout=30_000)
    expect(page.locator("#notice")).not_to_be_visible()
    stage.create_pod("after-1")
    expect(page.locator("#decisions li", has_text="after-1").first).to_be_visible(timeout=30_000)


def test_a_standby_replica_shows_that(stage: Stage, tab: Tab) -> None:
    port = free_port()
    other = stage.start_scheduler(port=port)
    try:
        page = tab(f"http://127.0.0.1:{port}/")
        expect(page.locator("#role")).to_have_text("stands by", timeout=30_000)
        assert stage.scheduler is not None
        expect(page.locator("#notice")).to_contain_text(f"{stage.scheduler.identity} leads and binds")
    finally:
        other.stop(signal.SIGTERM)


def test_nothing_secret_is_sent(stage: Stage, tab: Tab) -> None:
    stage.create_pod("secretive-1", nodeSelector={"disk": "none"})
    page = tab(stage.url)
    expect(page.locator("#queue li", has_text="secretive-1")).to_be_visible()
    assert "s3cret" not in page.content()
    for node in stage.nodes:
        status, headers, body = stage.get(f"/page/node?name={node}")
        assert status == 200
        assert "s3cret" not in body
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"


def test_it_can_be_switched_off(stage: Stage) -> None:
    port = free_port()
    off = stage.start_scheduler("--no-page", port=port)
    try:
        kept, stage.url = stage.url, f"http://127.0.0.1:{port}/"
        assert [stage.get(path)[0] for path in ("/", "/page/live", "/page/main.js", "/page/node?name=node-1")] == [
            404
        ] * 4
        assert stage.get("/metrics")[0] == 200
    finally:
        stage.url = kept
        off.stop(signal.SIGTERM)


def test_an_empty_cluster(tmp_path: Path, tab: Tab) -> None:
    with Stage(tmp_path, []) as stage:
        page = tab(stage.url)
        expect(page.locator("#empty")).to_contain_text("No node yet")
        expect(page.locator("#queue")).to_have_text("The queue is empty.")
        expect(page.locator("#decisions")).to_have_text("Nothing decided yet.")
        stage.create_node("first")
        expect(page.locator("#space .row:visible .name")).to_have_text(["first"])
