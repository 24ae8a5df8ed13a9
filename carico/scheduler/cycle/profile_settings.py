"""Profiles in the settings file: which plugins, with which weights and arguments; everything wrong is named at once.

    [scheduler.profiles.carico]            every default plugin
    [scheduler.profiles.lean]
    disable = ["ImageLocality"]            without one of them …
    enable = ["MyPlugin"]                  … and with one of another package
    weights = { Capacity = 10 }
    [scheduler.profiles.lean.args.Capacity]
    threshold = 1.5                        settings of a plugin, for this profile
    [scheduler.profiles.report]
    plugins = ["PrioritySort", "Capacity"]
    [scheduler.profiles.report.args.Capacity]
    release = "pending"

The settings of `report` are built in: a profile of that name has them unless it sets others.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from carico.config import Found, nearest, validated
from carico.errors import UsageError
from carico.scheduler.plugins.registry import DEFAULT, NO_FACTORIES, Factory, FactoryWithArgs, known

log = logging.getLogger(__name__)

KEYS = ("plugins", "enable", "disable", "weights", "args")
REPORT: dict[str, Any] = {"plugins": ["PrioritySort", "Capacity"], "args": {"Capacity": {"release": "pending"}}}
MOST_WEIGHT = 1000


@dataclass(frozen=True)
class ProfileSettings:
    plugins: tuple[str, ...]  # in order
    weights: dict[str, float] = field(default_factory=dict)  # other than the plugins' own
    args: dict[str, Any] = field(default_factory=dict)  # by plugin: instances of FactoryWithArgs.args


def read_profiles(
    tables: Mapping[str, Any], process: object = None, extra: Mapping[str, Factory] = NO_FACTORIES
) -> dict[str, ProfileSettings]:
    """Validates all profiles; `process` has the settings that arguments of plugins may take their defaults from."""
    problems: list[str] = []
    if not tables:
        problems.append(
            "[scheduler.profiles] is empty: name at least one schedulerName, e.g. [scheduler.profiles.carico]"
        )
    factories = known() | dict(extra)
    read = {name: _Reader(name, table, factories, process, problems).read() for name, table in tables.items()}
    if problems:
        raise UsageError("\n".join(problems))
    return read


class _Reader:
    """Reads one profile, and appends what is wrong with it to `problems`."""

    def __init__(
        self, profile: str, table: Any, factories: Mapping[str, Factory], process: object, problems: list[str]
    ) -> None:
        self._where, self._problems = f"scheduler.profiles.{profile}", problems
        self._factories, self._process = factories, process
        self._built_in = REPORT if profile == "report" else {}
        self._table: dict[str, Any] = table if isinstance(table, dict) else {}
        if not isinstance(table, dict):
            self._wrong(f"[{self._where}]: {table!r} is not a table")

    def read(self) -> ProfileSettings:
        for key in self._table:
            if key not in (*KEYS, "release"):
                self._wrong(f"[{self._where}] {key}: no setting is called {key!r}{nearest(key, KEYS)}")
        chosen = self._names("plugins", self._built_in.get("plugins", DEFAULT))
        disabled = self._names("disable")
        chosen += [name for name in self._names("enable") if name not in chosen]
        plugins = tuple(name for name in chosen if name not in disabled)
        return ProfileSettings(plugins, self._weights(), self._args(plugins))

    def _names(self, key: str, default: Any = ()) -> list[str]:
        names = self._table.get(key, list(default))
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            self._wrong(f"[{self._where}] {key}: {names!r} is not a list of texts")
            return []
        return [name for name in names if self._is_known(name, f"[{self._where}] {key}")]

    def _weights(self) -> dict[str, float]:
        weights: dict[str, float] = {}
        for name, weight in self._named_table("weights").items():
            where = f"[{self._where}] weights"
            if not self._is_known(name, where):
                continue
            if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight <= MOST_WEIGHT:
                self._wrong(f"{where}: weight {weight!r} of {name} is not a number from 0 to {MOST_WEIGHT}")
                continue
            weights[name] = float(weight)
        return weights

    def _args(self, plugins: tuple[str, ...]) -> dict[str, Any]:
        """The arguments of every plugin that has settings."""
        given: dict[str, Found] = {}
        for name, table in self._named_table("args").items():
            where = f"[{self._where}.args.{name}]"
            if not self._is_known(name, where):
                continue
            if not isinstance(table, dict):
                self._wrong(f"{where}: {table!r} is not a table")
            elif not isinstance(self._factories[name], FactoryWithArgs):
                self._wrong(f"{where}: plugin {name} has no settings; remove the table")
            elif name not in plugins:
                self._wrong(f"{where}: the profile has no plugin {name}; enable it, or remove the table")
            else:
                given[name] = {key: (value, f"{where} {key}") for key, value in table.items()}
        self._old_release(given)
        return {
            name: self._made(factory, self._of_built_in(name) | given.get(name, {}))
            for name in plugins
            if isinstance(factory := self._factories[name], FactoryWithArgs)
        }

    def _made(self, factory: FactoryWithArgs[Any], found: Found) -> Any:
        inherited = {name: getattr(self._process, name) for name in factory.inherited(type(self._process))}
        return validated(factory.args, found, self._problems, inherited)

    def _of_built_in(self, plugin: str) -> Found:
        table = self._built_in.get("args", {}).get(plugin, {})
        return {key: (value, f"[{self._where}.args.{plugin}] {key}") for key, value in table.items()}

    def _old_release(self, given: dict[str, Found]) -> None:
        """`release` was a setting of the profile before plugins had arguments."""
        if "release" in self._table:
            where = f"[{self._where}] release"
            log.warning("%s: this setting is called args.Capacity.release now; the old name will go", where)
            given["Capacity"] = {"release": (self._table["release"], where)} | given.get("Capacity", {})

    def _named_table(self, key: str) -> dict[str, Any]:
        table = self._table.get(key, {})
        if not isinstance(table, dict):
            self._wrong(f"[{self._where}] {key}: {table!r} is not a table")
            return {}
        return table

    def _is_known(self, plugin: str, where: str) -> bool:
        if plugin not in self._factories:
            self._wrong(f"{where}: no plugin is called {plugin!r}{nearest(plugin, self._factories)}")
        return plugin in self._factories

    def _wrong(self, problem: str) -> None:
        self._problems.append(problem)
