"""`carico run` as people use it: a real process over real commands."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

CARICO = [sys.executable, "-m", "carico.cli", "run"]
GROUPS = Path("/sys/fs/cgroup/memory")


def run(*words: str, stdin: str = "", **others: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*CARICO, *words], input=stdin, capture_output=True, text=True, timeout=120, **others)


def summary(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


@pytest.mark.parametrize(
    ("words", "stdin", "out"),
    [
        (["echo", "{}", ":::", "a", "b c"], "", "a\nb c\n"),
        (["--", "echo", "[{}]"], "x\ny z\n", "[x]\n[y z]\n"),
        (["echo", "{#} {} {.} {/} {//} {/.}", ":::", "a/b.txt"], "", "1 a/b.txt a/b b.txt a b\n"),
        (["echo"], "appended\n", "appended\n"),
        (["echo {} | tr a-z A-Z", ":::", 'it\'s $HOME `x` "q"'], "", 'IT\'S $HOME `X` "Q"\n'),
        (["-0", "printf", "%s|"], "two\nlines\0one\0", "two\nlines|one|"),
        (["echo"], "", ""),
    ],
)
def test_inputs_and_replacement_strings(words: list[str], stdin: str, out: str) -> None:
    done = run("-k", *words, stdin=stdin)
    assert (done.stdout, done.stderr, done.returncode) == (out, "", 0)


def test_inputs_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "list").write_text("a\nb\n")
    assert run("-k", "-a", str(tmp_path / "list"), "echo").stdout == "a\nb\n"


def test_outputs_are_not_mixed() -> None:
    script = "for i in 1 2 3 4; do echo {}; echo e{} >&2; sleep 0.05; done"
    done = run("--min", "4", script, ":::", *"abcdef")
    for text, prefix in ((done.stdout, ""), (done.stderr, "e")):
        lines = text.split()
        groups = [set(lines[i : i + 4]) for i in range(0, len(lines), 4)]
        assert sorted(groups, key=str) == sorted([{prefix + letter} for letter in "abcdef"], key=str)


def test_outputs_keep_the_order_of_the_inputs() -> None:
    done = run("--min", "4", "-k", "sleep 0.{}; echo {}", ":::", "5", "1", "3", "0")
    assert done.stdout.split() == ["5", "1", "3", "0"]


def test_the_exit_code_counts_what_failed() -> None:
    done = run("--json", "exit {}", ":::", "0", "1", "2", "0", "300")
    assert done.returncode == 3
    assert (summary(done)["succeeded"], summary(done)["failed"]) == (2, 3)


@pytest.mark.slow
def test_more_than_a_hundred_failures_are_101() -> None:
    assert run("--min", "8", "false", ":::", *map(str, range(103))).returncode == 101


def test_a_command_that_is_not_there_fails_with_a_word() -> None:
    done = run("no-such-program", "{}", ":::", "a")
    assert done.returncode == 1
    assert done.stderr == "carico: task 1: no-such-program: No such file or directory\n"


def test_results_are_kept(tmp_path: Path) -> None:
    run("--results", str(tmp_path / "r"), "echo {}; echo wrong >&2", ":::", "a", "b")
    assert (tmp_path / "r/2/stdout").read_text() == "b\n"
    assert (tmp_path / "r/2/stderr").read_text() == "wrong\n"
    assert (tmp_path / "r/1/command").read_text() == "echo a; echo wrong >&2\n"


def test_the_job_log_and_resume(tmp_path: Path) -> None:
    log, marks = str(tmp_path / "log"), tmp_path / "marks"
    command = f"echo {{}} >> {marks}; [ {{}} != bad ]"
    assert run("--joblog", log, command, ":::", "a", "bad").returncode == 1
    rows = [line.split("\t") for line in Path(log).read_text().splitlines()]
    assert rows[0] == ["Seq", "Host", "Starttime", "JobRuntime", "Send", "Receive", "Exitval", "Signal", "Command"]
    assert {(row[0], row[6], row[7]) for row in rows[1:]} == {("1", "0", "0"), ("2", "1", "0")}
    marks.unlink()
    assert run("--joblog", log, "--resume", command, ":::", "a", "bad", "new").returncode == 0
    assert marks.read_text().split() == ["new"]
    assert run("--joblog", log, "--resume-failed", command, ":::", "a", "bad", "new").returncode == 1
    assert marks.read_text().split() == ["new", "bad"]
    changed = run("--joblog", log, "--resume", command, ":::", "b", "bad")
    assert changed.returncode == 255
    assert "resume with the same command and list" in changed.stderr


def test_a_job_log_whose_writer_was_killed_can_be_resumed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    run("--joblog", str(log), "true", ":::", "a", "b")
    log.write_text(log.read_text()[:-5])  # the last line was being written
    assert summary(run("--json", "--joblog", str(log), "--resume", "true", ":::", "a", "b"))["skipped"] == 1
    assert summary(run("--json", "--joblog", str(log), "--resume", "true", ":::", "a", "b"))["skipped"] == 2


def test_retries(tmp_path: Path) -> None:
    count = tmp_path / "count"
    script = f"echo {{}} >> {count}; [ $(wc -l < {count}) -ge 3 ]"
    assert run("--retries", "3", script, ":::", "a").returncode == 0
    count.unlink()
    assert run("--retries", "2", script, ":::", "a").returncode == 1
    assert count.read_text() == "a\na\n"
    count.unlink()
    assert run("--retries", "0", script, ":::", "a").returncode == 0  # without a limit


@pytest.mark.parametrize(("when", "survives"), [("now,fail=1", False), ("soon,fail=1", True)])
def test_halt(tmp_path: Path, when: str, survives: bool) -> None:
    began, slow = tmp_path / "began", 1 if survives else 100  # s; who is to be killed must not end before by itself
    script = f"if [ {{}} = slow ]; then touch {began}; sleep {slow} && touch {tmp_path}/done; fi; "
    script += f"if [ {{}} = bad ]; then until [ -e {began} ]; do sleep 0.05; done; exit 1; fi"
    done = run("--min", "2", "--max", "2", "--halt", when, "--json", script, ":::", "slow", "bad", *["late"] * 50)
    assert done.returncode >= 1
    assert summary(done)["succeeded"] < 50
    assert (tmp_path / "done").exists() is survives


def test_bounds(tmp_path: Path) -> None:
    done = run("--json", "--max", "2", "sleep", "0.2", ":::", *["0"] * 8)
    assert summary(done)["most_at_once"] <= 2
    wait = f"touch {tmp_path}/{{}}; until [ $(ls {tmp_path} | wc -l) = 6 ]; do sleep 0.05; done"  # for each other
    done = run("--json", "--min", "6", "--max", "6", wait, ":::", *"123456")
    assert summary(done)["most_at_once"] == 6


def test_dry_run_runs_nothing(tmp_path: Path) -> None:
    done = run("--dry-run", "touch", f"{tmp_path}/{{}}", ":::", "a b")
    assert done.stdout == f"touch '{tmp_path}/a b'\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "no command"),
        (["--halt", "later", "true", ":::", "a"], "'later' is not one of never, now,fail=N and soon,fail=N"),
        (["--max", "1", "--min", "2", "true", ":::", "a"], "--max 1 is less than --min 2"),
        (["--resume", "true", ":::", "a"], "--resume needs the log"),
        (["-a", "/no/such", "true"], "/no/such: cannot be read"),
        (["true", ":::", "a", ":::", "b"], "':::' stands there twice"),
        (["--results", "/proc/x", "true", ":::", "a"], "name a folder that can be made"),
        (["--bogus", "true", ":::", "a"], "there is no option --bogus; see `carico run --help`"),
        (["--timeout", "soon", "true", ":::", "a"], "--timeout: 'soon' is not a duration"),
        (["--jobs", "many", "true", ":::", "a"], "-j/--jobs/--max: 'many' is not a whole number"),
        (["true", "::::", "list"], "'::::' is GNU parallel's, and not known here; write -a FILE"),
        (["true", "{1}", ":::", "a"], "{1} is a replacement string of GNU parallel only"),
    ],
)
def test_mistakes_are_reported_in_one_line_and_end_with_255(words: list[str], says: str) -> None:
    done = run(*words)
    assert done.returncode == 255
    assert len(done.stderr.splitlines()) == 1
    assert says in done.stderr


class Busy:
    """A run of tasks with hidden descendants, all of which have a token among their arguments."""

    def __init__(self, *flags: str, script: str = "") -> None:
        self.token = f"{secrets.randbelow(10**12):012}"
        script = (script or "setsid sleep 7{token} & sleep 8{token}").format(token=self.token)
        command = [*CARICO, "--min", "3", *flags, script + " # {}", ":::", *map(str, range(20))]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.until(lambda: len(self.sleepers()) >= 3)

    def sleepers(self) -> list[int]:
        processes = psutil.process_iter(["name", "cmdline", "status"])
        alive = [p for p in processes if p.info["status"] != psutil.STATUS_ZOMBIE]
        return [p.pid for p in alive if p.info["name"] == "sleep" and self.token in "".join(p.info["cmdline"] or [])]

    def has_pending(self, number: signal.Signals) -> bool:
        """Whether a signal that was sent to it is pending."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        pending = [int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd:", "ShdPnd:"))]
        return any(mask >> (number - 1) & 1 for mask in pending)

    def until(self, holds: Callable[[], bool], seconds: float = 30.0) -> None:
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, self.sleepers()
            time.sleep(0.02)

    def end(self) -> tuple[int, str]:
        _, err = self.process.communicate(timeout=30)
        return self.process.returncode, err


def test_ctrl_c_leaves_nothing() -> None:
    busy = Busy()
    os.kill(busy.process.pid, signal.SIGINT)
    code, said = busy.end()
    assert code == 130
    assert said.endswith("tasks were not run, none is left running\n")
    assert not busy.sleepers()


def test_the_second_ctrl_c_does_not_wait() -> None:
    busy = Busy(script="trap '' TERM INT; while true; do sleep 0.3{token}; done")
    os.kill(busy.process.pid, signal.SIGINT)
    time.sleep(0.3)
    assert busy.process.poll() is None
    busy.until(lambda: not busy.has_pending(signal.SIGINT))  # two of them before it looks are one
    began = time.monotonic()
    os.kill(busy.process.pid, signal.SIGINT)
    assert busy.end()[0] == 130
    assert time.monotonic() - began < 9  # the first one would have waited for ten seconds
    assert not busy.sleepers()


@pytest.mark.parametrize("delay", [0.0, 0.05, 0.2])
def test_kill_9_leaves_nothing(delay: float) -> None:
    busy = Busy()
    time.sleep(delay)
    busy.process.kill()
    busy.process.communicate()
    busy.until(lambda: not busy.sleepers())


def test_tasks_of_a_killed_job_supervisor_run_again(tmp_path: Path) -> None:
    marks, go = tmp_path / "marks", tmp_path / "go"  # no task ends before the job supervisor was killed
    script = f"echo {{}} >> {marks}; until [ -e {go} ]; do sleep 0.05; done"
    words = [*CARICO, "--json", "--min", "2", script, ":::", *map(str, range(6))]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not marks.exists() or not marks.read_text():
        time.sleep(0.02)
    supervisors = [c for c in psutil.Process(process.pid).children() if "carico.embedded.supervisor" in c.cmdline()]
    supervisors[0].kill()
    go.touch()
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert json.loads(out.splitlines()[-1])["succeeded"] == 6


def test_a_closed_pipe_ends_it() -> None:
    token = f"{secrets.randbelow(10**12):012}"
    line = f"{' '.join(CARICO)} --min 2 'echo {{}}; sleep 0.1{token}' ::: $(seq 500) | head -1"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip().isdigit(), done  # of whichever task ended first


@pytest.mark.slow
@pytest.mark.needs("root", "cgroup-v1")
def test_a_memory_hungry_mix_finishes_in_a_small_group() -> None:
    """Eight tasks of 200 MB each, at least four wanted at once, where two fit."""
    group = GROUPS / f"carico-test-{os.getpid()}"
    group.mkdir()
    (group / "memory.limit_in_bytes").write_text(str(500 << 20))
    grow = (
        "import time\nheld = []\nfor _ in range(10):\n  held.append(bytearray(b'x') * (20 << 20))\n  time.sleep(0.05)"
    )
    try:
        inside = ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh"]
        command = [*inside, *CARICO, "--json", "--min", "4", sys.executable, "-S", "-c", grow, "{}", ":::", *"12345678"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert (done.returncode, summary(done)["succeeded"]) == (0, 8), done.stderr
    finally:
        for _ in range(100):
            try:
                group.rmdir()
                break
            except OSError:
                time.sleep(0.05)
