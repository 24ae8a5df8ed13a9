"""What every built-in plugin promises to the framework: it inherits the protocols of its hooks."""

from __future__ import annotations

from typing import Any

import pytest

from carico.scheduler.assembly import assemble
from carico.scheduler.framework import contract
from carico.scheduler.framework.contract import (
    EXTENSION_POINTS,
    OK,
    CostlyFilter,
    Cycle,
    Filter,
    Plugin,
    PreFilter,
    Reuse,
    Status,
    Supply,
)
from carico.scheduler.framework.filtering import FilterRunner
from carico.scheduler.plugins import registry
from carico.settings import SchedulerSettings
from carico.testing import ManualClock

# Public attributes that are not hooks, because others than the framework use them.
HELPERS = {
    "Capacity": {"args", "charge", "classes"},
    "VolumeBinding": {"args"},
}


def built_in() -> list[Plugin]:
    return assemble(SchedulerSettings(), ManualClock(), None).profiles["carico"].plugins


def hooks_of(point: type[Any]) -> set[str]:
    """The members of a protocol, and of those that it extends."""
    names = {name for base in point.__mro__ for name in (*vars(base), *vars(base).get("__annotations__", {}))}
    return {name for name in names if not name.startswith("_")}


def test_the_default_profile_has_every_plugin() -> None:
    assert [plugin.name for plugin in built_in()] == list(registry.BUILT_IN)


@pytest.mark.parametrize("plugin", built_in(), ids=lambda plugin: plugin.name)
def test_a_plugin_inherits_the_protocols_that_it_implements(plugin: Plugin) -> None:
    implemented = {point for point in EXTENSION_POINTS if isinstance(plugin, point)}
    assert implemented == set(EXTENSION_POINTS) & set(type(plugin).__mro__)
    assert implemented


@pytest.mark.parametrize("plugin", built_in(), ids=lambda plugin: plugin.name)
def test_what_a_plugin_has_in_public_is_a_hook_or_a_known_helper(plugin: Plugin) -> None:
    """Otherwise it may be a misspelt hook, which is never called."""
    hooks = {name for point in EXTENSION_POINTS if isinstance(plugin, point) for name in hooks_of(point)}
    public = {name for name in dir(plugin) if not name.startswith("_")}
    assert public - hooks == HELPERS.get(plugin.name, set())


def test_every_protocol_of_the_contract_is_listed() -> None:
    classes = (one for one in vars(contract).values() if isinstance(one, type))
    protocols = {one for one in classes if Plugin in one.__mro__ and one is not Plugin}
    assert protocols == set(EXTENSION_POINTS)


def test_a_plugin_with_a_misspelt_hook_cannot_be_made() -> None:
    class Misspelt(PreFilter):
        name, interests = "Misspelt", ()

        def prefilter(self, _: Cycle) -> Status:
            return OK

    with pytest.raises(TypeError, match=r"abstract method '?pre_filter"):
        Misspelt()  # type: ignore[abstract]


def test_a_plugin_that_inherits_nothing_is_taken_by_its_methods() -> None:
    class Theirs:
        name, interests, reuse, costly = "Theirs", (), Reuse.NEVER, True

        def filter(self, cycle: Cycle, rows: Any) -> Any: ...

    theirs = Theirs()
    assert isinstance(theirs, Filter)
    assert isinstance(theirs, CostlyFilter)
    assert not isinstance(theirs, Supply)
    assert FilterRunner([theirs]).costly == {"Theirs"}
