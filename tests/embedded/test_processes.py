"""Processes under a guard: what they are given, how their end is reported, and that nothing outlives a kill -9."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil
import pytest

from carico.embedded.supervisor import guard as processes
from carico.embedded.supervisor.guard import Guard, LaunchCommand, ProcessEnded, end_abandoned
from carico.errors import StartFailed
from harness.embedded.strays import AS_USER, bearers_of, existing, new_token, supervisor_groups

ENVIRONMENT = {"PATH": os.environ["PATH"]}
GREEDY = "x = bytearray(300 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1"


def read(path: str) -> str:
    return Path(path).read_text()


def with_guard(scenario: Callable[[Guard], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with asyncio.timeout(60):
            async with Guard() as guard:
                await scenario(guard)

    asyncio.run(whole())


def shell(script: str, **others: object) -> LaunchCommand:
    return LaunchCommand(["sh", "-c", script], ENVIRONMENT, **others)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("script", "code", "number", "shown"),
    [("exit 0", 0, 0, 0), ("exit 3", 3, 0, 3), ("kill -TERM $$", 0, 15, 143), ("kill -KILL $$", 0, 9, 137)],
)
def test_the_end_of_a_process(script: str, code: int, number: int, shown: int) -> None:
    async def scenario(guard: Guard) -> None:
        ended = await (await guard.start(shell(script))).wait()
        assert (ended.code, ended.signal, ended.exit_code) == (code, number, shown)

    with_guard(scenario)


def test_what_a_process_is_given(tmp_path: Path) -> None:
    async def scenario(guard: Guard) -> None:
        (tmp_path / "in").write_text("from a file\n")
        out, err = str(tmp_path / "out"), str(tmp_path / "err")
        command = shell(
            'cat; echo "$GREETING"; pwd; echo wrong >&2',
            folder=str(tmp_path),
            stdin=str(tmp_path / "in"),
            stdout=out,
            stderr=err,
        )
        process = await guard.start(command._replace(environment=ENVIRONMENT | {"GREETING": "hello"}))
        await process.wait()
        assert read(out) == f"from a file\nhello\n{tmp_path}\n"
        assert read(err) == "wrong\n"

    with_guard(scenario)


def test_output_and_errors_in_one_file_keep_their_order(tmp_path: Path) -> None:
    async def scenario(guard: Guard) -> None:
        log = str(tmp_path / "log")
        process = await guard.start(shell("echo 1; echo 2 >&2; echo 3", stdout=log, stderr=log))
        await process.wait()
        assert read(log) == "1\n2\n3\n"

    with_guard(scenario)


def test_a_pipe_that_breaks_kills_as_in_a_shell() -> None:
    async def scenario(guard: Guard) -> None:
        process = await guard.start(LaunchCommand(["bash", "-c", "yes | head -1; exit ${PIPESTATUS[0]}"], ENVIRONMENT))
        assert (await process.wait()).code == 128 + signal.SIGPIPE

    with_guard(scenario)


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (LaunchCommand(["no-such-program"], ENVIRONMENT), "no-such-program: No such file or directory"),
        (LaunchCommand(["/etc/passwd"], ENVIRONMENT), "/etc/passwd: Permission denied"),
        (LaunchCommand(["true"], ENVIRONMENT, folder="/no/such"), "/no/such: No such file or directory"),
    ],
)
def test_what_cannot_be_started_says_why(command: LaunchCommand, why: str) -> None:
    async def scenario(guard: Guard) -> None:
        with pytest.raises(StartFailed, match=why):
            await guard.start(command)
        assert (await (await guard.start(shell("exit 4"))).wait()).code == 4

    with_guard(scenario)


def test_cost_is_measured() -> None:
    async def scenario(guard: Guard) -> None:
        work = "import time\nx = bytearray(64 << 20)\nwhile time.process_time() < 0.3: pass"
        ended = await (await guard.start(LaunchCommand([sys.executable, "-S", "-c", work], ENVIRONMENT))).wait()
        assert 0.3 <= ended.cpu < 1.0
        assert 64 << 20 <= ended.peak < 200 << 20

    with_guard(scenario)


@pytest.mark.needs("root", "cgroup-v1")
def test_a_kill_by_the_memory_limit_is_distinguished() -> None:
    async def scenario(guard: Guard) -> None:
        greedy = LaunchCommand([sys.executable, "-S", "-c", GREEDY], ENVIRONMENT, memory=50 << 20)
        process = await guard.start(greedy)
        ended = await process.wait()
        assert (ended.exit_code, ended.oom, process.notes) == (137, True, [])
        by_hand = await guard.start(shell("kill -9 $$", memory=50 << 20))
        assert not (await by_hand.wait()).oom

    with_guard(scenario)


@pytest.mark.needs("root", "cgroup-v1")
def test_a_cpu_limit_holds() -> None:
    async def scenario(guard: Guard) -> None:
        work = "import time\nend = time.monotonic() + 2\nwhile time.monotonic() < end: pass"
        ended = await (
            await guard.start(LaunchCommand([sys.executable, "-S", "-c", work], ENVIRONMENT, cpu=0.25))
        ).wait()
        assert ended.cpu <= 0.25 * 2 + 0.2  # a quota's period at both ends

    with_guard(scenario)


@pytest.mark.needs("root")
def test_an_ordinary_user_gets_a_limit_too_and_a_note_how() -> None:
    script = f"""
import asyncio, os, sys
from carico.embedded.supervisor.guard import LaunchCommand, Guard
async def main():
    async with Guard() as guard:
        command = LaunchCommand([sys.executable, "-S", "-c", {GREEDY!r}], dict(os.environ), memory=50 << 20)
        process = await guard.start(command)
        print((await process.wait()).exit_code, process.notes)
asyncio.run(main())
"""
    done = subprocess.run([*AS_USER, sys.executable, "-c", script], capture_output=True, text=True, cwd="/")
    assert done.stdout.startswith("1 ["), done
    assert "no control group" in done.stdout
    assert "limit is enforced on the address space" in done.stdout


def test_a_job_ends_with_what_it_left_in_its_session() -> None:
    token = new_token()

    async def scenario(guard: Guard) -> None:
        await (await guard.start(shell(f"sleep 7{token} & (sleep 8{token} &) ; sleep 0.2"))).wait()
        assert not bearers_of(token)

    with_guard(scenario)


@pytest.mark.needs("cgroups")
def test_a_job_in_a_control_group_ends_with_all_that_it_left_behind() -> None:
    token = new_token()

    async def scenario(guard: Guard) -> None:
        script = f"setsid sleep 7{token} & (setsid sleep 8{token} &) ; sleep 0.2"
        await (await guard.start(shell(script))).wait()
        assert not bearers_of(token)

    with_guard(scenario)


def test_stop_sends_sigterm_first_and_kills_then(tmp_path: Path) -> None:
    async def scenario(guard: Guard) -> None:
        said = [tmp_path / name for name in ("polite", "deaf")]
        traps = [f"trap '{trap}' TERM; echo set; while true; do sleep 0.05; done" for trap in ("exit 7", "")]
        polite, deaf = [await guard.start(shell(trap, stdout=str(out))) for trap, out in zip(traps, said, strict=True)]
        while not all(out.read_text() for out in said):  # noqa: ASYNC110 - the traps are set in other processes
            await asyncio.sleep(0.02)
        assert (await polite.stop(10)).code == 7
        assert (await deaf.stop(0.2)).signal == signal.SIGKILL

    with_guard(scenario)


def test_leaving_the_guard_ends_everything() -> None:
    token = new_token()
    ends: list[ProcessEnded] = []

    async def whole() -> None:
        async with Guard() as guard:
            job = await guard.start(shell(f"setsid sleep 7{token} & sleep 8{token}"))
        ends.append(await job.wait())
        with pytest.raises(StartFailed, match="left"):
            await guard.start(shell("true"))

    asyncio.run(whole())
    assert ends[0].signal == signal.SIGKILL
    assert not bearers_of(token)


@pytest.mark.needs("cgroups")
def test_a_killed_job_supervisor_takes_its_jobs_along_and_is_replaced() -> None:
    token = new_token()

    async def scenario(guard: Guard) -> None:
        job = await guard.start(shell(f"(env -i setsid sleep 7{token} &) ; setsid sleep 8{token} & sleep 9{token}"))
        before = guard.supervisor_pid
        os.kill(before, signal.SIGKILL)
        ended = await job.wait()
        assert (ended.exit_code, ended.lost) == (137, True)
        assert not bearers_of(token)
        assert (await (await guard.start(shell("exit 5"))).wait()).code == 5
        assert guard.supervisor_pid != before

    with_guard(scenario)


@pytest.mark.needs("cgroups")
def test_a_job_supervisor_that_does_not_end_is_killed_and_nothing_is_left(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As on a machine that is so busy that it gets no turn in time."""
    monkeypatch.setattr(processes, "CLOSE_PATIENCE", 0.1)
    token = new_token()

    async def scenario(guard: Guard) -> None:
        await guard.start(shell(f"(env -i setsid sleep 7{token} &) ; setsid sleep 8{token} & sleep 9{token}"))
        os.kill(guard.supervisor_pid, signal.SIGSTOP)

    with_guard(scenario)
    assert not bearers_of(token)
    assert "the job supervisor did not end within 0.1 s and is killed" in caplog.text


@pytest.mark.needs("cgroups")
def test_no_control_group_is_left() -> None:
    names: set[str] = set()

    async def scenario(guard: Guard) -> None:
        job = await guard.start(shell("sleep 100", group=True))
        names.update(supervisor_groups(job.pid))
        assert existing(names)

    with_guard(scenario)
    assert not existing(names)


@pytest.mark.needs("cgroups")
def test_groups_of_a_killed_supervisor_are_removed_by_the_next_start() -> None:
    names: set[str] = set()

    async def scenario(guard: Guard) -> None:
        job = await guard.start(shell("sleep 100", group=True))
        names.update(supervisor_groups(job.pid))
        os.kill(guard.supervisor_pid, signal.SIGKILL)
        await job.wait()

    with_guard(scenario)
    assert not existing(names)


def test_jobs_of_a_living_supervisor_are_not_taken_for_abandoned() -> None:
    async def scenario(guard: Guard) -> None:
        job = await guard.start(shell("sleep 100", group=True))
        end_abandoned()
        assert psutil.pid_exists(job.pid)
        assert job.ended is None

    with_guard(scenario)


@pytest.mark.needs("root", "cgroup-v1")
def test_groups_of_other_programs_are_not_taken_for_a_supervisors() -> None:
    """The real node of the tests has a group of its own beside ours, and so may any program."""
    group = Path("/sys/fs/cgroup/pids") / f"carico-{os.getpid()}"
    group.mkdir()
    with subprocess.Popen(["sleep", "100"]) as other:
        try:
            (group / "cgroup.procs").write_text(str(other.pid))
            end_abandoned()
            assert other.poll() is None
            assert group.is_dir()
        finally:
            other.kill()
            other.wait()
            group.rmdir()
