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

import msgspec

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
    "hold": "warmup",
    "lease_namespace": "leader_elect_resource_namespace",
    "lease_name": "leader_elect_resource_name",
    "lease_duration": "leader_elect_lease_duration",
    "lease_renew": "leader_elect_renew_deadline",
    "lease_retry": "leader_elect_retry_period",
}

SWITCH = {"true": True, "yes": True, "1": True, "on": True, "false": False, "no": False, "0": False, "off": False}
TREE = dict[str, Any]  # a table of tables, whose content its user validates
WRONG_TYPE = {
    bool: "is neither true nor false",
    int: "is not a whole number",
    float: "is not a number",
    tuple: "is not a list of texts",
    dict: "is not of the form name=number,name=number",
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
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        if raw == "":
            return None
        kind = typing.get_args(kind)[0]
    basic = typing.get_origin(kind) or kind
    if isinstance(raw, str):
        raw = _from_text(field, kind, raw)
    try:
        value = msgspec.convert(raw, kind, strict=False, dec_hook=lambda wanted, text: wanted(text))
    except (msgspec.ValidationError, RecursionError):
        raise ValueError("is not a table" if kind == TREE else WRONG_TYPE.get(basic, "is not text")) from None
    if not all(abs(number) < math.inf for number in _numbers(value)):  # nan is not less either
        raise ValueError("is not finite")
    return value


def _from_text(field: dataclasses.Field[Any], kind: Any, text: str) -> Any:
    """The notation of environment and flags: lists and tables with commas, trees in JSON, durations."""
    if typing.get_origin(kind) is tuple:
        return [item.strip() for item in text.split(",") if item]
    if kind == TREE:
        try:
            return json.loads(text)
        except (json.JSONDecodeError, RecursionError):
            raise ValueError("is not JSON") from None
    if typing.get_origin(kind) is dict:
        pairs = [item.partition("=") for item in text.split(",") if item]
        return {name.strip(): value.strip() for name, _, value in pairs}
    if kind is bool:
        return parsed_bool(text)
    if is_duration(field):
        return durations.parse(text)
    return text.strip() if kind in (int, float) else text


def parsed_bool(text: str) -> bool:
    if text.lower() not in SWITCH:
        raise ValueError(WRONG_TYPE[bool])
    return SWITCH[text.lower()]


def _numbers(value: Any) -> list[float]:
    """Those that bounds apply to."""
    return [one for one in (value.values() if isinstance(value, dict) else (value,)) if isinstance(one, (int, float))]


def _checked(field: dataclasses.Field[Any], value: Any) -> Any:
    least, most, choices = (field.metadata[name] for name in ("least", "most", "choices"))
    if field.metadata["refused"]:
        raise ValueError(f"has no meaning here: {field.metadata['refused']}")
    if choices:
        for one in value if isinstance(value, (tuple, dict)) else (value,):
            if one not in choices:
                raise ValueError(f"is not one of {', '.join(choices)}{nearest(str(one), choices)}")
    shown = durations.show if is_duration(field) else "{:g}".format
    for number in _numbers(value):
        if least is not None and number < least:
            raise ValueError(f"is less than {shown(least)}")
        if most is not None and number > most:
            raise ValueError(f"is more than {shown(most)}")
    return value
