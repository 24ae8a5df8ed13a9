"""What the agent learned survives a restart, and a broken file never poisons it."""

from __future__ import annotations

import errno
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from carico.agent.checkpoint import Checkpoint


class Learner:
    def __init__(self) -> None:
        self.known: Mapping[str, object] = {"cost": 0.25}

    def save(self) -> dict[str, object]:
        return dict(self.known)

    def restore(self, state: Mapping[str, object]) -> None:
        if "cost" not in state:
            raise ValueError("it has no cost")
        self.known = state


def test_what_is_kept_is_recalled(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    Checkpoint(path, Learner()).save()
    again = Learner()
    again.known = {}
    assert Checkpoint(path, again).load()
    assert again.known == {"cost": 0.25}
    assert [p.name for p in tmp_path.iterdir()] == ["state.json"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00\xff",
        b"[]",
        b"null",
        b'{"format": 0}',
        b'{"format": 1}',
        b'{"format": 1, "state": {}}',
        b'{"format": 1, "state": 7}',
        b'{"format": 1, "state": []}',
        b'{"format": 1, "state": null}',
        b"[" * 100_000,
    ],
)
def test_a_broken_file_is_named_and_left_out(tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "state.json"
    path.write_bytes(content)
    learner = Learner()
    assert not Checkpoint(path, learner).load()
    assert learner.known == {"cost": 0.25}
    assert "state.json cannot be used" in caplog.text


def test_no_link_is_followed_and_no_other_user_can_read_it(tmp_path: Path) -> None:
    """An agent that is root, with its state file in a folder in which others can make links."""
    path, victim = tmp_path / "state.json", tmp_path / "shadow"
    victim.write_text("root's own")
    path.with_name("state.json.new").symlink_to(victim)  # the name that was always taken
    path.symlink_to(victim)
    Checkpoint(path, Learner()).save()
    assert victim.read_text() == "root's own"
    assert not path.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o600


def test_without_a_path_nothing_is_kept() -> None:
    kept = Checkpoint(None, Learner())
    kept.save()
    assert not kept.load()


def test_a_full_disk_is_logged_once_and_leaves_the_old_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.json"
    kept = Checkpoint(path, Learner())
    kept.save()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("carico.agent.checkpoint.os.replace", full)
    kept.save()
    kept.save()
    assert caplog.text.count("No space left on device") == 1
    assert json.loads(path.read_text())["state"] == {"cost": 0.25}
    assert [p.name for p in tmp_path.iterdir()] == ["state.json"]
