"""The web page with 5,000 nodes in a real browser: the longest task and the frame times while scrolling, live.

A real scheduler, an embedded API server and simulated nodes; pods are created throughout, so that figures change. The
browser's trace has the duration of each task of the page's main thread, from before the page is loaded until the last
scroll. TRACE=FILE keeps the trace, for the browser's developer tools. NODES and SECONDS change the size.
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from playwright.sync_api import Browser, Page

from harness.dashboard.browser import chromium
from harness.dashboard.stage import Stage

NODES = int(os.environ.get("NODES", "5000"))
SECONDS = float(os.environ.get("SECONDS", "20"))
PODS_PER_SECOND = 20
SPEED = 2400  # pixels per second: two views of the list
LONG = 100.0  # ms
TASK = "RunTask"
CATEGORIES = ["disabled-by-default-devtools.timeline", "devtools.timeline", "blink.user_timing"]
FRAMES = """() => {
    window.frames_at = [];
    const note = (now) => { window.frames_at.push(now); requestAnimationFrame(note); };
    requestAnimationFrame(note);
}"""


def run() -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder, Stage(Path(folder), [], simulated=NODES) as stage:
        print(f"{NODES} nodes report", flush=True)
        _stand_back()
        with chromium() as browser, _pods_coming(stage):
            trace, frames = _use(browser, stage.url)
    if file := os.environ.get("TRACE"):
        Path(file).write_bytes(trace)
    tasks, on_processor = main_thread_tasks(json.loads(trace)["traceEvents"])
    figures: dict[str, object] = {
        "nodes": NODES,
        "tasks": len(tasks),
        "longest_task_ms": round(max(tasks), 1),
        "longest_task_cpu_ms": round(max(on_processor), 1),
        "tasks_over_50_ms": sum(task > LONG / 2 for task in tasks),
        "tasks_over_100_ms": sum(task > LONG for task in tasks),
        "frames": len(frames),
        "frame_p50_ms": round(float(np.quantile(frames, 0.5)), 1),
        "frame_p95_ms": round(float(np.quantile(frames, 0.95)), 1),
        "frame_max_ms": round(max(frames), 1),
    }
    for name, value in figures.items():
        print(f"{name:<20} {value}")
    return figures


def _stand_back() -> None:
    """Run the cluster only when the browser is idle: users' browsers share no processor with their cluster."""
    for process in psutil.Process().children(recursive=True):
        for thread in process.threads():
            os.sched_setscheduler(thread.id, os.SCHED_IDLE, os.sched_param(0))


@contextmanager
def _pods_coming(stage: Stage) -> Iterator[None]:
    over = threading.Event()

    def create() -> None:
        number = 0
        while not over.wait(1 / PODS_PER_SECOND):
            stage.create_pod(f"comes-{number}", runs_for="10s")
            number += 1

    creating = threading.Thread(target=create)
    creating.start()
    try:
        yield
    finally:
        over.set()
        creating.join()


def _use(browser: Browser, url: str) -> tuple[bytes, list[float]]:
    """The trace of loading and scrolling, and the ms between two frames while scrolling."""
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    browser.start_tracing(page=page, categories=CATEGORIES)
    page.goto(url)
    page.locator("#space .row:visible").first.wait_for()
    page.evaluate(FRAMES)
    _scroll(page)
    at = page.evaluate("window.frames_at")
    return browser.stop_tracing(), np.diff(at).tolist()


def _scroll(page: Page) -> None:
    """By the wheel at a steady speed, then in jumps by the keyboard, then in another sort order."""
    grid = page.locator("#grid")
    _wheel(page, SECONDS / 2)
    grid.focus()
    for key in ("End", "Home", *["PageDown"] * 20, "End"):
        page.keyboard.press(key)
        page.wait_for_timeout(100)
    page.get_by_role("columnheader", name="Free").get_by_role("button").click()
    _wheel(page, SECONDS / 2)


def _wheel(page: Page, seconds: float) -> None:
    """The browser generates the wheel events: sending each from the driver would take much of a processor."""
    box = page.locator("#grid").bounding_box()
    assert box is not None
    gesture = {"x": box["x"] + 50, "y": box["y"] + 200, "yDistance": -SPEED * seconds, "speed": SPEED}
    before = page.evaluate("document.getElementById('grid').scrollTop")
    page.context.new_cdp_session(page).send("Input.synthesizeScrollGesture", gesture | {"gestureSourceType": "mouse"})
    assert page.evaluate("document.getElementById('grid').scrollTop") - before > SPEED * seconds / 2, "it scrolls"


def main_thread_tasks(events: list[dict[str, Any]]) -> tuple[list[float], list[float]]:
    """ms of every task of the page's main thread, wall time and processor time: on a busy machine they differ."""
    main = {
        (event["pid"], event["tid"])
        for event in events
        if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"
    }
    tasks: defaultdict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        thread = (event["pid"], event["tid"])
        if event["name"] == TASK and event["ph"] == "X" and thread in main:
            tasks[thread].append(event)
    ours = max(tasks.values(), key=len)  # a spare renderer, if there is one, has almost no tasks
    return [task["dur"] / 1000 for task in ours], [task.get("tdur", 0) / 1000 for task in ours]
