"""`carico run` beside GNU parallel: the same words mean the same, and tasks start while inputs still come."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

CARICO = [sys.executable, "-m", "carico.cli", "run"]
PARALLEL = ["parallel", "--will-cite"]


def run(program: list[str], *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PARALLEL")}
    return subprocess.run([*program, *words], input=stdin, capture_output=True, text=True, timeout=120, env=environ)


@contextmanager
def started(*words: str) -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    with subprocess.Popen([*CARICO, *words], stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_task_starts_while_standard_input_is_open() -> None:
    with started("echo", "got {}") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for word in ("a", "b"):
            process.stdin.write(f"{word}\n")
            process.stdin.flush()
            assert process.stdout.readline() == f"got {word}\n"  # and no end of the input so far
        process.stdin.close()
        assert process.wait(timeout=60) == 0


def test_a_task_starts_while_a_named_pipe_is_open(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with started("-a", str(tmp_path / "pipe"), "echo") as process, (tmp_path / "pipe").open("w") as pipe:
        assert process.stdout is not None
        pipe.write("a\nb")
        pipe.flush()
        assert process.stdout.readline() == "a\n"
        pipe.close()
        assert process.stdout.readline() == "b\n"  # the last line may lack its end
        assert process.wait(timeout=60) == 0


def test_ctrl_c_ends_it_though_the_input_stays_open() -> None:
    with started("echo") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("a\n")
        process.stdin.flush()
        assert process.stdout.readline() == "a\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130


def test_a_failure_that_halts_ends_it_though_the_input_stays_open() -> None:
    with started("--halt", "now,fail=1", "false") as process:
        assert process.stdin is not None
        process.stdin.write("a\n")
        process.stdin.flush()
        assert process.wait(timeout=60) == 1


def test_of_an_endless_list_only_a_little_is_read() -> None:
    line = f"yes | {' '.join(CARICO)} --halt soon,fail=5 --json false"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=120)
    assert done.returncode == 5
    assert '"failed": 5' in done.stdout


def test_a_changed_list_is_refused_before_anything_runs_though_it_comes_line_by_line(tmp_path: Path) -> None:
    log, marks = str(tmp_path / "log"), tmp_path / "marks"
    command = f"echo {{}} >> {marks}"
    assert run(CARICO, "--joblog", log, command, ":::", "a", "b", "c").returncode == 0
    marks.unlink()
    with started("--joblog", log, "--resume-failed", command) as process:
        assert process.stdin is not None
        for word in ("a", "b", "changed", "d"):
            process.stdin.write(f"{word}\n")
            process.stdin.flush()
        process.stdin.close()
        assert process.wait(timeout=60) == 255
        assert process.stderr is not None
        assert "resume with the same command and list" in process.stderr.read()
    assert not marks.exists()


def test_an_input_with_a_zero_byte_is_refused() -> None:
    done = run(CARICO, "echo", stdin="a\0b\n")
    assert (done.returncode, done.stdout) == (255, "")
    assert done.stderr.startswith("carico: input 1 holds a zero byte")


@pytest.mark.slow
def test_a_task_that_ignores_its_timeout_is_killed() -> None:
    done = run(CARICO, "--timeout", "500ms", "trap '' TERM; sleep 100; echo {}", ":::", "a")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "carico: task 1: ran longer than --timeout 500ms and was ended\n"


def test_a_task_that_ends_well_when_its_time_is_over_has_failed_all_the_same() -> None:
    done = run(CARICO, "--timeout", "1", "trap 'exit 0' TERM; sleep 100 & wait; echo {}", ":::", "a")
    assert done.returncode == 1


@pytest.mark.parametrize(
    "form", ["{1}", "{2.}", "{-1}", "{%}", "{= $_ =}", "{+/}", "{..}", "{/...}", "{##}", "x{3//}y"]
)
def test_forms_that_only_gnu_parallel_replaces_are_refused(form: str) -> None:
    done = run(CARICO, "echo", form, ":::", "a")
    assert done.returncode == 255
    assert "is a replacement string of GNU parallel only; known here: {} {.} {/} {//} {/.} {#}" in done.stderr


@pytest.mark.parametrize("text", ["${1}", "{a,b}", "{1..3}", "{print $1}", "{x}", "{ }"])
def test_other_braces_are_left_as_they_are(text: str) -> None:
    assert run(CARICO, "echo", text, "{}", ":::", "a").stdout == f"{text} a\n"


@pytest.mark.needs("parallel")
@pytest.mark.parametrize(
    "words",
    [
        ["-k", "-j", "2", "echo", "{} {.} {/} {//} {/.} {#}", ":::", "a/b.c", "d"],
        ["-k", "-j2", "--tag", "printf 'x\\ny'; echo e >&2; true", ":::", "a", "b"],
        ["--timeout", "1", "sleep 50; true", ":::", "a"],
        ["--halt", "soon,fail=1", "-j1", "echo {}; exit 1", ":::", "a"],
        ["--jobs", "1", "echo $PARALLEL_SEQ; true", ":::", "a", "b"],
        ["-a", "/no/such/file", "echo"],
    ],
)
def test_what_gnu_parallel_does(words: list[str]) -> None:
    ours, theirs = run(CARICO, *words), run(PARALLEL, *words)
    assert (ours.returncode, ours.stdout) == (theirs.returncode, theirs.stdout)


@pytest.mark.needs("parallel")
def test_an_error_of_its_own_is_255_as_gnu_parallels() -> None:
    words = ("--no-such-option", "echo", ":::", "a")
    assert run(CARICO, *words).returncode == run(PARALLEL, *words).returncode == 255


@pytest.mark.needs("parallel")
@pytest.mark.parametrize("tries", ["0", "1", "2", "4"])
def test_tries_are_counted_as_gnu_parallel_counts_them(tries: str, tmp_path: Path) -> None:
    """The task would succeed at its fourth try."""
    results = []
    for program in (CARICO, PARALLEL):
        count = tmp_path / program[0].replace("/", "-")
        script = f"echo {{}} >> {count}; [ $(wc -l < {count}) -ge 4 ]"
        done = run(program, "--retries", tries, script, ":::", "a")
        results.append((done.returncode, count.read_text()))
    assert results[0] == results[1]


@pytest.mark.needs("parallel")
def test_the_job_log_of_a_task_that_took_too_long_is_gnu_parallels(tmp_path: Path) -> None:
    rows = []
    for program in (CARICO, PARALLEL):
        log = tmp_path / program[0].replace("/", "-")
        run(program, "--timeout", "1", "--joblog", str(log), "sleep 50; true", ":::", "a")
        rows.append([cell for i, cell in enumerate(log.read_text().splitlines()[1].split("\t")) if i not in (2, 3)])
    assert rows[0] == rows[1]
    of_parallel = str(tmp_path / PARALLEL[0])
    assert run(CARICO, "--joblog", of_parallel, "--resume", "sleep 50; true", ":::", "a").returncode == 0
