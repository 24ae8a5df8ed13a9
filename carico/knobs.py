"""How the value of a setting is found and checked; the settings themselves stand in settings.py.

A process reads one section of a TOML file, then the environment, then its flags; the later one wins:

    [agent]                      CARICO_AGENT__RATE_HZ=5          --rate-hz 5
    rate_hz = 10

Everything is checked once, at the start, and all that is wrong is said at once.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import json
import math
import os
import tomllib
import types
import typing
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from carico.errors import UsageError

S = TypeVar("S")


@typing.runtime_checkable
class Related(typing.Protocol):
    """Settings of which some must fit others."""

    def conflicts(self) -> Iterable[tuple[Collection[str], str]]:
        """The names of those that do not, and what is wrong."""


SECTIONS = ("agent", "aggregator", "scheduler")


def knob(
    default: Any, about: str, *, least: float | None = None, most: float | None = None, choices: tuple[str, ...] = ()
) -> Any:
    """A field of a settings class. `about` gives unit and reason and is the flag's help as well."""
    metadata = {"about": about, "least": least, "most": most, "choices": choices, "default": default}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=default.copy, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def load(cls: type[S], section: str, *, file: Path | None, environ: Mapping[str, str], flags: Mapping[str, Any]) -> S:
    """Settings of class `cls` from all three places, or one UsageError that lists everything that is wrong."""
    problems: list[str] = []
    found = _from_file(section, file) | _from_environment(section, environ)
    found |= {name: (value, f"--{name.replace('_', '-')}") for name, value in flags.items() if value is not None}
    knobs = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    kinds = typing.get_type_hints(cls)
    values: dict[str, Any] = {}
    for name, (raw, where) in found.items():
        if name not in knobs:
            problems.append(f"{where}: no setting is called {name!r}{_nearest(name, knobs)}")
            continue
        try:
            values[name] = _checked(knobs[name], _parsed(kinds[name], raw))
        except ValueError as error:
            problems.append(f"{where}: {raw!r} {error}")
    made = cls(**values)
    if isinstance(made, Related):
        wrong = found.keys() - values.keys()
        for related, text in made.conflicts():
            if wrong.isdisjoint(related):
                problems.append(f"{next(found[name][1] for name in related if name in found)}: {text}")
    if problems:
        raise UsageError("\n".join(problems))
    return made


def add_flags(parser: argparse.ArgumentParser, cls: type[Any], only: Collection[str] | None = None) -> None:
    """One flag per knob, or per knob in `only`; absent ones stay None so that file and environment show through."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML file with the settings")
    kinds = typing.get_type_hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls)}
    for part, its_names in _groups(cls, names(cls) if only is None else only):
        group = parser.add_argument_group((part.__doc__ or "").strip("."))
        for name in its_names:
            _add_flag(group, fields[name], kinds[name])


def _groups(cls: type[Any], wanted: Collection[str]) -> Iterable[tuple[type[Any], list[str]]]:
    """The knobs under the class that brought them; one that only changes a default does not bring it."""
    own = [(part, list(vars(part).get("__annotations__", {}))) for part in cls.__mro__[:-1]]
    for i, (part, its_names) in enumerate(own):
        inherited = {name for _, others in own[i + 1 :] for name in others}
        yield part, [name for name in its_names if name in wanted and name not in inherited]


def _add_flag(group: Any, field: dataclasses.Field[Any], kind: Any) -> None:
    flag = f"--{field.name.replace('_', '-')}"
    about = f"{field.metadata['about']} (default: {_shown(field.metadata['default'])})".replace("%", "%%")
    if kind is bool:
        group.add_argument(flag, action=argparse.BooleanOptionalAction, default=None, help=about)
    else:
        group.add_argument(flag, default=None, metavar=_metavar(field, kind), help=about)


def names(*classes: type[Any]) -> set[str]:
    """The knobs of some settings classes."""
    return {field.name for cls in classes for field in dataclasses.fields(cls)}


def from_flags(cls: type[S], section: str, args: argparse.Namespace) -> S:
    """What a command does with the flags that `add_flags` made."""
    flags = {name: getattr(args, name) for name in names(cls) if hasattr(args, name)}
    return load(cls, section, file=args.config, environ=os.environ, flags=flags)


def _from_file(section: str, file: Path | None) -> dict[str, tuple[Any, str]]:
    if file is None:
        return {}
    try:
        table = tomllib.loads(file.read_text())
    except OSError as error:
        raise UsageError(f"{file}: cannot be read ({error.strerror}); check --config") from error
    except ValueError as error:  # not TOML, or not even UTF-8
        raise UsageError(f"{file}: is not TOML: {error}") from error
    unknown = [name for name in table if name not in SECTIONS]
    if unknown:
        raise UsageError(f"{file}: no section is called [{unknown[0]}]{_nearest(unknown[0], SECTIONS)}")
    mine = table.get(section, {})
    if not isinstance(mine, dict):
        raise UsageError(f"{file}: {section} is {mine!r}, not a section; write [{section}] on a line of its own")
    return {name: (value, f"{file} [{section}] {name}") for name, value in mine.items()}


def _from_environment(section: str, environ: Mapping[str, str]) -> dict[str, tuple[Any, str]]:
    prefix = f"CARICO_{section.upper()}__"
    return {key[len(prefix) :].lower(): (value, key) for key, value in environ.items() if key.startswith(prefix)}


def _nearest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _parsed(kind: Any, raw: Any) -> Any:
    """`raw` as the knob's type; text comes from environment and flags, TOML brings its own types."""
    origin = typing.get_origin(kind)
    if origin in (types.UnionType, typing.Union):
        rest = [k for k in typing.get_args(kind) if k is not type(None)]
        return None if raw == "" else _parsed(rest[0], raw)
    if origin is tuple:
        items = [word for word in raw.split(",") if word] if isinstance(raw, str) else raw
        if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
            raise ValueError("is not a list of words")
        return tuple(item.strip() for item in items)
    if origin is dict and typing.get_args(kind)[1] is Any:
        return _parsed_tree(raw)
    if origin is dict:
        return _parsed_table(raw)
    if kind is bool:
        return _parsed_bool(raw)
    if kind in (int, float):
        return _parsed_number(kind, raw)
    if not isinstance(raw, str):
        raise ValueError("is not text")
    return kind(raw)


def _parsed_table(raw: Any) -> dict[str, float]:
    """`{ cpu = 0.9 }` in TOML, `cpu=0.9,memory=0.95` elsewhere."""
    if isinstance(raw, str):
        pairs = [word.partition("=") for word in raw.split(",") if word]
        raw = {name.strip(): value for name, _, value in pairs}
    if not isinstance(raw, dict):
        raise ValueError("is not of the form name=number,name=number")
    return {name: _parsed_number(float, value) for name, value in raw.items()}


def _parsed_tree(raw: Any) -> dict[str, Any]:
    """A table of tables, whose meaning its reader checks; JSON in the environment and in flags."""
    try:
        tree = json.loads(raw) if isinstance(raw, str) else raw
    except json.JSONDecodeError:
        raise ValueError("is not JSON") from None
    if not isinstance(tree, dict):
        raise ValueError("is not a table")
    return tree


def _parsed_bool(raw: Any) -> bool:
    words = {"true": True, "yes": True, "1": True, "on": True, "false": False, "no": False, "0": False, "off": False}
    if isinstance(raw, bool):
        return raw
    if str(raw).lower() not in words:
        raise ValueError("is neither true nor false")
    return words[str(raw).lower()]


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
    if choices:
        for word in value if isinstance(value, (tuple, dict)) else (value,):
            if word not in choices:
                raise ValueError(f"is not one of {', '.join(choices)}{_nearest(str(word), choices)}")
    for number in value.values() if isinstance(value, dict) else (value,):
        if isinstance(number, (int, float)) and least is not None and number < least:
            raise ValueError(f"is less than {least:g}")
        if isinstance(number, (int, float)) and most is not None and number > most:
            raise ValueError(f"is more than {most:g}")
    return value


def _shown(default: Any) -> str:
    if isinstance(default, tuple):
        return ",".join(default) or "none"
    if isinstance(default, Mapping):
        return ",".join(f"{k}={v:g}" if isinstance(v, float) else k for k, v in default.items()) or "none"
    return "none" if default in (None, "") else str(default)


def _metavar(field: dataclasses.Field[Any], kind: Any) -> str:
    if field.metadata["choices"] and typing.get_origin(kind) not in (tuple, dict):
        return "{" + ",".join(field.metadata["choices"]) + "}"
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        kind = typing.get_args(kind)[0]
    names = {int: "N", float: "X", str: "TEXT", Path: "PATH"}
    return names.get(kind, "A=X,…" if typing.get_origin(kind) is dict else "A,B,…")
