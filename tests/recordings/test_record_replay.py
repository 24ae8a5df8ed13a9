"""The commands `carico record` and `carico replay`, as a person runs them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from carico.errors import UsageError
from carico.recording.format import CHUNK_ROWS, load

CARICO = [sys.executable, "-m", "carico.cli", "--log-level", "error"]


def carico(*words: object, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*CARICO, *map(str, words)], capture_output=True, text=True, timeout=120, **options)


def machine_with_pods(path: Path, cost: float = 0.08, seconds: int = 240) -> Path:
    """A node without noise: usage 0.05 + cost · n, n going up and down by one every 8 s, a recording of JSON."""
    rows = []
    for i in range(seconds * 10):
        step = i // 80 % 16
        n = min(step, 16 - step)
        twice = 2 * (0.05 + cost * n)
        rows.append([i / 10, n, min(1, twice), max(0, twice - 1), 0.12 + 0.02 * n])
    path.write_text(json.dumps({"columns": ["t", "n", "util", "psi", "mem"], "rows": rows}))
    return path


def test_replay_json_is_one_object_per_second_and_right(tmp_path: Path) -> None:
    done = carico("replay", machine_with_pods(tmp_path / "r.json"), "--json")
    assert done.returncode == 0, done.stderr
    objects = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(objects) == 240
    assert set(objects[0]) == {"t", "n", "usage", "k", "baseline", "cost", "pod_capacity", "mode"}
    last = objects[-1]
    assert last["cost"]["cpu"] == pytest.approx(0.08, abs=0.01)
    assert last["pod_capacity"] == pytest.approx((0.99 - 0.05) / 0.08 - last["n"], abs=1.0)


def test_replay_is_faster_than_real_time(tmp_path: Path) -> None:
    done = carico("replay", machine_with_pods(tmp_path / "r.json"))
    told = done.stdout.splitlines()[-1].split()  # 240 s replayed in 0.2 s with …
    assert float(told[0]) == 240
    assert float(told[4]) < 60


@pytest.mark.parametrize("estimator", ["resource", "signal", "signal-trace", "signal-difference", "signal-joint"])
def test_every_estimator_replays(tmp_path: Path, estimator: Any) -> None:
    done = carico("replay", machine_with_pods(tmp_path / "r.json", seconds=20), "--json", "--estimator", estimator)
    assert done.returncode == 0, done.stderr
    assert all(json.loads(line)["pod_capacity"] >= 0 for line in done.stdout.splitlines())


@pytest.mark.parametrize(("rate", "rows"), [(1, 60), (20, 1200)])
def test_other_rates_still_give_one_object_per_second(tmp_path: Path, rate: float, rows: Any) -> None:
    document = {"columns": ["t", "n", "mem"], "rows": [[i / rate, 0, 0.5] for i in range(rows)]}
    (tmp_path / "r.json").write_text(json.dumps(document))
    assert len(carico("replay", tmp_path / "r.json", "--json").stdout.splitlines()) == 60


def test_picture(tmp_path: Path) -> None:
    done = carico("replay", machine_with_pods(tmp_path / "r.json", seconds=30), "--png", tmp_path / "r.png")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")


def test_picture_without_the_library_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "matplotlib.py").write_text("raise ImportError")
    recording = machine_with_pods(tmp_path / "r.json", seconds=3)
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = carico("replay", recording, "--png", tmp_path / "r.png", env=environ)
    assert done.returncode == 2
    assert done.stderr == "carico: pictures need matplotlib: pip install 'carico[demo]'\n"


def test_record_and_replay(tmp_path: Path) -> None:
    file = tmp_path / "r"
    done = carico("record", file, "--seconds", 3, "--runtime", "none")
    assert done.returncode == 0, done.stderr
    got = load(file)
    assert got.columns == ("t", "n", "churn", "unsettled", "util", "psi", "mem")
    assert 2 <= len(got.values) <= 31
    assert ((got.values >= 0) & (got.values[:, 4:].max() <= 1)).all()
    assert carico("replay", file).returncode == 0
    refused = carico("record", file, "--seconds", 1)
    assert (refused.returncode, refused.stderr) == (2, f"carico: {file} exists; use --force to write over it\n")


def samples(file: Path) -> int:
    try:
        return len(load(file).values)
    except UsageError:
        return 0  # its head is not written yet


def recorder(file: Path) -> subprocess.Popen[bytes]:
    """A recorder at 100 Hz that has written its first chunk."""
    words = ["record", str(file), "--rate-hz", "100", "--runtime", "none"]
    process = subprocess.Popen([*CARICO, *words], stdout=subprocess.DEVNULL)
    try:
        while samples(file) < CHUNK_ROWS:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(timeout=0.05)
    except BaseException:
        process.kill()
        process.wait()
        raise
    return process


def test_a_killed_recorder_leaves_a_readable_file(tmp_path: Path) -> None:
    process = recorder(tmp_path / "r")
    process.kill()
    process.wait()
    assert len(load(tmp_path / "r").values) >= CHUNK_ROWS


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_recorder_finishes_its_file(tmp_path: Path, number: int) -> None:
    process = recorder(tmp_path / "r")
    process.send_signal(number)
    assert process.wait(timeout=30) == 0
    assert len(load(tmp_path / "r").values) >= CHUNK_ROWS


def test_full_disk_is_one_line() -> None:
    done = carico("record", "/dev/full", "--force", "--seconds", 1, "--runtime", "none")
    assert done.returncode == 1
    assert done.stderr == "carico: /dev/full: no space left after 0 rows; those can be replayed\n"
