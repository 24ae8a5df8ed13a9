"""`carico completion`, in the shells themselves."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from uuid import uuid4

import pytest


@cache
def script(shell: str) -> str:
    command = [sys.executable, "-m", "carico.cli", "completion", shell]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def in_bash(line: str, folder: Path) -> set[str]:
    """What bash would offer at the end of `line`."""
    words = line.split(" ")
    quoted = " ".join(f"'{word}'" for word in words)
    ask = f"COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _shtab_carico carico '{words[-1]}' '{words[-2]}'"
    ask += '; printf "%s\\n" "${COMPREPLY[@]}"'
    return _offered(["bash", "--norc", "-c", f"{script('bash')}\n{ask}"], folder)


def in_fish(line: str, folder: Path) -> set[str]:
    lines = _offered(["fish", "--no-config", "-c", f"{script('fish')}\ncomplete -C '{line}'"], folder)
    return {offered.split("\t")[0] for offered in lines}


def zsh_offers(wanted: set[str], line: str, folder: Path) -> None:
    """zsh completes at a terminal only: tmux is one, with a line typed into it and the list read from its screen."""
    (folder / "_carico").write_text(script("zsh"))
    start = f"PS1='> '; fpath=({folder} $fpath); autoload -Uz compinit; compinit -u -D"
    (folder / ".zshrc").write_text(f"{start}; setopt no_beep; LISTMAX=0; print ready\n")
    # A socket for each: the server of the line before may still be on its way out.
    tmux = ["tmux", "-f", "/dev/null", "-S", str(folder / f"tmux-{uuid4().hex[:8]}")]

    def screen() -> str:
        return subprocess.run([*tmux, "capture-pane", "-p"], capture_output=True, text=True, check=True).stdout

    def until(holds: Callable[[str], bool]) -> None:
        for _ in range(300):
            if holds(screen()):
                return
            time.sleep(0.1)
        raise AssertionError(screen())

    environ = {**os.environ, "ZDOTDIR": str(folder), "TERM": "screen"}
    subprocess.run([*tmux, "new-session", "-d", "-x", "200", "-y", "100", "zsh -d"], env=environ, check=True)
    try:
        until(lambda shown: "ready\n>" in shown)  # at its prompt: what is typed before goes past its line editor
        subprocess.run([*tmux, "send-keys", "-l", line], check=True)
        until(lambda shown: line.rstrip() in shown)
        subprocess.run([*tmux, "send-keys", "Tab"], check=True)
        subprocess.run([*tmux, "send-keys", "C-d"], check=True)  # lists what is left to choose from
        until(lambda shown: wanted <= {word for row in shown.splitlines()[2:] for word in row.split()})
    finally:
        subprocess.run([*tmux, "kill-server"], check=True)


def _offered(command: list[str], folder: Path) -> set[str]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=folder)
    assert not done.stderr, done.stderr
    return {line.strip() for line in done.stdout.splitlines() if line.strip()}


SHELLS = [
    pytest.param(in_bash, id="bash"),
    pytest.param(in_fish, id="fish", marks=pytest.mark.needs("fish")),
]


@pytest.mark.parametrize("offered", SHELLS)
def test_commands_flags_and_choices(offered: Callable[[str, Path], set[str]], tmp_path: Path) -> None:
    assert {"agent", "aggregator"} <= offered("carico ag", tmp_path)
    assert "scheduler" not in offered("carico ag", tmp_path)
    assert {"--rate-hz", "--runtime"} <= offered("carico agent --r", tmp_path)
    assert "--grpc-listen" not in offered("carico agent --g", tmp_path)
    assert offered("carico agent --runtime c", tmp_path) == {"containerd", "cri", "cgroup"}
    assert offered("carico --log-level de", tmp_path) == {"debug"}
    assert offered("carico completion ", tmp_path) >= {"bash", "zsh", "fish"}
    assert "--no-page" in offered("carico scheduler --no-", tmp_path)
    assert offered("carico agent --log-format ", tmp_path) == {"text", "json"}
    assert offered("carico --log-level debug top --log-", tmp_path) == {"--log-level", "--log-format"}
    assert offered("carico explain -o ", tmp_path) == {"json", "yaml", "name", "wide"}
    assert offered("carico cluster ", tmp_path) >= {"create", "delete", "kubeconfig", "list"}
    assert {"agent", "version"} <= offered("carico help ", tmp_path)
    assert "--lease-duration" not in offered("carico scheduler --lea", tmp_path)  # an old name
    assert "--json" not in offered("carico explain --", tmp_path)


@pytest.mark.parametrize("offered", SHELLS)
def test_files_where_files_are_wanted(offered: Callable[[str, Path], set[str]], tmp_path: Path) -> None:
    (tmp_path / "settings.toml").touch()
    # bash completes file names by itself where the script offers nothing.
    assert offered("carico agent --config set", tmp_path) in ({"settings.toml"}, set())
    assert offered("carico replay set", tmp_path) in ({"settings.toml"}, set())


@pytest.mark.slow
@pytest.mark.needs("zsh", "tmux")
def test_zsh_offers_them_at_its_prompt(tmp_path: Path) -> None:
    zsh_offers({"agent", "aggregator"}, "carico ag", tmp_path)
    zsh_offers({"--rate-hz", "--runtime"}, "carico agent --r", tmp_path)
    zsh_offers({"containerd", "cri", "cgroup"}, "carico agent --runtime c", tmp_path)
