"""Profiles from the settings file: what is chosen, and what is refused at the start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from carico.config import load
from carico.errors import UsageError
from carico.scheduler.assembly import assemble
from carico.scheduler.cache.template import PodInfo
from carico.scheduler.cycle.profiles import chosen, weights_of
from carico.scheduler.cycle.scheduling_cycle import decide
from carico.scheduler.plugins import registry
from carico.settings import SchedulerSettings
from carico.testing import ManualClock, make_node, make_pod, make_report


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


def test_a_plugin_of_another_package_is_found_by_its_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package as pip would leave it: a module, and a .dist-info that names the entry point."""
    (tmp_path / "their_plugin.py").write_text(THEIR_PLUGIN)
    info = tmp_path / "their_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{registry.GROUP}]\nTheirs = their_plugin:make\n")
    monkeypatch.syspath_prepend(tmp_path)
    clock = ManualClock()
    settings = SchedulerSettings(profiles={"carico": {"enable": ["Theirs"], "weights": {"Theirs": 100}}})
    parts = assemble(settings, clock, None)
    for name in ("good", "better", "odd"):
        parts.cluster.node_changed(None, make_node(name))
        parts.ledger.report(make_report(name, 5.0), clock.monotonic())
    pod = PodInfo(make_pod("p"))
    assert decide(parts.profiles["carico"], parts.cluster, pod, np.random.default_rng(1)).node == "better"
    with pytest.raises(UsageError, match="no plugin is called 'Their'; did you mean 'Theirs'"):
        names("carico", {"enable": ["Their"]})


THEIR_PLUGIN = """
import numpy as np
from carico.scheduler.framework.contract import Reuse, Verdict

class Theirs:
    name, reuse, interests = "Theirs", Reuse.NODE, ()

    def names(self, cycle, rows):
        return [cycle.snapshot.name(int(row)) for row in (cycle.snapshot.all_rows() if rows is None else rows)]

    def filter(self, cycle, rows):
        return Verdict.refuse(np.array([name == "odd" for name in self.names(cycle, rows)]), "odd name")

    def score(self, cycle, rows):
        return np.array([100.0 if name == "better" else 0.0 for name in self.names(cycle, rows)])

def make(tools):
    return Theirs()
"""
