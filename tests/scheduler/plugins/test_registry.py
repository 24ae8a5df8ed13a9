"""Plugins by name, and plugins of other packages."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from carico.config import validated
from carico.errors import UsageError
from carico.scheduler.cache.rows import RowArray, RowIndex
from carico.scheduler.cache.snapshot import Snapshot
from carico.scheduler.framework.cluster_events import EventInterest
from carico.scheduler.framework.contract import Cycle, Reuse, Verdict
from carico.scheduler.plugins import registry
from carico.testing import ManualClock, make_node, make_pod
from harness.scheduler.worlds import NAMES, World


class OnlyEvenNames:
    """A filter of another package."""

    name = "OnlyEvenNames"
    reuse = Reuse.NODE
    interests: tuple[EventInterest, ...] = ()

    def filter(self, cycle: Cycle, rows: RowArray | None) -> Verdict:
        asked = cycle.snapshot.all_rows() if rows is None else rows
        odd = np.array([int(cycle.snapshot.name(int(row)) or 0) % 2 == 1 for row in asked], dtype=np.bool_)
        return Verdict.refuse(odd, "odd name")


def make(_: registry.PluginTools) -> OnlyEvenNames:
    return OnlyEvenNames()


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Entry:
        name = "OnlyEvenNames"

        def load(self) -> Any:
            return make

    def entry_points(group: str) -> list[Any]:
        assert group == "carico.scheduler.plugins"
        return [Entry()]

    monkeypatch.setattr(registry, "entry_points", entry_points)


@pytest.mark.usefixtures("installed")
def test_a_plugin_of_another_package() -> None:
    world = World([make_node("1"), make_node("2")], names=[*NAMES, "OnlyEvenNames"])
    assert world.feasible(make_pod("p")) == {"2"}
    world.snapshot.set_node(make_node("4"))
    assert world.feasible(make_pod("q")) == {"2", "4"}


def test_an_unknown_name_is_an_error_that_lists_the_known() -> None:
    with pytest.raises(UsageError, match=r"no plugin is called 'Mine'; there are .*NodePorts"):
        registry.make(["Mine"], registry.PluginTools(Snapshot(RowIndex()), ManualClock()))
    with pytest.raises(UsageError, match="no plugin is called 'Nodeports'; did you mean 'NodePorts'"):
        registry.make(["Nodeports"], registry.PluginTools(Snapshot(RowIndex()), ManualClock()))


def test_arguments_are_a_dataclass_of_settings() -> None:
    @dataclasses.dataclass(frozen=True)
    class Bare:
        limit: int = 5

    for args in (Bare, str):
        with pytest.raises(TypeError, match=r"is not a dataclass whose fields are made by carico\.config\.setting"):
            registry.FactoryWithArgs(args, lambda _tools, _args: OnlyEvenNames())


def test_every_argument_of_a_plugin_has_a_default_within_its_bounds() -> None:
    for factory in registry.BUILT_IN.values():
        if isinstance(factory, registry.FactoryWithArgs):
            given = {name: (value, name) for name, value in dataclasses.asdict(factory.args()).items()}
            problems: list[str] = []
            assert validated(factory.args, given, problems) == factory.args()
            assert problems == []


def test_names_are_the_plugins_own() -> None:
    tools = registry.PluginTools(Snapshot(RowIndex()), ManualClock())
    assert [plugin.name for plugin in registry.make(NAMES, tools)] == NAMES
    assert set(registry.WEIGHTS) <= set(registry.DEFAULT)
