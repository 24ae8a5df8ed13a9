"""The command as a user types it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from carico import __version__, logs
from carico.cli import COMMANDS, main
from harness.running import AgentProcess

RFC_3339 = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


def carico(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "carico.cli", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, **environ})


@pytest.fixture
def page(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """What the command prints, in this process: a process of its own takes half a second for each page of help."""
    monkeypatch.setattr(logs, "start", lambda *_: None)  # it changes the log of the whole process

    def shown(*words: str) -> str:
        try:
            code: object = main(list(words))
        except SystemExit as end:  # from argparse
            code = end.code
        assert code == 0
        return capsys.readouterr().out

    return shown


@pytest.mark.parametrize("words", [["--version"], ["version"]])
def test_version(words: list[str]) -> None:
    assert carico(*words).stdout == f"carico {__version__}\n"


def test_version_as_json_and_yaml() -> None:
    as_json, as_yaml = (carico("version", "-o", form).stdout for form in ("json", "yaml"))
    assert json.loads(as_json) == yaml.safe_load(as_yaml)
    assert json.loads(as_json)["version"] == __version__


@pytest.mark.parametrize("words", [[], ["--help"], ["help"]])
def test_help_lists_every_command(words: list[str]) -> None:
    done = carico(*words)
    assert done.returncode == 0
    for name, command in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(command.about)}$", done.stdout, re.MULTILINE)


@pytest.mark.parametrize("command", list(COMMANDS))
def test_every_command_has_help(command: str, page: Callable[..., str]) -> None:
    text = page(command, "--help")
    assert f"usage: carico {command}" in text
    assert page("help", command) == text
    assert "word" not in text.replace("[WORD …]", "").replace("one word", "")
    assert "default: none" not in text
    assert len(re.findall(r"^  -", text, re.MULTILINE)) <= 24  # a screen of them


@pytest.mark.parametrize("command", ["top", "record", "agent", "scheduler", "doctor"])
def test_rare_options_are_in_the_long_help_alone(command: str, page: Callable[..., str]) -> None:
    short, long = page(command, "--help"), page(command, "--help-all")
    flags = [set(re.findall(r"^  (?:-\w[^,]*, )?(--[\w-]+)", text, re.MULTILINE)) for text in (short, long)]
    assert flags[0] < flags[1]
    assert f"show this help with {len(flags[1] - flags[0])} more options" in re.sub(r"\s+", " ", short)


def test_the_long_help_of_a_command_without_rare_options_is_its_help(page: Callable[..., str]) -> None:
    for command in ([], ["run"], ["version"]):
        assert page(*command, "--help-all") == page(*command, "--help") != ""


def test_an_unknown_command_ends_with_one_short_line() -> None:
    for wrong, end in (("agnet", "did you mean agent?"), ("xyz", "see `carico --help`")):
        done = carico(wrong)
        assert (done.returncode, done.stderr) == (2, f"carico: there is no command {wrong!r}; {end}\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["agent", "--ratehz", "5"], "there is no option --ratehz; did you mean --rate-hz?"),
        (["agent", "--bogus"], "there is no option --bogus; see `carico agent --help`"),
        (["agent", "more"], "unexpected argument 'more'; see `carico agent --help`"),
        (["completion", "bsh"], "bash|zsh|fish: 'bsh' is not one of bash, zsh, fish; did you mean bash?"),
        (["completion"], "the following arguments are required: bash|zsh|fish; see `carico completion --help`"),
        (["help", "agnt"], "there is no command 'agnt'; did you mean agent?"),
        (["help", "xyz"], "there is no command 'xyz'; see `carico --help`"),
        (["agent", "--log-level", "loud"], "--log-level: 'loud' is not one of debug, info, warning, error; see `c"),
        (["explain"], "give either a pod of the cluster or -f FILE; see `carico explain --help`"),
        (["explain", "web", "-f", "pod.yaml"], "give either a pod of the cluster or -f FILE; see `carico explain"),
        (["--config", "x.toml", "version"], "--config: `carico version` reads no settings"),
        (["top", "--seconds", "soon"], "--seconds: 'soon' is not a duration; write it like 30s, 5m, 1h30m or"),
        (
            ["cluster", "create", "--simulate", "x"],
            "--simulate: 'x' is not a whole number; see `carico cluster --help`",
        ),
        (["-n", "team", "version"], "there is no option -n; see `carico version --help`"),
        (["top", "--seconds", "0"], "--seconds: '0' is not a time above 0"),
        (["top", "--seconds", "12000d"], "--seconds: '12000d' is more than 30 years"),
        (["scheduler", "--leader-elect=maybe"], "--leader-elect: 'maybe' is neither true nor false"),
        (["agent", "--config", "/no/such"], "/no/such: cannot be read (No such file or directory); check --config"),
    ],
)
def test_errors_are_reported_in_one_line(words: list[str], message: str) -> None:
    done = carico(*words)
    assert done.returncode == 2
    assert done.stderr.startswith(f"carico: {message}"), done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert len(done.stderr) < 160


def test_global_flags_stand_before_or_behind_the_command(tmp_path: Path) -> None:
    config = tmp_path / "agent"  # a file that is called like a command
    config.write_text("[agent]\nrate_hz = 1000\n")
    for words in (["--config", str(config), "top"], ["top", "--config", str(config)], [f"--config={config}", "top"]):
        done = carico(*words, "--seconds", "1")
        assert done.returncode == 2
        assert done.stderr == f"carico: {config} [agent] rate_hz: 1000 is more than 100\n"


@pytest.mark.parametrize(
    "before", [["--help"], ["-n", "explain", "-h"], ["--namespace=team", "--help"], ["--context", "c", "--help"]]
)
def test_flags_of_a_command_may_stand_before_it_as_for_kubectl(before: list[str], page: Callable[..., str]) -> None:
    assert page(*before, "explain") == page("explain", "--help")


def test_the_settings_file_may_be_named_by_the_environment(tmp_path: Path) -> None:
    config = tmp_path / "carico.toml"
    assert carico("top", "--seconds", "1", CARICO_CONFIG=str(config)).returncode == 2  # a named one has to be there
    config.write_text("[agent]\nrate_hz = 1000\n")
    done = carico("top", "--seconds", "1", CARICO_CONFIG=str(config))
    assert done.stderr == f"carico: {config} [agent] rate_hz: 1000 is more than 100\n"
    (tmp_path / "other.toml").touch()
    assert carico("top", "--seconds", "1", "--config", str(tmp_path / "other.toml"), CARICO_CONFIG=str(config)).stdout


def test_what_a_recording_holds_as_json(tmp_path: Path) -> None:
    done = carico("record", str(tmp_path / "r.npz"), "--seconds", "2s", "--json", "--log-level", "error")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["samples"] > 0
    assert told["bytes"] == (tmp_path / "r.npz").stat().st_size


def test_log_lines_have_a_time_with_its_zone() -> None:
    agent = AgentProcess("--runtime", "none", environ={"TZ": "Asia/Tokyo"})
    try:
        agent.wait_for(rf"^{RFC_3339} INFO carico\.agent\.process: carico ")
    finally:
        assert agent.stop() == 0


def test_log_lines_as_json_and_stacks_at_a_signal() -> None:
    agent = AgentProcess("--runtime", "none", "--log-format", "json")
    try:
        line = json.loads(agent.wait_for(r".*metrics on port.*")[0])
        assert re.fullmatch(RFC_3339, line.pop("time"))
        assert line.pop("message").startswith("carico ")
        assert line == {"level": "info", "logger": "carico.agent.process"}
        os.kill(agent.pid, signal.SIGUSR1)
        agent.wait_for(r"^Current thread 0x.*most recent call first")
        agent.wait_for(r"File .* in run")
        assert agent.get("/healthz")[0] == 200  # it goes on
    finally:
        assert agent.stop() == 0


def test_why_a_process_ends_is_in_the_log_where_that_is_json() -> None:
    words = ("scheduler", "--plaintext", "--kubeconfig", "/no/such")
    why = "/no/such: cannot be read (No such file or directory); set --kubeconfig"
    done = carico(*words, "--log-format", "json")
    assert done.returncode == 2
    last = [json.loads(line) for line in done.stderr.splitlines()][-1]
    assert (last["level"], last["message"]) == ("error", why)
    assert carico(*words).stderr.splitlines()[-1] == f"carico: {why}"


def test_an_error_of_the_program_is_one_line_of_json() -> None:
    """As a process of its own: it changes the log of the whole process."""
    broken = "import sys; from carico import cli; from carico.commands import version; version.run = lambda _: 1 / 0; "
    script = broken + "sys.exit(cli.main(['version', '--log-format', 'json']))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    told = json.loads(done.stderr)
    assert (told["level"], told["message"]) == ("error", "ZeroDivisionError('division by zero')")
    assert told["exception"].startswith("Traceback")


def test_kubectl_finds_the_plugin(tmp_path: Path) -> None:
    """As pip installs it: a script of this name on the PATH that calls the same function."""
    script = tmp_path / "kubectl-carico"
    script.write_text(f"#!{sys.executable}\nimport sys\nfrom carico.cli import main\nsys.exit(main())\n")
    script.chmod(0o755)
    done = subprocess.run([str(script), "explain", "--help"], capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("usage: kubectl carico explain {POD | -f FILE} [OPTION …]")


def test_a_renamed_command_still_works_and_says_its_new_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate-placement", "-f", "/no/such/pod.yaml", "--kubeconfig", "/none"]) == 2
    warning, error = capsys.readouterr().err.splitlines()
    assert warning == "carico: warning: `carico simulate-placement` is `carico explain` now"
    assert error.startswith("carico: /none: cannot be read")
