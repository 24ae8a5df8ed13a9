"""Settings come from file, environment and flags, and all errors are reported at once."""

from __future__ import annotations

import dataclasses
import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carico import config, flags
from carico.errors import UsageError
from carico.settings import AgentSettings, AggregatorSettings, SchedulerSettings

PROCESSES: dict[str, type] = {"agent": AgentSettings, "aggregator": AggregatorSettings, "scheduler": SchedulerSettings}
WORDS = (
    "",
    "0",
    "-1",
    "1e400",
    "nan",
    "inf",
    "true",
    "5m",
    "1h30m",
    "cpu",
    "cpu=0.5",
    "a,b",
    "{}",
    "[]",
    '{"carico": 1}',
)


def load(file: Path | None = None, environ: dict[str, str] | None = None, **flags: object) -> AgentSettings:
    return config.load(AgentSettings, "agent", file=file, environ=environ or {}, flags=flags)


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


def test_all_errors_are_reported_at_once(tmp_path: Path) -> None:
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


EVERY = [(cls, section, field) for section, cls in PROCESSES.items() for field in dataclasses.fields(cls)]


@given(st.sampled_from(EVERY), st.text() | st.sampled_from(WORDS))
def test_whatever_text_a_variable_holds_the_answer_is_a_value_or_names_the_variable(
    setting: tuple[type, str, dataclasses.Field[object]], text: str
) -> None:
    cls, section, field = setting
    variable = f"CARICO_{section.upper()}__{field.name.upper()}"
    problems: list[str] = []
    try:
        found: Any = config.load(cls, section, file=None, environ={variable: text}, flags={})
        assert not field.metadata["refused"]
        config._checked(field, getattr(found, field.name))
    except UsageError as error:
        problems = str(error).splitlines()
    assert [line for line in problems if not line.startswith(f"{variable}: ")] == []


@pytest.mark.parametrize(("section", "cls"), PROCESSES.items())
def test_every_place_takes_the_same_text(tmp_path: Path, section: str, cls: type) -> None:
    """What the help shows as a default is read back from file, environment and flags alike."""
    default = cls()
    for field in dataclasses.fields(cls):
        value = getattr(default, field.name)
        if field.metadata["refused"] or not isinstance(value, str | float | int):
            continue
        text = "true" if value is True else "false" if value is False else str(value)
        file = written(tmp_path, f"[{section}]\n{field.name} = {json.dumps(value)}\n")
        variable = {f"CARICO_{section.upper()}__{field.name.upper()}": text}
        for place in ({"file": file}, {"environ": variable}, {"flags": {field.name: text}}):
            everything: dict[str, Any] = {"file": None, "environ": {}, "flags": {}} | place
            assert config.load(cls, section, **everything) == default


@pytest.mark.parametrize(("section", "cls"), PROCESSES.items())
def test_a_setting_that_does_not_exist_is_named(tmp_path: Path, section: str, cls: type) -> None:
    file = written(tmp_path, f"[{section}]\nno_such_thing = 1\n")
    with pytest.raises(UsageError, match=rf"\[{section}\] no_such_thing: no setting is called 'no_such_thing'"):
        config.load(cls, section, file=file, environ={}, flags={})


@pytest.mark.parametrize(("section", "cls"), PROCESSES.items())
def test_a_number_beyond_its_limits_is_refused_with_the_limit(section: str, cls: type) -> None:
    limited = [f for f in dataclasses.fields(cls) if f.metadata["least"] is not None or f.metadata["most"] is not None]
    assert len(limited) >= 5
    for field in limited:
        least, most = field.metadata["least"], field.metadata["most"]
        wrong = least - 1 if least is not None else most + 1
        text = f"cpu={wrong}" if isinstance(getattr(cls(), field.name), dict) else str(wrong)
        with pytest.raises(UsageError, match=rf"^--{field.name.replace('_', '-')}: .* (is (less|more) than|is not a)"):
            config.load(cls, section, file=None, environ={}, flags={field.name: text})


@pytest.mark.parametrize("cls", PROCESSES.values())
def test_every_setting_is_a_flag_with_a_reason(cls: type[object]) -> None:
    parser = flags.CommandParser(prog="carico agent")
    flags.add_settings(parser, cls)
    page = parser.format_help_all()
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        if field.metadata["refused"]:
            assert field.name == "tls_ca"
            continue
        assert f"--{field.name.replace('_', '-')}" in page
        about = field.metadata["about"]
        assert len(about) > 10
        assert not re.match(r"(s|seconds|bytes/s)\b|pods;", about), "a unit is no beginning of a sentence"
    assert not re.search(r"--\S+ (TEXT|X|A,B)\b", page.replace("--pronto-threshold X", ""))


def test_the_defaults_pass_their_own_checks() -> None:
    for cls in PROCESSES.values():
        for field in dataclasses.fields(cls):
            if field.metadata["refused"]:
                continue
            config._checked(field, getattr(cls(), field.name))


@pytest.mark.parametrize(
    ("written_as", "seconds"),
    [('"5m"', 300.0), ('"1h30m"', 5400.0), ('"250ms"', 0.25), ("7", 7.0), ("0.5", 0.5), ('"12"', 12.0)],
)
def test_durations_in_a_file(tmp_path: Path, written_as: str, seconds: float) -> None:
    assert load(written(tmp_path, f"[agent]\nask_every = {written_as}\n")).ask_every == seconds


def test_durations_in_environment_and_flags() -> None:
    assert load(environ={"CARICO_AGENT__SETTLE": "1m"}).settle == 60.0
    assert load(settle="1.5s").settle == 1.5
    with pytest.raises(UsageError, match="'10ms' is less than 100ms"):
        load(ask_every="10ms")
    with pytest.raises(UsageError, match=r"'2\.5s' is not a whole number"):
        load(pronto_window="2.5s")
    with pytest.raises(UsageError, match="'soon' is not a duration; write it like 30s"):
        load(settle="soon")


def scheduler(**places: object) -> SchedulerSettings:
    everything = {"file": None, "environ": {}, "flags": {}} | places
    return config.load(SchedulerSettings, "scheduler", **everything)  # type: ignore[arg-type]


def test_an_old_name_counts_with_a_warning_that_names_the_new_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = written(tmp_path, '[scheduler]\nlease_name = "old"\nlease_duration = 30\n')
    with caplog.at_level(logging.WARNING):
        found = scheduler(file=file, environ={"CARICO_SCHEDULER__LEASE_RETRY": "1s"}, flags={"lease_duration": "20s"})
    assert found.leader_elect_resource_name == "old"
    assert (found.leader_elect_lease_duration, found.leader_elect_retry_period) == (20.0, 1.0)
    assert caplog.messages == [
        f"{file} [scheduler] lease_name: this setting is called leader_elect_resource_name now; the old name will go",
        f"{file} [scheduler] lease_duration: this setting is called leader_elect_lease_duration now; "
        "the old name will go",
        "CARICO_SCHEDULER__LEASE_RETRY: this setting is called leader_elect_retry_period now; the old name will go",
        "--lease-duration: this setting is called leader_elect_lease_duration now; the old name will go",
    ]


def test_where_both_names_are_given_the_new_one_counts(tmp_path: Path) -> None:
    file = written(tmp_path, '[scheduler]\nleader_elect_resource_name = "new"\nlease_name = "old"\n')
    assert scheduler(file=file).leader_elect_resource_name == "new"


def test_every_renamed_setting_leads_to_one_that_exists() -> None:
    known = flags.names(AgentSettings, AggregatorSettings, SchedulerSettings)
    assert set(config.RENAMED.values()) <= known
    assert not config.RENAMED.keys() & known


def test_leader_election_is_called_as_in_the_components_of_kubernetes() -> None:
    parser = flags.CommandParser(prog="carico scheduler")
    flags.add_settings(parser, SchedulerSettings)
    suffixes = ("", "-lease-duration", "-renew-deadline", "-retry-period", "-resource-name", "-resource-namespace")
    assert {f"--leader-elect{suffix}" for suffix in suffixes} <= set(parser.flags())
    for words, value in (["--leader-elect=false"], False), (["--no-leader-elect"], False), (["--leader-elect"], True):
        assert parser.parse_args(words).leader_elect is value


def test_profiles_are_json_on_the_command_line() -> None:
    parser = flags.CommandParser(prog="carico scheduler")
    flags.add_settings(parser, SchedulerSettings)
    assert "--profiles JSON" in parser.format_help_all()
    assert scheduler(flags={"profiles": '{"mine": {"disable": ["Capacity"]}}'}).profiles["mine"]


def election(**flags: str) -> SchedulerSettings:
    return scheduler(flags={f"leader_elect_{name}" if name != "burst" else name: text for name, text in flags.items()})


def test_times_of_the_lease_that_allow_two_leaders_are_refused_all_at_once() -> None:
    with pytest.raises(UsageError) as error:
        election(lease_duration="10s", renew_deadline="10", retry_period="9", burst="0")
    assert str(error.value).splitlines() == [
        "--burst: '0' is less than 1",
        "--leader-elect-lease-duration: a lease duration of 10s must be more than the renew deadline of 10s",
        "--leader-elect-renew-deadline: a renew deadline of 10s must be more than 1.2 times the retry period of 9s",
    ]
    assert error.value.exit_code == 2


@pytest.mark.parametrize("name", ["renew_deadline", "lease_duration", "retry_period"])
def test_one_time_alone_may_not_fit_the_defaults_of_the_others(name: str) -> None:
    wrong = {"renew_deadline": "15s", "lease_duration": "9s", "retry_period": "9s"}[name]
    with pytest.raises(UsageError, match=f"^--leader-elect-{name.replace('_', '-')}: "):
        election(**{name: wrong})


def test_a_time_that_is_wrong_by_itself_is_not_held_against_the_others() -> None:
    with pytest.raises(UsageError) as error:
        election(renew_deadline="soon", lease_duration="5")
    assert len(str(error.value).splitlines()) == 1
    assert str(error.value).startswith("--leader-elect-renew-deadline: 'soon' is not a duration")


def test_without_an_election_its_times_do_not_matter() -> None:
    flags = {"leader_elect": "false", "leader_elect_lease_duration": "1"}
    assert scheduler(flags=flags).leader_elect_lease_duration == 1


def test_times_that_fit_are_taken() -> None:
    assert election(lease_duration="4", renew_deadline="3", retry_period="300ms").leader_elect_renew_deadline == 3
