"""The parts of the demo, each by itself."""

from __future__ import annotations

import asyncio
import io
import json
import math
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from carico.cli import main
from carico.embedded.cluster import claim, free_port
from carico.embedded.demo import figures, latency, picture, progress, workload
from carico.embedded.demo.job import VARIANTS, DemoRun, PodTimes, manifest
from carico.embedded.demo.progress import DemoProgress
from carico.types import NodeSize

PNG = b"\x89PNG\r\n"
MACHINE = NodeSize(cores=2, memory_bytes=8 << 30)


def finished(way: Any, spans: Any, *, published: float = 100.0) -> Any:
    """A run whose pods were created at once and ran in these spans of seconds after that."""
    run = DemoRun(way, published)
    for i, (start, end) in enumerate(spans):
        run.pods[f"p{i}"] = PodTimes(published, published + start, published + end)
    run.latencies = [0.002, 0.004, 0.2]
    return run


@pytest.fixture
def runs() -> Any:
    return [
        finished(VARIANTS[0], [(0, 20), (0, 20), (0, 22), (0, 24)]),
        finished(VARIANTS[1], [(0, 6), (0, 6), (6, 12), (6, 24)]),
        finished(VARIANTS[2], [(0, 5), (0, 5), (5, 10), (5, 24)]),
    ]


@pytest.fixture
def server_beside() -> Iterator[Any]:
    port = free_port()
    with subprocess.Popen(workload.program("serve", str(port))) as server:
        yield port
        server.kill()


def test_pi_is_pi() -> None:
    """The last of the first thousand decimal places, as in every table of π."""
    done = subprocess.run(workload.program("pi", "1000"), capture_output=True, text=True, check=True)
    assert done.stdout == "… 66111959092164201989\n"


def test_memory_is_held_and_touched() -> None:
    """The resident size by the kernel."""
    child = subprocess.Popen(workload.program("memory", "64", "0.2"))
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0
    assert usage.ru_maxrss * 1024 >= 64 << 20


def test_the_work_fits_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload, "digits_for", lambda _: 50_000)
    assert len(workload.make_workload("cpu", None, MACHINE, 4e9).pods) == 24
    assert len(workload.make_workload("cpu", 7, MACHINE, 4e9).pods) == 7
    held = int(workload.make_workload("memory", None, MACHINE, 4e9).pods[0][-2])
    assert 20 * held * (1 << 20) <= 2e9, "as many as 100m lets in take half of what is free at most"
    kinds = {
        command[-2 if "memory" in command else -1] for command in workload.make_workload("mixed", 4, MACHINE, 4e9).pods
    }
    assert len(kinds) == 2


def test_a_pod_of_carico_has_no_requests() -> None:
    packed, chosen, ours = (manifest(way, "p", ["x"])["spec"] for way in VARIANTS)
    assert packed["containers"][0]["resources"] == {"requests": {"cpu": "100m"}}
    assert chosen["containers"][0]["resources"] == {"requests": {"cpu": "500m"}}
    assert "resources" not in ours["containers"][0]
    assert ours["schedulerName"] == "carico"
    assert packed["schedulerName"] == chosen["schedulerName"] == "packed"


def test_figures_are_those_of_the_spans(runs: Any) -> None:
    packed, _, ours = (figures.summary(run) for run in runs)
    assert packed.job_completion == 24
    assert packed.pod_completion.mean == pytest.approx(21.5)
    assert packed.at_once == 4
    assert ours.pod_completion.mean == pytest.approx((5 + 5 + 5 + 19) / 4)
    assert ours.turnaround.mean == pytest.approx((5 + 5 + 10 + 24) / 4)
    assert ours.at_once == 2
    found = figures.ratios([figures.summary(run) for run in runs])
    assert found["pct_mean_ratio"] == pytest.approx(21.5 / 8.5, abs=1e-3)
    assert found["jct_ratio"] == 1.0
    assert found["turnaround_ratio_500m"] == pytest.approx(44 / 48, abs=1e-3)


def test_the_table_names_every_figure_and_its_columns_stand_in_line(runs: Any) -> None:
    text = figures.table([figures.summary(run) for run in runs])
    lines = text.splitlines()
    assert len({len(line) for line in lines}) == 1, "the last column stands at the right"
    for word in ("job completion", "pod completion", "pod turnaround", "web answers", "utilisation", "p99", "std"):
        assert word in text
    assert all(way.label in lines[0] for way in VARIANTS)


def test_the_objects_hold_all_of_it(runs: Any) -> None:
    line = json.loads(json.dumps(figures.as_json(figures.summary(runs[0]))))
    assert line["pod_completion"]["p95"] == pytest.approx(23.7)
    assert line["way"] == "100m"
    assert not math.isnan(line["latency"]["p99"])


def test_the_picture_is_one(runs: Any, tmp_path: Path) -> None:
    file = tmp_path / "demo.png"
    picture.draw(runs, [figures.summary(run) for run in runs], file)
    assert file.read_bytes().startswith(PNG)


def test_the_server_beside_answers_and_is_timed(server_beside: Any) -> None:
    async def ask() -> Any:
        answers: list[float] = []
        await latency.until_it_answers(server_beside)
        asking = asyncio.create_task(latency.keep_requesting(server_beside, answers))
        async with asyncio.timeout(30):
            while len(answers) < 3:  # noqa: ASYNC110 - what is waited for is in another process
                await asyncio.sleep(latency.EVERY)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        return answers

    answers = asyncio.run(ask())
    assert all(0.001 <= seconds < latency.PATIENCE for seconds in answers)


def test_a_server_that_is_not_there_is_no_answer() -> None:
    with pytest.raises(OSError):
        asyncio.run(latency.request(free_port()))


def test_only_one_of_two_demos_gets_a_port_without_listener() -> None:
    port = free_port()
    first = claim(port)
    assert first is not None
    with first:
        assert claim(port) is None
    again = claim(port)
    assert again is not None, "its owner has ended"
    again.close()


def test_progress_in_a_pipe_is_whole_lines(runs: Any) -> None:
    async def follow(out: Any) -> None:
        task = asyncio.create_task(DemoProgress(out).follow(runs[0], 4))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    out = io.StringIO()
    asyncio.run(follow(out))
    lines = out.getvalue().splitlines()
    assert "\r" not in out.getvalue()
    assert "\x1b" not in out.getvalue()
    assert lines[-1].startswith("requests 100m")
    assert "4/4 done" in lines[-1]


def test_a_narrow_terminal_gets_lines_that_can_be_redrawn(runs: Any) -> None:
    """A line that is wider than the terminal goes over two, and the next one would be drawn below it."""
    assert len(progress._line(runs[0], 4, 12.0, 40)) < 40
    assert "4/4 done" in progress._line(runs[0], 4, 12.0, 80)


def test_a_check_of_the_picture_leaves_no_file_and_harms_none(tmp_path: Path) -> None:
    picture.check(tmp_path / "new.png")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "old.png").write_bytes(PNG)
    picture.check(tmp_path / "old.png")
    assert (tmp_path / "old.png").read_bytes() == PNG


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--pods", "0"], "--pods 0: at least one pod"),
        (["--png", "/no/such/folder/x.png"], "there is no folder"),
        (["--png", "/"], "cannot be written (Is a directory); choose another"),
        (["--png", "/proc/x.png"], "cannot be written"),
        (["--png", "x" * 300], "cannot be written (File name too long)"),  # stat() fails already
        (["--simulate", "5"], "add --keep"),
    ],
)
def test_bad_flags_are_named_before_anything_starts(flags: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", *flags]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.startswith("carico: ")
    assert len(error.splitlines()) == 1
