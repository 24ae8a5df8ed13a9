"""`carico top`: the picture, and the terminal that it is drawn on."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from dataclasses import replace
from fcntl import ioctl

import pytest

from carico.agent.screen import View, frame, paint
from carico.types import Estimate, Mode, NodeSize

ESTIMATE = Estimate(
    at=1.0,
    usage=(0.5, 0.1),
    capacity=1.5,
    baseline=(0.05, 0.08),
    cost=(0.15, 0.01),
    baseline_scalar=6.0,
    cost_scalar=0.15,
    pods=3,
    pod_capacity=3.27,
    mode=Mode.SETTLED,
    rejecting=False,
)
VIEW = View(
    dimensions=("cpu", "memory"),
    size=NodeSize(cores=2, memory_bytes=8 * 2**30),
    own_limits=False,
    usage=(0.5, 0.1),
    raw={"util": 0.95, "psi": 0.05, "mem": 0.1},
    estimate=ESTIMATE,
    history=[ESTIMATE, replace(ESTIMATE, pod_capacity=6.54, usage=(0.25, 0.1))],
    pods_from="containerd",
    notice="",
    left=12.0,
)
TOP = [sys.executable, "-m", "carico.cli", "top", "--runtime", "none"]


def text(view: View, width: int = 90, height: int = 40, colours: bool = False) -> list[str]:
    return [paint(line, colours) for line in frame(view, width, height)]


def test_the_picture():
    assert text(VIEW) == [
        "carico top   this machine: 2 cores, 8.0 GiB                                      12 s left",
        "",
        "cpu              ████████████████▌░░░░░░░░░░░░░░░░  50%   utilisation 0.95, pressure 0.05",
        "memory           ███▎░░░░░░░░░░░░░░░░░░░░░░░░░░░░░  10%",
        "",
        "Pod-Capacity     3.3 more pods fit here   (settled)",
        "pods             3   (counted by containerd)",
        "cost of a pod    cpu 15.0%   memory 1.0%",
        "without pods     cpu 5.0%   memory 8.0%",
        "signal k         1.50 times the recent load would still fit",
        "",
        "the last minute",
        "cpu              ▄▂ full is 100%",
        "memory           ▁▁ full is 100%",
        "Pod-Capacity     ▄█ full is 6.5",
    ]


@pytest.mark.parametrize("width", [1, 10, 40, 79, 200])
@pytest.mark.parametrize("height", [0, 1, 5, 60])
def test_no_line_is_wider_or_lower_than_the_terminal(width, height):
    lines = text(replace(VIEW, notice="x" * 300), width, height)
    assert len(lines) <= height
    assert all(len(line) <= width for line in lines)


def test_before_the_first_estimate_and_without_a_runtime():
    assert any("first estimate" in line for line in text(replace(VIEW, estimate=None, history=[])))
    alone = replace(ESTIMATE, pods=0)
    lines = text(replace(VIEW, estimate=alone, history=[alone], pods_from="", notice="pods: no socket"))
    assert any(line.endswith("not counted") for line in lines)
    assert any("assumed" in line for line in lines)
    assert lines[-1] == "pods: no socket"


def test_colours_add_nothing_but_colour():
    painted = text(VIEW, colours=True)
    assert [re.sub(r"\x1b\[\d+m", "", line).rstrip() for line in painted] == text(VIEW)


def test_in_a_pipe_it_is_lines():
    done = subprocess.run([*TOP, "--seconds", "2", "--batch", "1"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split()[:3] == ["t", "pods", "cpu"]
    assert len(lines) >= 2
    assert "\x1b" not in done.stdout


def test_json():
    done = subprocess.run(
        [*TOP, "--seconds", "2", "--batch", "1", "--json"], capture_output=True, text=True, timeout=60
    )
    first = json.loads(done.stdout.splitlines()[0])
    assert 0 <= first["usage"]["cpu"] <= 1
    assert first["n"] == 0


def on_a_terminal(*words: str, environ: dict[str, str], interrupt: bool = False) -> tuple[int, str]:
    """Exit code and all that was written to a terminal of 80 × 24."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    clean = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
    process = subprocess.Popen([*TOP, *words], stdout=theirs, stderr=theirs, env={**clean, "TERM": "xterm", **environ})
    os.close(theirs)
    written = b""
    try:
        while select.select([ours], [], [], 60)[0]:
            try:
                written += os.read(ours, 65536)
            except OSError:
                break  # the other side is closed
            if interrupt and b"first estimate" in written:
                process.send_signal(signal.SIGINT)
                interrupt = False
        return process.wait(timeout=60), written.decode()
    finally:
        process.kill()
        os.close(ours)


def test_a_terminal_is_left_as_it_was():
    code, written = on_a_terminal("--seconds", "2", "--batch", "1", environ={"PYTHONUTF8": "1"})
    assert code == 0
    assert written.index("\x1b[?25l") < written.index("\x1b[H")
    assert written.endswith("\x1b[?25h")
    assert "Pod-Capacity" in written
    assert "not counted" in written  # the command says --runtime none
    assert "\x1b[32m" in written


def test_interrupted_it_shows_the_cursor_again():
    code, written = on_a_terminal(environ={}, interrupt=True)
    assert code == 0
    assert written.endswith("\x1b[?25h")


def test_no_color_and_no_unicode():
    code, written = on_a_terminal("--seconds", "1", environ={"NO_COLOR": "1", "PYTHONIOENCODING": "ascii"})
    assert code == 0
    assert not re.search(r"\x1b\[\d+m", written)
    assert written.isascii()


def test_a_terminal_that_cannot_move_its_cursor_gets_lines():
    code, written = on_a_terminal("--seconds", "1", "--batch", "1", environ={"TERM": "dumb"})
    assert code == 0
    assert "\x1b" not in written
    assert written.splitlines()[0].split()[:3] == ["t", "pods", "cpu"]
