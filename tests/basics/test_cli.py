"""The command as a user types it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from carico import __version__
from carico.cli import WORDS


def carico(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "carico.cli", *words], capture_output=True, text=True, timeout=60)


def test_version() -> None:
    assert carico("--version").stdout == f"carico {__version__}\n"


def test_help_lists_every_word() -> None:
    page = carico("--help").stdout
    for name, word in WORDS.items():
        assert name in page
        assert word.about.split()[0] in page


@pytest.mark.parametrize("word", list(WORDS))
def test_every_word_has_help(word: str) -> None:
    done = carico(word, "--help")
    assert done.returncode == 0, done.stderr
    assert f"usage: carico {word}" in done.stdout


def test_an_unknown_word_ends_with_a_line_that_names_it() -> None:
    done = carico("agnet")
    assert done.returncode == 2
    assert done.stderr.startswith("carico: argument WORD: invalid choice: 'agnet'")
    assert done.stderr.endswith("; did you mean agent?\n")
    assert len(done.stderr.splitlines()) == 1
    assert "Traceback" not in done.stderr


def test_no_word_shows_the_help() -> None:
    assert "usage: carico" in carico().stdout


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("agent", "--rate-h", "5"), None),  # a beginning that is clear is taken
        (("agent", "--ratehz", "5"), "did you mean --rate-hz?"),
        (("agent", "--version"), "it stands before the word: carico --version …"),
        (("explain", "pood", "a/b"), "did you mean pod?"),
        (("simulate-placement",), "`carico simulate-placement --help` tells more"),
    ],
)
def test_a_wrong_flag_is_answered_in_one_line_with_a_hint(words: tuple[str, ...], hint: str | None) -> None:
    if hint is None:
        assert carico(*words, "--help").returncode == 0
        return
    done = carico(*words)
    assert done.returncode == 2
    assert [line.endswith(hint) for line in done.stderr.splitlines()] == [True], done.stderr


def test_what_a_recording_holds_as_json(tmp_path: Path) -> None:
    done = carico("--log-level", "error", "record", str(tmp_path / "r.npz"), "--seconds", "2", "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["samples"] > 0
    assert said["bytes"] == (tmp_path / "r.npz").stat().st_size
