"""The command as a user types it."""

from __future__ import annotations

import subprocess
import sys

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
    assert "agnet" in done.stderr
    assert "Traceback" not in done.stderr


def test_no_word_shows_the_help() -> None:
    assert "usage: carico" in carico().stdout
