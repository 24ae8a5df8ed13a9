"""Settings come from file, environment and flags, and everything that is wrong is said at once."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carico import knobs, settings
from carico.errors import UsageError
from carico.settings import AgentSettings, AggregatorSettings, SchedulerSettings


def load(file: Path | None = None, environ: dict[str, str] | None = None, **flags: object) -> AgentSettings:
    return knobs.load(AgentSettings, "agent", file=file, environ=environ or {}, flags=flags)


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "carico.toml"
    path.write_text(text)
    return path


def test_without_anything_the_defaults_hold() -> None:
    assert load() == AgentSettings()


def test_a_flag_beats_the_environment_beats_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, "[agent]\nrate_hz = 1\nbatch = 2\ndamping = 0.1\n")
    environ = {"CARICO_AGENT__BATCH": "3", "CARICO_AGENT__DAMPING": "0.2", "PATH": "/bin"}
    found = load(file, environ, damping="0.3")
    assert (found.rate_hz, found.batch, found.damping) == (1.0, 3, 0.3)


def test_sections_of_other_processes_are_left_alone(tmp_path: Path) -> None:
    assert load(written(tmp_path, '[aggregator]\nmerge = "running"\n')) == AgentSettings()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[agent]\nrate_hertz = 1\n", "no setting is called 'rate_hertz'; did you mean 'rate_hz'?"),
        ("[agnet]\n", "no section is called [agnet]; did you mean 'agent'?"),
        ("[agent]\nrate_hz = 0\n", "0 is less than 0.1"),
        ("[agent]\nrate_hz = true\n", "True is not a number"),
        ("[agent]\nrate_hz = inf\n", "inf is not finite"),
        ("[agent]\nbatch = 1.5\n", "1.5 is not a whole number"),
        ('[agent]\ncpu = "main"\n', "'main' is not one of mean, utilisation, pressure; did you mean 'mean'?"),
        ('[agent]\ndimensions = ["cpu", "gpu"]\n', "is not one of cpu, memory"),
        ("[agent]\nfull = { cpu = 2 }\n", "is more than 1"),
        ("[agent]\nplaintext = 3\n", "3 is neither true nor false"),
        ("[agent]\nnode_name = 3\n", "3 is not text"),
        ("[agent]\nfull = { cpus = 0.5 }\n", "is not one of cpu, memory"),
        ("[agent\n", "is not TOML"),
        ("agent = 5\n", "agent is 5, not a section; write [agent] on a line of its own"),
    ],
)
def test_a_wrong_file_is_named_with_its_value_and_the_remedy(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        load(written(tmp_path, text))
    assert message in str(error.value)
    assert "carico.toml" in str(error.value)


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        load(written(tmp_path, "[agent]\nbatch = 0\n"), {"CARICO_AGENT__DAMPING": "x"}, rate_hz="-1")
    lines = str(error.value).splitlines()
    assert [line.partition(": ")[0].rpartition(" ")[2] for line in lines] == [
        "batch",
        "CARICO_AGENT__DAMPING",
        "--rate-hz",
    ]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"absent\.toml: cannot be read"):
        load(tmp_path / "absent.toml")


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "carico.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match=r"carico\.toml: is not TOML"):
        load(tmp_path / "carico.toml")


def test_text_forms_of_lists_and_tables() -> None:
    found = load(environ={"CARICO_AGENT__DIMENSIONS": "memory,cpu", "CARICO_AGENT__FULL": "cpu=0.5,memory=0.9"})
    assert found.dimensions == ("memory", "cpu")
    assert found.full == {"cpu": 0.5, "memory": 0.9}


@given(st.sampled_from([f.name for f in dataclasses.fields(AgentSettings)]), st.text())
def test_whatever_text_a_variable_holds_the_answer_is_a_value_or_a_usage_error(name: str, text: str) -> None:
    variable = f"CARICO_AGENT__{name.upper()}"
    with contextlib.suppress(UsageError):
        load(environ={variable: text})


@pytest.mark.parametrize("cls", [AgentSettings, AggregatorSettings])
def test_every_knob_is_a_flag_with_a_reason(cls: type[object]) -> None:
    parser = argparse.ArgumentParser()
    knobs.add_flags(parser, cls)
    page = parser.format_help()
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        assert f"--{field.name.replace('_', '-')}" in page
        assert len(field.metadata["about"]) > 10


def test_the_defaults_pass_their_own_checks() -> None:
    for cls in (settings.AgentSettings, settings.AggregatorSettings):
        for field in dataclasses.fields(cls):
            knobs._checked(field, getattr(cls(), field.name))


def scheduler(**flags: object) -> SchedulerSettings:
    return knobs.load(SchedulerSettings, "scheduler", file=None, environ={}, flags=flags)


def test_times_of_the_lease_that_allow_two_leaders_are_refused_all_at_once() -> None:
    with pytest.raises(UsageError) as error:
        scheduler(lease_duration="10", lease_renew="10", lease_retry="9", burst="0")
    assert str(error.value).splitlines() == [
        "--burst: '0' is less than 1",
        "--lease-duration: lease_duration (10 s) must be more than lease_renew (10 s)",
        "--lease-renew: lease_renew (10 s) must be more than 1.2 times lease_retry (9 s)",
    ]
    assert error.value.exit_code == 2


@pytest.mark.parametrize("flags", [{"lease_renew": "15"}, {"lease_duration": "9"}, {"lease_retry": "9"}])
def test_one_time_alone_may_not_fit_the_defaults_of_the_others(flags: dict[str, str]) -> None:
    [name] = flags
    with pytest.raises(UsageError, match=f"^--{name.replace('_', '-')}: "):
        scheduler(**flags)


def test_a_time_that_is_wrong_by_itself_is_not_held_against_the_others() -> None:
    with pytest.raises(UsageError) as error:
        scheduler(lease_renew="soon", lease_duration="5")
    assert str(error.value).splitlines() == ["--lease-renew: 'soon' is not a number"]


def test_without_an_election_its_times_do_not_matter() -> None:
    assert scheduler(leader_elect="false", lease_duration="1").lease_duration == 1


def test_times_that_fit_are_taken() -> None:
    assert scheduler(lease_duration="4", lease_renew="3", lease_retry="0.3").lease_renew == 3
