"""Command-line flags: a parser whose --help shows the common ones only, and a flag for every setting."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import json
import os
import re
import types
import typing
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from carico import config, durations
from carico.errors import UsageError

S = TypeVar("S")

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")
LONGEST = 1e9  # s of a duration
INVALID_NUMBER = re.compile(r"invalid int value: (.*)")  # argparse's own text
FEW = 6  # choices that an error may list
METAVARS = {int: "N", float: "X", str: "TEXT", Path: "FILE"}  # of settings without their own
GLOBAL = "Global options"
COMMAND = "COMMAND"  # metavar of an argument that names one
ALIGN = 30  # columns of the flags in a help page


class CommandParser(argparse.ArgumentParser):
    """Shows rare flags with --help-all only, and raises a one-line UsageError for invalid arguments."""

    def __init__(self, **options: Any) -> None:
        super().__init__(add_help=False, formatter_class=_formatter, **options)
        self._optionals.title = "Options"
        self._positionals.title = "Arguments"
        self.rare: list[argparse.Action] = []
        self.reads_settings = False

    def format_help(self) -> str:
        """Without the rare flags."""
        about = [action.help for action in self.rare]
        for action in self.rare:
            action.help = argparse.SUPPRESS
        try:
            return super().format_help()
        finally:
            for action, text in zip(self.rare, about, strict=True):
                action.help = text

    def format_help_all(self) -> str:
        return super().format_help()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        return super().parse_known_args([self._without_value(word) for word in args], namespace)

    def _without_value(self, word: str) -> str:
        """Accepts switches in the form of Kubernetes' components: --leader-elect=false is --no-leader-elect."""
        flag, equals, value = word.partition("=")
        action = self._option_string_actions.get(flag) if equals and flag.startswith("--") else None
        if not isinstance(action, argparse.BooleanOptionalAction):
            return word
        try:
            return action.option_strings[0 if config.parsed_bool(value) else 1]
        except ValueError as error:
            raise UsageError(f"{flag}: {value!r} {error}") from None

    def error(self, message: str) -> NoReturn:
        message = INVALID_NUMBER.sub(r"\1 is not a whole number", message.removeprefix("argument "))
        raise UsageError(f"{message}; see `{self.prog} --help`")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """argparse would list every choice, in one line of any length."""
        if action.choices is None or value in action.choices:
            return
        choices = [str(choice) for choice in action.choices]
        if isinstance(action, argparse._SubParsersAction) or action.metavar == COMMAND:
            raise UsageError(f"there is no command {value!r}; {self.hint(value, choices)}")
        what = "/".join(action.option_strings) or action.metavar or action.dest
        few = f"not one of {', '.join(choices)}" if len(choices) <= FEW else "not known"
        raise UsageError(f"{what}: {value!r} is {few}; {self.hint(value, choices)}")

    def hint(self, wrong: str, known: Iterable[str]) -> str:
        near = difflib.get_close_matches(wrong, list(known), n=1, cutoff=config.SIMILAR)
        return f"did you mean {near[0]}?" if near else f"see `{self.prog.removesuffix(' help')} --help`"

    def flags(self) -> Iterator[str]:
        for action in self._actions:
            if action.help is not argparse.SUPPRESS:
                yield from action.option_strings


def _formatter(prog: str) -> argparse.HelpFormatter:
    return argparse.HelpFormatter(prog, max_help_position=ALIGN)


class HelpAll(argparse.Action):
    def __init__(self, **options: Any) -> None:
        super().__init__(nargs=0, **options)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        assert isinstance(parser, CommandParser)
        print(parser.format_help_all(), end="")
        parser.exit()


def add_global(parser: CommandParser, *, in_command: bool) -> argparse._ArgumentGroup:
    """Flags that are valid before or after the command; after it they have no defaults, which would take precedence."""
    group = parser.add_argument_group(GLOBAL)
    group.add_argument("-h", "--help", action="help", help="show this help")
    more = "1 more option" if len(parser.rare) == 1 else f"{len(parser.rare)} more options"
    shown = in_command and parser.rare
    about = f"show this help with {more}" if shown else argparse.SUPPRESS  # accepted nevertheless
    group.add_argument("--help-all", action=HelpAll, dest=argparse.SUPPRESS, help=about)
    missing: Any = argparse.SUPPRESS if in_command else None
    if not in_command or parser.reads_settings:
        about = f"TOML file with settings (default: ${config.FILE_VARIABLE}, or {config.DEFAULT_FILE})"
        group.add_argument("--config", type=Path, metavar="FILE", default=missing, help=about)
    group.add_argument(
        "--log-level", choices=LEVELS, default=missing or "info", help="log messages of this level and above"
    )
    group.add_argument(
        "--log-format",
        choices=FORMATS,
        default=missing or "text",
        help="format of the log on standard error",
    )
    return group


def add_settings(
    parser: CommandParser, cls: type[Any], only: Collection[str] | None = None, common: Collection[str] | None = None
) -> None:
    """One flag per setting, or per setting in `only`; absent ones remain None so that file and environment apply.

    `common` are the names that --help shows, instead of those that the settings class marks.
    """
    parser.reads_settings = True
    kinds = typing.get_type_hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls)}
    wanted = names(cls) if only is None else set(only)
    shown = {name for name in wanted if fields[name].metadata["common"]} if common is None else set(common)
    for part, its_names in groups(cls, wanted):
        group = parser.add_argument_group((part.__doc__ or "").strip("."))
        for name in its_names:
            action = _add_flag(group, fields[name], kinds[name])
            if name not in shown and not fields[name].metadata["refused"]:
                parser.rare.append(action)
    for old, new in config.RENAMED.items():
        if new in wanted:
            parser.add_argument(flag_of(old), default=None, help=argparse.SUPPRESS)


def groups(cls: type[Any], wanted: Collection[str]) -> Iterable[tuple[type[Any], list[str]]]:
    """The settings by the class that defines them; a class that only changes a default does not define it."""
    own = [(part, list(vars(part).get("__annotations__", {}))) for part in cls.__mro__[:-1]]
    for i, (part, its_names) in enumerate(own):
        inherited = {name for _, others in own[i + 1 :] for name in others}
        yield part, [name for name in its_names if name in wanted and name not in inherited]


def _add_flag(group: Any, field: dataclasses.Field[Any], kind: Any) -> argparse.Action:
    flag, default = flag_of(field.name), shown_default(field)
    about = f"{field.metadata['about']}{f' (default: {default})' if default else ''}".replace("%", "%%")
    if field.metadata["refused"]:
        about = argparse.SUPPRESS
    if kind is bool:
        action = group.add_argument(flag, action=argparse.BooleanOptionalAction, default=None, help=about)
    else:
        action = group.add_argument(flag, default=None, metavar=metavar(field, kind), help=about)
    assert isinstance(action, argparse.Action)
    return action


def flag_of(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def names(*classes: type[Any]) -> set[str]:
    """The names of the settings of some classes."""
    return {field.name for cls in classes for field in dataclasses.fields(cls)}


def settings_of(cls: type[S], section: str, args: argparse.Namespace) -> S:
    """The settings of a command, from the flags that `add_settings` added, environment and file."""
    known = names(cls) | config.RENAMED.keys()
    flags = {name: getattr(args, name) for name in known if hasattr(args, name)}
    return config.load(cls, section, file=config.find_file(args.config, os.environ), environ=os.environ, flags=flags)


def shown_default(field: dataclasses.Field[Any]) -> str:
    """In the notation of the user; empty if there is none, or for a switch that is off."""
    default = field.metadata["default"]
    if config.is_duration(field):
        return durations.show(default)
    if isinstance(default, bool):
        return "on" if default else ""
    if isinstance(default, tuple):
        return ",".join(default)
    if isinstance(default, Mapping):
        numbers = all(isinstance(value, float) for value in default.values())
        return ",".join(f"{k}={v:g}" for k, v in default.items()) if numbers else json.dumps(default)
    if isinstance(default, float):
        return f"{default:.0f}" if default >= 1e6 else f"{default:g}"
    return "" if default is None else str(default)


def metavar(field: dataclasses.Field[Any], kind: Any) -> str:
    choices = field.metadata["choices"]
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        kind = typing.get_args(kind)[0]
    if field.metadata["metavar"]:
        return str(field.metadata["metavar"])
    if choices and typing.get_origin(kind) not in (tuple, dict):
        return "{" + ",".join(choices) + "}"
    return METAVARS.get(kind, "TEXT")


def duration(text: str) -> float:
    """The type of a flag that is not a setting; above 0."""
    try:
        seconds = durations.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} {error}") from None
    if seconds <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time above 0")
    if seconds >= LONGEST:
        raise argparse.ArgumentTypeError(f"{text!r} is more than 30 years")
    return seconds


def unknown(parser: CommandParser, extra: Sequence[str]) -> UsageError:
    """The error for unknown arguments."""
    flag = extra[0].split("=")[0]
    if not flag.startswith("-"):
        return UsageError(f"unexpected argument {flag!r}; see `{parser.prog} --help`")
    return UsageError(f"there is no option {flag}; {parser.hint(flag, parser.flags())}")
