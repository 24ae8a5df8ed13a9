"""Files that commit 8277f96 wrote keep working, or are refused with a sentence that says what to do."""

from __future__ import annotations

import logging
import tomllib
from pathlib import Path

import numpy as np
import pytest

from carico import config, flags
from carico.agent.checkpoint import Checkpoint
from carico.estimate.pipeline import Pipeline
from carico.recording import format as recording
from carico.recording.playback import Playback
from carico.scheduler.cycle.profile_settings import read_profiles
from carico.settings import AgentSettings, AggregatorSettings, SchedulerSettings, ViewSettings

FILES = Path(__file__).parents[1] / "fixtures" / "commit-8277f96"
SETTINGS = FILES / "carico.toml"
PROCESSES: dict[str, type] = {"agent": AgentSettings, "aggregator": AggregatorSettings, "scheduler": SchedulerSettings}


def load(section: str) -> object:
    return config.load(PROCESSES[section], section, file=SETTINGS, environ={}, flags={})


@pytest.mark.parametrize("section", PROCESSES)
def test_every_setting_counts_under_its_old_or_its_new_name(section: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        found = load(section)
    warned = "\n".join(caplog.messages)
    for name, value in tomllib.loads(SETTINGS.read_text())[section].items():
        new = config.RENAMED.get(name, name)
        taken = getattr(found, new)
        assert taken == {list: tuple}.get(type(value), lambda same: same)(value) or str(taken or "") == value, name
        assert (f"{name}: this setting is called {new} now" in warned) == (name != new)


def test_every_setting_is_a_flag_under_its_old_name_too() -> None:
    for section, cls in PROCESSES.items():
        parser = flags.CommandParser(prog=section)
        flags.add_settings(parser, cls)
        for name in tomllib.loads(SETTINGS.read_text())[section]:
            assert flags.flag_of(name) in parser._option_string_actions


def test_profiles_are_read_and_the_moved_setting_is_named(caplog: pytest.LogCaptureFixture) -> None:
    settings = load("scheduler")
    assert isinstance(settings, SchedulerSettings)
    with caplog.at_level(logging.WARNING):
        profiles = read_profiles(settings.profiles, settings)
    assert profiles.keys() == {"carico", "lean", "report"}
    assert "ImageLocality" not in profiles["lean"].plugins
    assert profiles["lean"].weights == {"Capacity": 10.0}
    assert profiles["report"].args["Capacity"].release == "pending"
    assert "[scheduler.profiles.report] release: this setting is called args.Capacity.release now" in caplog.text


def test_a_recording_is_read_with_the_same_values() -> None:
    found = recording.load(FILES / "machine.rec")
    assert found.columns == ("t", "n", "churn", "unsettled", "util", "psi", "mem")
    assert found.values.shape == (120, 7)
    np.testing.assert_allclose(found.values[-1], [11.87211841, 0, 0, 0, 1, 1, 0.19813117], rtol=1e-6)
    assert (found.head["rate_hz"], found.head["cores"]) == (10.0, 2)
    playback = Playback(FILES / "machine.rec", found, ViewSettings())
    assert sum(1 for _ in playback) == 120


@pytest.mark.parametrize("estimator", ["resource-joint", "signal"])
def test_saved_state_is_left_out_with_a_sentence_and_replaced(
    estimator: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "agent.json"
    file.write_bytes((FILES / f"agent-{estimator}.json").read_bytes())
    checkpoint = Checkpoint(file, Pipeline(AgentSettings(estimator=estimator), ("cpu", "memory"), 10.0))
    assert not checkpoint.load()
    assert caplog.messages == [
        f"{file} cannot be used (saved state: it has format version 1; this version of Carico reads 3); "
        "starting without saved state"
    ]
    checkpoint.save()
    assert checkpoint.load(), "from now on its own"
