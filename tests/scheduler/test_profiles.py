"""Profiles from the settings file: what is chosen, and what is refused at the start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from carico.errors import UsageError
from carico.knobs import load
from carico.scheduler.assembly import assemble
from carico.scheduler.plugins import registry
from carico.scheduler.profiles import chosen, weights_of
from carico.settings import SchedulerSettings
from carico.testing import ManualClock


def names(profile: str, table: dict[str, Any]) -> list[str]:
    return chosen(profile, table, list(registry.known()), registry.DEFAULT)


def test_a_file_makes_profiles(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(
        '[scheduler.profiles.lean]\ndisable = ["ImageLocality"]\nweights = { Capacity = 9 }\n'
        "[scheduler.profiles.report]\n"
    )
    settings = load(SchedulerSettings, "scheduler", file=file, environ={}, flags={})
    parts = assemble(settings, ManualClock(), None)
    assert set(parts.profiles) == {"lean", "report"}
    lean = parts.profiles["lean"]
    assert "ImageLocality" not in [plugin.name for plugin in lean.plugins]
    assert lean.weights["Capacity"] == 9
    assert [plugin.name for plugin in parts.profiles["report"].plugins] == ["PrioritySort", "Capacity"]


def test_json_in_the_environment_does_too() -> None:
    environ = {"CARICO_SCHEDULER__PROFILES": '{"x": {"disable": ["ImageLocality"]}}'}
    settings = load(SchedulerSettings, "scheduler", file=None, environ=environ, flags={})
    assert settings.profiles == {"x": {"disable": ["ImageLocality"]}}
    with pytest.raises(UsageError, match="is not JSON"):
        load(SchedulerSettings, "scheduler", file=None, environ={"CARICO_SCHEDULER__PROFILES": "x"}, flags={})


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"plugin": []}, "no setting is called 'plugin'; did you mean 'plugins'"),
        ({"disable": ["ImageLocalty"]}, "no plugin is called 'ImageLocalty'; did you mean 'ImageLocality'"),
        ({"release": "soon"}, "release 'soon' is neither 'handover' nor 'pending'"),
        ("nonsense", "is not a table"),
    ],
)
def test_a_mistake_is_named(table: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        names("carico", table)


@pytest.mark.parametrize("weight", [-1, 1e9, True, "5"])
def test_a_weight_is_a_number(weight: Any) -> None:
    with pytest.raises(UsageError, match="is not a number from 0 to 1000"):
        weights_of("carico", {"weights": {"Capacity": weight}})


def test_no_profile_and_no_order_are_refused() -> None:
    with pytest.raises(UsageError, match="is empty"):
        assemble(SchedulerSettings(profiles={}), ManualClock(), None)
    with pytest.raises(UsageError, match="queue sort"):
        assemble(SchedulerSettings(profiles={"x": {"plugins": ["Capacity"]}}), ManualClock(), None)


def test_a_plugin_of_another_package_is_found_by_its_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    class Entry:
        name, value = "Mine", "mine:make"

        @staticmethod
        def load() -> Any:
            class Mine:
                name = "Mine"
                interests = ()

            return lambda _: Mine()

    monkeypatch.setattr(registry, "entry_points", lambda group: [Entry()] if group == registry.GROUP else [])
    parts = assemble(SchedulerSettings(profiles={"carico": {"enable": ["Mine"]}}), ManualClock(), None)
    assert parts.profiles["carico"].plugins[-1].name == "Mine"
