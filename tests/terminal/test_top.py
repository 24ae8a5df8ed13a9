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
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from fcntl import ioctl
from pathlib import Path

import pytest

from carico.commands.top import TopChoice, chosen
from carico.terminal.processes import ListedPod, ListedProcess, Processes, ProcessListing
from carico.terminal.screen import ScreenView, frame, paint
from carico.testing import make_estimate
from carico.types import NodeSize

ESTIMATE = make_estimate(
    at=1.0,
    usage=(0.5, 0.1),
    signal_k=1.5,
    baseline_ratio=(0.05, 0.08),
    cost_ratio=(0.15, 0.01),
    baseline_scalar=6.0,
    cost_scalar=0.15,
    pods=3,
    pod_capacity=3.27,
)
VIEW = ScreenView(
    dimensions=("cpu", "memory"),
    size=NodeSize(cores=2, memory_bytes=8 * 2**30),
    own_limits=False,
    usage=(0.5, 0.1),
    raw={"util": 0.95, "psi": 0.05, "mem": 0.1},
    estimate=ESTIMATE,
    history=[ESTIMATE, replace(ESTIMATE, pod_capacity=6.54, usage=(0.25, 0.1))],
    pods_from="containerd",
    why_no_pods="",
    notice="",
    left=12.0,
)
TOP = [sys.executable, "-m", "carico.cli", "top", "--runtime", "none"]


def text(view: ScreenView, width: int = 90, height: int = 40, colours: bool = False) -> list[str]:
    return [paint(line, colours) for line in frame(view, width, height)]


def test_the_picture() -> None:
    assert text(VIEW) == [
        "carico top   this machine: 2 cores, 8.0 GiB                    12 s left  q: quit  ?: help",
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
        "",
    ]


PROCESSES = (
    ListedProcess(7, "somebody-else", 1.5, 2.5 * 2**30, "stress --cpu 2"),
    ListedProcess(812, "root", 0.0, 5e6, "sleep 1"),
)
PODS = (ListedPod("web-1", 3, 0.4, 3e8), ListedPod("web-2", 1, 0.2, 1e8))


def test_the_list_of_processes_or_pods() -> None:
    processes = replace(VIEW, listing=ProcessListing(PROCESSES, total=64))
    assert text(processes, width=120)[-3:] == [
        "     CPU      MEMORY        PID  USER        COMMAND   (64 processes by cpu)",
        "    150%     2.5 GiB          7  somebody-e  stress --cpu 2",
        "      0%       5 MiB        812  root        sleep 1",
    ]
    pods = replace(VIEW, listing=ProcessListing(PROCESSES, PODS, 64), by_memory=True, offset=1)
    assert text(pods, width=120)[-2:] == [
        "     CPU      MEMORY  PROCESSES  POD   (2 pods by memory, from 2)",
        "     20%      95 MiB          1  web-2",
    ]
    assert text(replace(pods, pods_first=False, offset=0), width=120)[-2].endswith("stress --cpu 2")


def test_keys_choose_what_is_shown() -> None:
    listing = ProcessListing(PROCESSES, total=2)
    choice = TopChoice()
    for key, offset in (("down", 1), ("end", 1), ("up", 0), ("up", 0)):
        choice = chosen(choice, key, listing)
        assert choice == replace(TopChoice(), offset=offset)
    assert chosen(choice, "m", listing).by_memory
    assert not chosen(choice, "tab", listing).pods_first
    assert chosen(choice, "?", listing).help
    assert chosen(choice, "x", listing) == choice
    assert chosen(TopChoice(), "down", ProcessListing()) == TopChoice()


def test_the_help_shows_every_key() -> None:
    lines = text(replace(VIEW, help=True, listing=ProcessListing(PROCESSES, total=2)), width=120)
    assert any(line.startswith("q, Ctrl-C") for line in lines)
    assert not any("stress" in line for line in lines)


def test_processes_of_this_machine() -> None:
    """A process that sleeps is there, with its owner, its memory and its command."""
    with subprocess.Popen(["sleep", "987"]) as sleeper:
        try:
            listing = Processes().look(by_memory=False, pods=())
        finally:
            sleeper.kill()
    rows = {row.pid: row for row in listing.processes}
    assert listing.total >= 2
    assert rows[os.getpid()].memory > 2**20
    if sleeper.pid in rows:  # only those that use most are shown
        assert rows[sleeper.pid].command == "sleep 987"


def test_a_process_of_a_pod_is_found_by_its_home_folder(tmp_path: Path) -> None:
    """As on the node of the embedded cluster."""
    environ = {**os.environ, "HOME": str(tmp_path / "uid-1"), "HOSTNAME": "web\x1b[2J"}
    looker = Processes()
    with subprocess.Popen(["sleep", "987"], env=environ) as sleeper:
        try:
            until(lambda: Path(f"/proc/{sleeper.pid}/comm").read_text() == "sleep\n")
            before = looker.look(by_memory=False, pods=()).pods  # of other clusters on this machine
            after = looker.look(by_memory=False, pods={"uid-1"}).pods
        finally:
            sleeper.kill()
    assert "web?[2J" not in {pod.name for pod in before}
    assert [pod.processes for pod in after if pod.name == "web?[2J"] == [1]


def test_without_psutil_the_list_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psutil", None)
    listing = Processes().look(by_memory=False, pods=())
    assert listing.problem == "the list of processes needs psutil: pip install 'carico[demo]'"
    assert text(replace(VIEW, listing=listing), width=120)[-1] == listing.problem


@pytest.mark.parametrize("width", [1, 10, 40, 79, 200])
@pytest.mark.parametrize("height", [0, 1, 5, 60])
def test_no_line_is_wider_or_lower_than_the_terminal(width: int, height: int) -> None:
    lines = text(replace(VIEW, notice="x" * 300, listing=ProcessListing(PROCESSES, PODS, 64)), width, height)
    assert len(lines) <= height
    assert all(len(line) <= width for line in lines)


def test_before_the_first_estimate_and_without_a_runtime() -> None:
    assert any("first estimate" in line for line in text(replace(VIEW, estimate=None, history=[])))
    alone = replace(ESTIMATE, pods=0)
    lines = text(replace(VIEW, estimate=alone, history=[alone], pods_from="", why_no_pods="no socket", notice="slow"))
    assert any(line.endswith("not counted   (no socket)") for line in lines)
    assert any("assumed" in line for line in lines)
    assert lines[-1] == "slow"


def test_colours_do_not_change_the_text() -> None:
    painted = text(VIEW, colours=True)
    assert [re.sub(r"\x1b\[\d+m", "", line).rstrip() for line in painted] == text(VIEW)


def test_in_a_pipe_it_is_lines() -> None:
    done = subprocess.run([*TOP, "--seconds", "2", "--batch", "1"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split()[:3] == ["t", "pods", "cpu"]
    assert len(lines) >= 2
    assert "\x1b" not in done.stdout


def test_json() -> None:
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


def test_a_terminal_is_left_as_it_was() -> None:
    code, written = on_a_terminal("--seconds", "2", "--batch", "1", environ={"PYTHONUTF8": "1"})
    assert code == 0
    assert written.index("\x1b[?1049h\x1b[?25l") < written.index("\x1b[H")
    assert written.endswith("\x1b[?25h\x1b[?1049l")
    assert "Pod-Capacity" in written
    assert "not counted" in written  # the command says --runtime none
    assert "\x1b[32m" in written


def test_interrupted_it_shows_the_cursor_again() -> None:
    code, written = on_a_terminal(environ={}, interrupt=True)
    assert code == 0
    assert written.endswith("\x1b[?25h\x1b[?1049l")


def test_no_color_and_no_unicode() -> None:
    code, written = on_a_terminal("--seconds", "1", environ={"NO_COLOR": "1", "PYTHONIOENCODING": "ascii"})
    assert code == 0
    assert not re.search(r"\x1b\[\d+m", written)
    assert written.isascii()


def test_a_terminal_that_cannot_move_its_cursor_gets_lines() -> None:
    code, written = on_a_terminal("--seconds", "1", "--batch", "1", environ={"TERM": "dumb"})
    assert code == 0
    assert "\x1b" not in written
    assert written.splitlines()[0].split()[:3] == ["t", "pods", "cpu"]


def until(holds: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


class Screen:
    """A shell in tmux: what a person would see and type."""

    def __init__(self, folder: Path) -> None:
        self._tmux = ["tmux", "-f", "/dev/null", "-S", str(folder / "tmux")]
        environ = {**os.environ, "TERM": "screen", "PYTHONUTF8": "1"}
        (folder / "rc").write_text("PS1='prompt> '\n")
        shell = f"bash --noprofile --rcfile {folder}/rc"
        subprocess.run([*self._tmux, "new-session", "-d", "-x110", "-y30", shell], env=environ, check=True)
        self.wait_for("prompt>")

    def text(self) -> str:
        done = subprocess.run([*self._tmux, "capture-pane", "-p"], capture_output=True, text=True, check=True)
        return done.stdout

    def wait_for(self, *wanted: str, without: str = "\0") -> None:
        deadline = time.monotonic() + 60
        while not (all(one in (shown := self.text()) for one in wanted) and without not in shown):
            assert time.monotonic() < deadline, shown
            time.sleep(0.05)

    def type(self, *keys: str) -> None:
        subprocess.run([*self._tmux, "send-keys", *keys], check=True)

    def end(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], check=True)


@pytest.fixture
def screen(tmp_path: Path) -> Iterator[Screen]:
    made = Screen(tmp_path)
    try:
        yield made
    finally:
        made.end()


@contextmanager
def shown_on(screen: Screen) -> Iterator[None]:
    """`carico top` in the shell; afterwards the shell is as it was before, what it had shown included."""
    screen.type("echo before", "Enter")
    screen.wait_for("before\nprompt>")
    screen.type(" ".join(TOP), "Enter")
    screen.wait_for("Pod-Capacity", "COMMAND", "q: quit  ?: help", without="prompt>")
    yield
    screen.wait_for("before\nprompt>", without="Pod-Capacity")
    screen.type("stty -a | tr ' ' '\\n' | grep -x -e echo -e icanon | sort | paste -s -d+", "Enter")
    screen.wait_for("echo+icanon\n")


@pytest.mark.needs("tmux")
def test_q_ends_it_and_the_terminal_is_as_before(screen: Screen) -> None:
    with shown_on(screen):
        screen.type("q")


@pytest.mark.needs("tmux")
def test_ctrl_c_ends_it_too(screen: Screen) -> None:
    with shown_on(screen):
        screen.type("C-c")


@pytest.mark.needs("tmux")
def test_keys_on_a_real_terminal(screen: Screen) -> None:
    screen.type("for i in $(seq 20); do sleep 1000 & done; clear", "Enter")  # a list that can be scrolled
    screen.wait_for("prompt>", without="sleep")
    with shown_on(screen):
        screen.type("Up", "Left", "F5", "M-x", "Escape", "Down", "NPage", "x")
        screen.wait_for("from 12)")  # down by one and by a page
        assert "^[" not in screen.text()
        screen.type("?")
        screen.wait_for("show or hide this help", without="COMMAND")
        screen.type("?", "m")
        screen.wait_for("by memory)", "COMMAND")
        screen.type("q")


@pytest.mark.needs("tmux")
def test_ctrl_z_gives_the_shell_its_terminal_back(screen: Screen) -> None:
    with shown_on(screen):
        screen.type("C-z")
        screen.wait_for("Stopped", "prompt>", without="Pod-Capacity")
        screen.type("fg", "Enter")
        screen.wait_for("Pod-Capacity", without="Stopped")
        screen.type("q")
