"""Reads and validates the values of settings; settings.py defines the settings.

A process reads one section of a TOML file, then the environment, then its flags; the last one takes precedence:

    [agent]                      CARICO_AGENT__RATE_HZ=5          --rate-hz 5
    rate_hz = 10

The file is the one named by --config, else by $CARICO_CONFIG, else /etc/carico/carico.toml if that exists. Everything
is validated once, at the start, and all errors are reported together.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import logging
import math
import tomllib
import types
import typing
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from carico import durations
from carico.errors import UsageError

log = logging.getLogger(__name__)

S = TypeVar("S")


@typing.runtime_checkable
class Related(typing.Protocol):
    """Settings with constraints between them."""

    def conflicts(self) -> Iterable[tuple[Collection[str], str]]:
        """For each violated constraint, the names of the settings and the error."""


SECTIONS = ("agent", "aggregator", "scheduler")
DEFAULT_FILE = Path("/etc/carico/carico.toml")
FILE_VARIABLE = "CARICO_CONFIG"
SIMILAR = 0.7  # difflib cutoff: less similar names are not useful as a hint

# Renamed settings: old → new. The old name is still read, with a warning.
RENAMED = {
    "lease_namespace": "leader_elect_resource_namespace",
    "lease_name": "leader_elect_resource_name",
    "lease_duration": "leader_elect_lease_duration",
    "lease_renew": "leader_elect_renew_deadline",
    "lease_retry": "leader_elect_retry_period",
}

Found = dict[str, tuple[Any, str]]  # setting → its raw value, and where that is set


def setting(
    default: Any,
    about: str,
    *,
    least: float | None = None,
    most: float | None = None,
    choices: tuple[str, ...] = (),
    metavar: str = "",
    common: bool = False,
    refused: str = "",
) -> Any:
    """A field of a settings class.

    `about` has unit and reason and is the flag's help as well; `metavar` is the kind of value, where the type does not
    show it; `common` ones are shown by --help, the others by --help-all. `refused` is the reason why a setting of a
    base class cannot be set here, and what to set instead; help leaves it out.
    """
    metadata = {
        "about": about,
        "least": least,
        "most": most,
        "choices": choices,
        "metavar": metavar,
        "common": common,
        "refused": refused,
        "default": default,
    }
    if isinstance(default, dict):
        return dataclasses.field(default_factory=default.copy, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def duration(
    default: float, about: str, *, least: float | None = None, most: float | None = None, common: bool = False
) -> Any:
    """A field in seconds, written as `30s`, `5m` or a bare number."""
    return setting(default, about, least=least, most=most, metavar="DURATION", common=common)


def is_duration(field: dataclasses.Field[Any]) -> bool:
    return bool(field.metadata["metavar"] == "DURATION")


def find_file(named: Path | None, environ: Mapping[str, str]) -> Path | None:
    """The settings file; one that is named by flag or environment must exist."""
    if named is not None:
        return named
    if variable := environ.get(FILE_VARIABLE):
        return Path(variable)
    return DEFAULT_FILE if DEFAULT_FILE.exists() else None


def load(cls: type[S], section: str, *, file: Path | None, environ: Mapping[str, str], flags: Mapping[str, Any]) -> S:
    """Settings of class `cls` from all three places; raises one UsageError that lists all errors."""
    problems: list[str] = []
    given = {name: (value, f"--{name.replace('_', '-')}") for name, value in flags.items() if value is not None}
    places = (_from_file(section, file), _from_environment(section, environ), given)
    found: Found = {}
    for place in places:
        found |= _with_new_names(place)
    made = validated(cls, found, problems)
    if problems:
        raise UsageError("\n".join(problems))
    return made


def validated(cls: type[S], found: Found, problems: list[str], inherited: Mapping[str, Any] | None = None) -> S:
    """Settings of class `cls` from raw values; appends what is wrong to `problems`, and then has a default there.

    `inherited`: values that take the place of defaults.
    """
    fields = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    kinds = typing.get_type_hints(cls)
    values: dict[str, Any] = {}
    for name, (raw, where) in found.items():
        if name not in fields:
            problems.append(f"{where}: no setting is called {name!r}{nearest(name, fields)}")
            continue
        try:
            values[name] = _checked(fields[name], _parsed(fields[name], kinds[name], raw))
        except ValueError as error:
            problems.append(f"{where}: {raw!r} {error}")
    made = cls(**{**(inherited or {}), **values})
    if isinstance(made, Related):
        wrong = found.keys() - values.keys()
        for related, text in made.conflicts():
            if wrong.isdisjoint(related):
                where = next((found[name][1] for name in related if name in found), cls.__name__)
                problems.append(f"{where}: {text}")
    return made


def _with_new_names(place: Found) -> Found:
    """Old names replaced by new ones; if both are given the new one takes precedence."""
    renamed: Found = {}
    for name, (value, where) in place.items():
        if name in RENAMED:
            log.warning("%s: this setting is called %s now; the old name will go", where, RENAMED[name])
            renamed[RENAMED[name]] = (value, where)
    return renamed | {name: found for name, found in place.items() if name not in RENAMED}


def _from_file(section: str, file: Path | None) -> Found:
    if file is None:
        return {}
    try:
        table = tomllib.loads(file.read_text())
    except OSError as error:
        raise UsageError(f"{file}: cannot be read ({error.strerror}); check --config and ${FILE_VARIABLE}") from error
    except ValueError as error:  # not TOML, or not even UTF-8
        raise UsageError(f"{file}: is not TOML: {error}") from error
    unknown = [name for name in table if name not in SECTIONS]
    if unknown:
        raise UsageError(f"{file}: no section is called [{unknown[0]}]{nearest(unknown[0], SECTIONS)}")
    mine = table.get(section, {})
    if not isinstance(mine, dict):
        raise UsageError(f"{file}: {section} is {mine!r}, not a section; write [{section}] on a line of its own")
    return {name: (value, f"{file} [{section}] {name}") for name, value in mine.items()}


def _from_environment(section: str, environ: Mapping[str, str]) -> Found:
    prefix = f"CARICO_{section.upper()}__"
    return {key[len(prefix) :].lower(): (value, key) for key, value in environ.items() if key.startswith(prefix)}


def nearest(name: str, known: Iterable[str]) -> str:
    """
    >>> nearest("rate_hertz", ["rate_hz", "batch"]), nearest("bogus", ["joblog"])
    ("; did you mean 'rate_hz'?", '')
    """
    near = difflib.get_close_matches(name, known, n=1, cutoff=SIMILAR)
    return f"; did you mean {near[0]!r}?" if near else ""


def _parsed(field: dataclasses.Field[Any], kind: Any, raw: Any) -> Any:
    """`raw` as the setting's type; environment and flags are text, TOML has types."""
    origin = typing.get_origin(kind)
    if origin in (types.UnionType, typing.Union):
        rest = [k for k in typing.get_args(kind) if k is not type(None)]
        return None if raw == "" else _parsed(field, rest[0], raw)
    if origin is tuple:
        items = [item for item in raw.split(",") if item] if isinstance(raw, str) else raw
        if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
            raise ValueError("is not a list of texts")
        return tuple(item.strip() for item in items)
    if origin is dict and typing.get_args(kind)[1] is Any:
        return _parsed_tree(raw)
    if origin is dict:
        return _parsed_table(raw)
    if kind is bool:
        return parsed_bool(raw)
    if kind in (int, float):
        if isinstance(raw, str) and is_duration(field):
            raw = durations.parse(raw)
        return _parsed_number(kind, raw)
    if not isinstance(raw, str):
        raise ValueError("is not text")
    return kind(raw)


def _parsed_table(raw: Any) -> dict[str, float]:
    """`{ cpu = 0.9 }` in TOML, `cpu=0.9,memory=0.95` elsewhere."""
    if isinstance(raw, str):
        pairs = [pair.partition("=") for pair in raw.split(",") if pair]
        raw = {name.strip(): value for name, _, value in pairs}
    if not isinstance(raw, dict):
        raise ValueError("is not of the form name=number,name=number")
    return {name: _parsed_number(float, value) for name, value in raw.items()}


def _parsed_tree(raw: Any) -> dict[str, Any]:
    """A table of tables, whose content its user validates; JSON in the environment and in flags."""
    try:
        tree = json.loads(raw) if isinstance(raw, str) else raw
    except (json.JSONDecodeError, RecursionError):
        raise ValueError("is not JSON") from None
    if not isinstance(tree, dict):
        raise ValueError("is not a table")
    return tree


def parsed_bool(raw: Any) -> bool:
    texts = {"true": True, "yes": True, "1": True, "on": True, "false": False, "no": False, "0": False, "off": False}
    if isinstance(raw, bool):
        return raw
    if str(raw).lower() not in texts:
        raise ValueError("is neither true nor false")
    return texts[str(raw).lower()]


def _parsed_number(kind: Any, raw: Any) -> Any:
    if isinstance(raw, bool) or not isinstance(raw, (int, float, str)):
        raise ValueError("is not a number")
    try:
        value = kind(raw)
    except (ValueError, OverflowError):
        raise ValueError("is not a whole number" if kind is int else "is not a number") from None
    if not math.isfinite(value) or (kind is int and isinstance(raw, float) and raw != value):
        raise ValueError("is not a whole number" if kind is int else "is not finite")
    return value


def _checked(field: dataclasses.Field[Any], value: Any) -> Any:
    least, most, choices = (field.metadata[name] for name in ("least", "most", "choices"))
    if field.metadata["refused"]:
        raise ValueError(f"has no meaning here: {field.metadata['refused']}")
    if choices:
        for one in value if isinstance(value, (tuple, dict)) else (value,):
            if one not in choices:
                raise ValueError(f"is not one of {', '.join(choices)}{nearest(str(one), choices)}")
    shown = durations.show if is_duration(field) else "{:g}".format
    for number in value.values() if isinstance(value, dict) else (value,):
        if isinstance(number, (int, float)) and least is not None and number < least:
            raise ValueError(f"is less than {shown(least)}")
        if isinstance(number, (int, float)) and most is not None and number > most:
            raise ValueError(f"is more than {shown(most)}")
    return value
