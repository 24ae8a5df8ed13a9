"""Folders of runs and demos in a folder that all users share: made, locked, and removed when their process is dead."""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path

import pytest

from carico.embedded import folder
from carico.embedded.supervisor import marks
from carico.run.output import PREFIX, Output


@pytest.fixture(autouse=True)
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def somebody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there belongs to another user now."""
    other = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: other)


def dead_run(shared: Path) -> Path:
    """The folder of a run whose supervisor was killed: no process has started that late."""
    namespace, pid, _, random = marks.new_mark().split(".")
    path = shared / f"{PREFIX}{namespace}.{pid}.{10**15}.{random}-x"
    path.mkdir()
    return path


def test_what_a_killed_run_left_is_removed(shared: Path) -> None:
    left, alive = dead_run(shared), shared / f"{PREFIX}{marks.new_mark()}-y"
    alive.mkdir()
    Output(None, keep_order=False).close()
    assert not left.exists()
    assert alive.exists()


def test_what_another_users_run_left_stays(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = dead_run(shared)
    somebody_else(monkeypatch)
    Output(None, keep_order=False).close()
    assert left.exists()


def test_a_link_is_not_used_as_a_folder(shared: Path) -> None:
    own = shared / "own"
    own.mkdir()
    (shared / "link").symlink_to(own)
    assert folder.is_own_folder(own)
    assert not folder.is_own_folder(shared / "link")
    assert not folder.is_own_folder(shared / "nothing")


def test_another_users_demo_stays(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = shared / f"{folder.PREFIX}left"
    left.mkdir()
    (left / folder.LOCK).touch()
    with monkeypatch.context() as patch:
        somebody_else(patch)
        folder.remove_unused()
    assert left.exists()
    folder.remove_unused()
    assert not left.exists()


def test_a_demo_that_starts_meanwhile_leaves_the_folder_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    lock, demos = fcntl.flock, []

    def another_demo_first(file: int, how: int) -> None:
        """Between the making of the lock and the locking of it."""
        if how == fcntl.LOCK_EX and not demos:
            demos.append(file)
            folder.remove_unused()
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", another_demo_first)
    with folder.own_folder() as own:
        assert demos
        assert own.exists()
        folder.remove_unused()
        assert own.exists()
    assert not own.exists()
