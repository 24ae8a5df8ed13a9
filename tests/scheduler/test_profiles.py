"""Profiles from the settings file: what is chosen, and what is refused at the start."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scheduling import make_node, make_pod, make_report

from carico.config import load, setting
from carico.errors import UsageError
from carico.scheduler.assembly import assemble
from carico.scheduler.cache.template import PodInfo
from carico.scheduler.cycle.profile_settings import ProfileSettings, read_profiles
from carico.scheduler.cycle.profiles import Profile
from carico.scheduler.cycle.scheduling_cycle import decide
from carico.scheduler.plugins import registry
from carico.scheduler.plugins.capacity import Capacity
from carico.scheduler.plugins.priority_sort import PrioritySort
from carico.settings import SchedulerSettings
from carico.testing import ManualClock


def read(table: Any, profile: str = "carico") -> ProfileSettings:
    return read_profiles({profile: table}, SchedulerSettings())[profile]


def capacity_of(profile: Profile) -> Capacity:
    return next(plugin for plugin in profile.plugins if isinstance(plugin, Capacity))


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
        ({"plugins": "Capacity"}, "[scheduler.profiles.carico] plugins: 'Capacity' is not a list of texts"),
        ({"weights": 5}, "[scheduler.profiles.carico] weights: 5 is not a table"),
        ({"release": "soon"}, "[scheduler.profiles.carico] release: 'soon' is not one of handover, pending"),
        ({"args": {"Capacty": {}}}, "no plugin is called 'Capacty'; did you mean 'Capacity'"),
        ({"args": {"Capacity": {"treshold": 2}}}, "no setting is called 'treshold'; did you mean 'threshold'"),
        (
            {"args": {"Capacity": {"threshold": 0}}},
            "[scheduler.profiles.carico.args.Capacity] threshold: 0 is less than",
        ),
        ({"args": {"Capacity": 5}}, "[scheduler.profiles.carico.args.Capacity]: 5 is not a table"),
        ({"args": {"NodeName": {}}}, "plugin NodeName has no settings"),
        ({"args": {"Capacity": {}}, "disable": ["Capacity"]}, "the profile has no plugin Capacity; enable it, or"),
        ("nonsense", "[scheduler.profiles.carico]: 'nonsense' is not a table"),
    ],
)
def test_a_mistake_is_named(table: Any, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        read(table)


def test_all_mistakes_of_all_profiles_are_named_at_once() -> None:
    tables = {
        "one": {"weights": {"Capacity": -1}, "args": {"Capacity": {"on_stale": "guess", "threshold": "much"}}},
        "two": {"enable": ["Theirs"], "args": {"VolumeBinding": {"bind_timeout": "0s"}}},
    }
    with pytest.raises(UsageError) as caught:
        assemble(SchedulerSettings(profiles=tables), ManualClock(), None)
    assert str(caught.value).splitlines() == [
        "[scheduler.profiles.one] weights: weight -1 of Capacity is not a number from 0 to 1000",
        "[scheduler.profiles.one.args.Capacity] on_stale: 'guess' is not one of filter, requests, ignore",
        "[scheduler.profiles.one.args.Capacity] threshold: 'much' is not a number",
        "[scheduler.profiles.two] enable: no plugin is called 'Theirs'",
        "[scheduler.profiles.two.args.VolumeBinding] bind_timeout: '0s' is less than 1s",
    ]


@dataclasses.dataclass(frozen=True)
class Bounds:
    low: int = setting(1, "smallest, in W", least=0)
    high: int = setting(9, "largest, in W", least=0)

    def conflicts(self) -> Iterator[tuple[tuple[str, str], str]]:
        if self.low > self.high:
            yield ("low", "high"), f"low {self.low} is above high {self.high}"


def test_arguments_with_constraints_between_them_are_checked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    factory = registry.FactoryWithArgs(Bounds, lambda _tools, _args: PrioritySort())
    monkeypatch.setitem(registry.BUILT_IN, "Theirs", factory)
    assert read({"enable": ["Theirs"], "args": {"Theirs": {"low": 2}}}).args["Theirs"] == Bounds(2, 9)
    with pytest.raises(UsageError, match=re.escape("carico.args.Theirs] low: low 10 is above high 9")):
        read({"enable": ["Theirs"], "args": {"Theirs": {"low": 10}}})


@pytest.mark.parametrize("weight", [-1, 1e9, True, "5"])
def test_a_weight_is_a_number(weight: Any) -> None:
    with pytest.raises(UsageError, match="is not a number from 0 to 1000"):
        read({"weights": {"Capacity": weight}})


def test_arguments_of_a_plugin_differ_between_profiles_and_default_to_the_schedulers_settings(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(
        '[scheduler]\nthreshold = 2\non_stale = "requests"\n'
        "[scheduler.profiles.carico]\n"
        "[scheduler.profiles.careful.args.Capacity]\nthreshold = 3\nunmeasured_per_node = 4\n"
        '[scheduler.profiles.careful.args.VolumeBinding]\nbind_timeout = "30s"\n'
    )
    settings = load(SchedulerSettings, "scheduler", file=file, environ={}, flags={})
    parts = assemble(settings, ManualClock(), None)
    plain, careful = (capacity_of(parts.profiles[name]).args for name in ("carico", "careful"))
    assert (plain.threshold, plain.on_stale, plain.unmeasured_per_node) == (2, "requests", 1)
    assert (careful.threshold, careful.on_stale, careful.unmeasured_per_node) == (3, "requests", 4)
    assert read_profiles(settings.profiles, settings)["careful"].args["VolumeBinding"].bind_timeout == 30


def test_arguments_decide() -> None:
    clock = ManualClock()
    profiles = {"carico": {}, "careful": {"args": {"Capacity": {"threshold": 3}}}}
    parts = assemble(SchedulerSettings(profiles=profiles), clock, None)
    parts.cluster.node_changed(None, make_node("a"))
    parts.ledger.report(make_report("a", 2.0), clock.monotonic())
    rng = np.random.default_rng(1)
    assert decide(parts.profiles["careful"], parts.cluster, PodInfo(make_pod("p")), rng).node == ""
    assert decide(parts.profiles["carico"], parts.cluster, PodInfo(make_pod("q")), rng).node == "a"


def test_the_old_place_of_release_is_read_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert read({"release": "pending"}).args["Capacity"].release == "pending"
    assert "[scheduler.profiles.carico] release: this setting is called args.Capacity.release now" in caplog.text
    both = {"release": "pending", "args": {"Capacity": {"release": "handover"}}}
    assert read(both).args["Capacity"].release == "handover"
    assert read({"release": "pending", "disable": ["Capacity"]}).args.get("Capacity") is None


def test_the_report_keeps_its_arguments_unless_it_sets_others() -> None:
    assert read({"args": {"Capacity": {"threshold": 2}}}, "report").args["Capacity"].release == "pending"
    assert read({"args": {"Capacity": {"release": "handover"}}}, "report").args["Capacity"].release == "handover"
    assert read({"release": "handover"}, "report").args["Capacity"].release == "handover"
    assert read({"plugins": ["PrioritySort"]}, "report").args == {}


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
    mine = {"enable": ["Theirs"], "weights": {"Theirs": 100}}
    parts = assemble(SchedulerSettings(profiles={"carico": mine}), clock, None)
    for name in ("good", "better", "odd"):
        parts.cluster.node_changed(None, make_node(name))
        parts.ledger.report(make_report(name, 5.0), clock.monotonic())
    pod = PodInfo(make_pod("p"))
    assert decide(parts.profiles["carico"], parts.cluster, pod, np.random.default_rng(1)).node == "better"
    with pytest.raises(UsageError, match="no plugin is called 'Their'; did you mean 'Theirs'"):
        read({"enable": ["Their"]})
    other = mine | {"args": {"Theirs": {"best": "good"}}}
    parts = assemble(SchedulerSettings(profiles={"carico": other}, on_stale="ignore"), clock, None)
    for name in ("good", "better"):
        parts.cluster.node_changed(None, make_node(name))
        parts.ledger.report(make_report(name, 5.0), clock.monotonic())
    assert decide(parts.profiles["carico"], parts.cluster, pod, np.random.default_rng(1)).node == "good"
    with pytest.raises(UsageError, match="no setting is called 'bst'; did you mean 'best'"):
        read({"enable": ["Theirs"], "args": {"Theirs": {"bst": ""}}})


THEIR_PLUGIN = """
import dataclasses
import numpy as np
from carico.config import setting
from carico.scheduler.framework.contract import Reuse, Verdict
from carico.scheduler.plugins.registry import FactoryWithArgs

@dataclasses.dataclass(frozen=True)
class TheirArgs:
    best: str = setting("better", "name of the best node")

class Theirs:
    name, reuse, interests = "Theirs", Reuse.NODE, ()

    def __init__(self, args):
        self.args = args

    def names(self, cycle, rows):
        return [cycle.snapshot.name(int(row)) for row in (cycle.snapshot.all_rows() if rows is None else rows)]

    def filter(self, cycle, rows):
        return Verdict.refuse(np.array([name == "odd" for name in self.names(cycle, rows)]), "odd name")

    def score(self, cycle, rows):
        return np.array([100.0 if name == self.args.best else 0.0 for name in self.names(cycle, rows)])

make = FactoryWithArgs(TheirArgs, lambda tools, args: Theirs(args))
"""
