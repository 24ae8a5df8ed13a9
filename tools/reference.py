"""Writes docs/commands.md, docs/settings.md and docs/metrics.md from the code's help texts: `make docs`.

python tools/reference.py [FOLDER]
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import textwrap
import typing
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import metric_tables

from carico import cli, config, durations, flags
from carico.flags import CommandParser
from carico.scheduler.plugins.registry import BUILT_IN, FactoryWithArgs
from carico.settings import AgentSettings, AggregatorSettings, SchedulerSettings

MADE = "<!-- Made by `make docs`; change the help texts in carico/, not this file. -->\n"
COMMANDS_HEAD = f"""# Commands

{MADE}
`carico COMMAND --help` shows the common options, `--help-all` all of them. `kubectl carico COMMAND` is the same.
Durations are written like `30s`, `5m`, `1h30m`, or as a number of seconds.

Exit codes: 0, 1 for what went wrong, 2 for a wrong call; `carico run` has its own.

All options may stand before the command or behind it: `kubectl carico -n team explain web`. Those of every command,
`--config` of those that read settings:
"""
SETTINGS_HEAD = f"""# Settings

{MADE}
A setting can stand in a TOML file, in the environment and in a flag; the later one wins. The file is named by
`--config`, else by `$CARICO_CONFIG`, else it is `/etc/carico/carico.toml` if that exists. One file may hold the
sections of all processes:

    [agent]
    rate_hz = 5
    ask_every = "30s"

    [scheduler]
    leader_elect = false

The same in the environment: `CARICO_AGENT__RATE_HZ=5`; as a flag: `--rate-hz 5`. Durations are written like `30s`,
`5m`, `1h30m`, `250ms`, or as a number of seconds. Lists are `a,b` and tables `a=1,b=2` in environment and flags, and
TOML's own in the file; `profiles` is JSON outside of it. A switch is `--name` or `--no-name`, also `--name=true` or
`--name=false`. Everything is checked at the start; all that is wrong is reported at once, with exit code 2.
"""
PLUGINS_HEAD = """## [scheduler.profiles.NAME.args.PLUGIN]

Settings of one plugin in one profile ([scheduler.md](scheduler.md#settings)); in environment and flags they are a part
of the JSON of `profiles`. Where the default is a setting of [scheduler], that applies to every profile that does not
set its own.
"""
SECTIONS: dict[str, tuple[type[Any], str]] = {
    "agent": (AgentSettings, "`carico agent`; `top`, `record`, `replay` and `doctor` read this section too."),
    "aggregator": (AggregatorSettings, "`carico aggregator`."),
    "scheduler": (SchedulerSettings, "`carico scheduler`."),
}


def main(folder: Path) -> None:
    (folder / "commands.md").write_text("\n".join(commands()) + "\n")
    (folder / "settings.md").write_text("\n".join(settings()) + "\n")
    (folder / "metrics.md").write_text("\n".join(metric_tables.page()) + "\n")


# --- commands ---


def commands() -> Iterator[str]:
    yield COMMANDS_HEAD
    yield from _options(_global(cli.build_parser(None)))
    for group in dict.fromkeys(command.group for command in cli.COMMANDS.values()):
        yield from ("", f"## {group}")
        for name, command in cli.COMMANDS.items():
            if command.group == group:
                yield from _command(name, command)


def _command(name: str, command: cli.Command) -> Iterator[str]:
    parser = cli.command_parser(cli.build_parser(name), name)
    yield from ("", f"### carico {name}", "", f"{command.about[0].upper()}{command.about[1:]}.", "")
    yield f"    {parser.usage}"
    skipped = {id(action) for action in [*_global(parser), *parser.rare]}
    shown = [action for action in parser._actions if id(action) not in skipped]
    if any(action.help != argparse.SUPPRESS for action in shown):
        yield ""
        yield from _options(shown)
    if parser.rare:
        about = "Rarer options, under `--help-all`"
        settings = "; [settings.md](settings.md) describes those that are settings" if parser.reads_settings else ""
        names = ", ".join(f"`{action.option_strings[0]}`" for action in parser.rare)
        yield from ("", f"{about}{settings}: {names}.")
    if parser.epilog:
        yield from ("", *textwrap.wrap(_text(parser.epilog), 200, break_long_words=False))


def _global(parser: CommandParser) -> list[argparse.Action]:
    return [action for group in parser._action_groups if group.title == flags.GLOBAL for action in group._group_actions]


def _options(actions: Iterable[argparse.Action]) -> Iterator[str]:
    yield from ("| option | |", "| --- | --- |")
    for action in (each for each in actions if each.help != argparse.SUPPRESS):
        yield f"| {_option(action)} | {escaped((action.help or '').replace('%%', '%'))} |"


def _option(action: argparse.Action) -> str:
    choices = "{" + ",".join(map(str, action.choices)) + "}" if action.choices else ""
    value = str(action.metavar or choices or action.dest.upper()) if action.nargs != 0 else ""
    if not action.option_strings:
        return f"`{_cell(value)}`"
    joined = ", ".join(action.option_strings)
    return f"`{_cell(f'{joined} {value}'.strip())}`"


# --- settings ---


def settings() -> Iterator[str]:
    yield SETTINGS_HEAD
    for section, (cls, about) in SECTIONS.items():
        yield from (f"## [{section}]", "", about, "")
        yield from ("| setting, flag, environment | value | default | |", "| --- | --- | --- | --- |")
        kinds = typing.get_type_hints(cls)
        fields = {field.name: field for field in dataclasses.fields(cls)}
        for _, names in flags.groups(cls, flags.names(cls)):
            for name in names:
                yield _row(section, fields[name], kinds[name])
        yield ""
    yield PLUGINS_HEAD
    for plugin, factory in BUILT_IN.items():
        if isinstance(factory, FactoryWithArgs):
            yield from _arguments(plugin, factory)
    yield from ("## Old names", "", "Still read, with a warning:", "", "| old | new |", "| --- | --- |")
    yield from (f"| `{old}` | `{new}` |" for old, new in config.RENAMED.items())
    yield "| `release` of a profile | `args.Capacity.release` |"


def _arguments(plugin: str, factory: FactoryWithArgs[Any]) -> Iterator[str]:
    yield from (f"### {plugin}", "", "| setting | value | default | |", "| --- | --- | --- | --- |")
    kinds, shared = typing.get_type_hints(factory.args), factory.inherited(SchedulerSettings)
    for field in dataclasses.fields(factory.args):
        default = f"[scheduler] `{field.name}`" if field.name in shared else default_of(field, kinds[field.name])
        value, about = value_of(field, kinds[field.name]), escaped(field.metadata["about"])
        yield f"| `{field.name}` | {value} | {default} | {about} |"
    yield ""


def _row(section: str, field: dataclasses.Field[Any], kind: Any) -> str:
    name = f"`{field.name}`<br>`{flags.flag_of(field.name)}`<br>`CARICO_{section.upper()}__{field.name.upper()}`"
    return f"| {name} | {value_of(field, kind)} | {default_of(field, kind)} | {escaped(field.metadata['about'])} |"


def default_of(field: dataclasses.Field[Any], kind: Any) -> str:
    default = flags.shown_default(field) or ("off" if kind is bool else "")
    return f"`{_cell(default)}`" if default else ""


def value_of(field: dataclasses.Field[Any], kind: Any) -> str:
    if kind is bool:
        return "switch"
    text = f"`{_cell(flags.metavar(field, kind))}`".replace("{", "").replace("}", "").replace(",", ", ")
    show = durations.show if config.is_duration(field) else "{:g}".format
    least, most = (field.metadata[bound] for bound in ("least", "most"))
    if least is not None and most is not None:
        return f"{text}<br>{show(least)} to {show(most)}"
    return text if least is None else f"{text}<br>at least {show(least)}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _text(text: str) -> str:
    """Outside of code, GitHub interprets angle brackets and asterisks."""
    return " ".join(text.split()).replace("<", "&lt;").replace("*", "\\*")


def escaped(text: str) -> str:
    return _cell(_text(text))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "docs")
