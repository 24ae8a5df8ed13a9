"""Folders of runs and demos in a folder that all users share: made, locked, and removed when their process is dead."""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path

import pytest

from carico.embedded import folder
from carico.run.output import PREFIX, Output


@pytest.fixture(autouse=True)
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def somebody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there belongs to another user now."""
    other = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: other)


def left_behind(shared: Path, prefix: str) -> Path:
    """The folder of a process that was killed: its lock is free."""
    path = shared / f"{prefix}left"
    path.mkdir()
    (path / folder.LOCK).touch()
    return path


def test_what_a_killed_run_left_is_removed_and_not_what_a_living_one_uses(shared: Path) -> None:
    alive = Output(None, keep_order=False)
    left = left_behind(shared, PREFIX)
    Output(None, keep_order=False).close()
    assert not left.exists()
    assert len(list(shared.iterdir())) == 1
    alive.close()
    assert list(shared.iterdir()) == []


def test_what_another_users_run_left_stays(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = left_behind(shared, PREFIX)
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
    left = left_behind(shared, folder.PREFIX)
    with monkeypatch.context() as patch:
        somebody_else(patch)
        folder.remove_unused()
    assert left.exists()
    folder.remove_unused()
    assert not left.exists()


def test_a_demo_that_starts_meanwhile_leaves_the_folder_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    lock = fcntl.flock
    demos: list[int] = []

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
