"""The whole demo, and its end: by itself, by Ctrl-C, and by kill -9 of each of its processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

PATIENCE = 120.0  # s; it starts six processes on what may be a busy machine
DEMO = [sys.executable, "-m", "carico.cli", "demo"]
PARTS = ("carico.embedded.apiserver", "aggregator", "scheduler", "carico.embedded.node", "agent")

pytestmark = pytest.mark.slow


class Running:
    """A demo whose processes are identified by the folder that they use."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [*DEMO, "--png", str(folder / "demo.png"), *flags],
            env=os.environ | {"TMPDIR": str(folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def until(self, happened: Any) -> Any:
        end = time.monotonic() + PATIENCE
        while not (found := happened()):
            assert time.monotonic() < end, "it did not happen"
            time.sleep(0.05)
        return found

    def others(self) -> dict[int, list[str]]:
        """Process numbers and command lines of all that belongs to it, without the demo itself."""
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) not in (self.process.pid, os.getpid()):
                try:
                    words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                    place = f"{os.readlink(entry / 'cwd')} {(entry / 'environ').read_bytes().decode(errors='replace')}"
                except OSError:
                    continue
                if str(self.folder) in place and words != [""]:
                    found[int(entry.name)] = words
        return found

    def pods_at_work(self) -> list[int]:
        found = []
        for pid, words in self.others().items():
            with suppress(OSError):  # it may have ended meanwhile
                if "pi" in words and "/pods/" in os.readlink(f"/proc/{pid}/cwd"):
                    found.append(pid)
        return found

    def part(self, name: str) -> int:
        if name == "itself":
            return self.process.pid
        if name in ("supervisor", "supervisor of the pods"):
            parent = self.process.pid if name == "supervisor" else self.part("carico.embedded.node")
            return self._only(lambda pid, words: "carico.embedded.supervisor" in words and parent_of(pid) == parent)
        return self._only(lambda _, words: name in words and "carico.embedded.supervisor" not in words)

    def _only(self, wanted: Any) -> int:
        (found,) = [pid for pid, words in self.others().items() if wanted(pid, words)]
        return found


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Any]:
    started: list[Running] = []

    def start(*flags: str) -> Running:
        started.append(Running(tmp_path, *flags))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.communicate()


def test_it_ends_with_the_ratios_and_leaves_a_picture_and_nothing_else(demo: Any) -> None:
    running = demo("--json", "--pods", "5")
    out, err = running.process.communicate(timeout=3 * PATIENCE)
    assert running.process.returncode == 0, err
    *ways, last = [json.loads(line) for line in out.splitlines()]
    assert [way["way"] for way in ways] == ["100m", "500m", "carico"]
    assert last["name"] == "demo"
    assert {"pct_mean_ratio", "jct_ratio", "turnaround_ratio_500m"} <= last["figures"].keys()
    assert all(way["pod_completion"]["mean"] > 0 and way["latency"]["p99"] > 0 for way in ways)
    assert ways[0]["at_once"] == 5, "100m lets in all of five pods"
    assert [path.name for path in running.folder.iterdir()] == ["demo.png"]
    assert running.others() == {}


def test_with_keep_it_stays_for_a_look_with_as_many_nodes_as_wanted(demo: Any) -> None:
    running = demo("--pods", "2", "--keep", "--simulate", "3")
    lines = iter(running.process.stderr.readline, "")
    next(line for line in lines if "The cluster stays until Ctrl-C" in line)
    page = next(lines).strip()
    with urllib.request.urlopen(f"{page}debug/ledger", timeout=PATIENCE) as answer:
        ledger = json.load(answer)["nodes"]
    assert sorted(ledger) == ["sim-0000", "sim-0001", "sim-0002", "this-machine"]
    assert not any(node["stale"] for node in ledger.values())
    running.process.send_signal(signal.SIGINT)
    out, err = running.process.communicate(timeout=PATIENCE)
    assert "pod turnaround" in out, "the table comes before the wait"
    assert "Traceback" not in err
    running.until(lambda: not running.others())


# The other parts are supervised by the same code as these two: they are killed in the long tests.
KILLED_IN_CI = ("itself", "supervisor", "supervisor of the pods", "carico.embedded.apiserver", "agent")


@pytest.mark.parametrize(
    "victim",
    [*KILLED_IN_CI, *(pytest.param(part, marks=pytest.mark.long) for part in PARTS if part not in KILLED_IN_CI)],
)
def test_kill_9_of_any_of_its_processes_leaves_nothing_running_and_the_next_start_works(demo: Any, victim: Any) -> None:
    running = demo("--pods", "40")
    running.until(running.pods_at_work)
    os.kill(running.part(victim), signal.SIGKILL)
    _, err = running.process.communicate(timeout=PATIENCE)
    running.until(lambda: not running.others())
    assert running.process.returncode == (-signal.SIGKILL if victim == "itself" else 1)
    if victim in PARTS:
        name = victim.rsplit(".", 1)[-1]
        assert f"carico: the {name} of the embedded cluster ended with exit code 137" in err
    if victim == "itself":
        again = demo("--pods", "40")
        again.until(again.pods_at_work)
        again.process.terminate()
        again.process.communicate(timeout=PATIENCE)
        again.until(lambda: not again.others())
        assert list(again.folder.glob("carico-demo-*")) == [], "the folder of the killed one is gone as well"


def test_ctrl_c_leaves_nothing(demo: Any) -> None:
    running = demo("--pods", "40")
    running.until(running.pods_at_work)
    running.process.send_signal(signal.SIGINT)
    _, err = running.process.communicate(timeout=PATIENCE)
    assert running.process.returncode == 130
    assert "Traceback" not in err
    running.until(lambda: not running.others())
    assert list(running.folder.iterdir()) == []
