"""`carico completion bash|zsh|fish`: a script that completes commands, flags and the choices of flags.

    source <(carico completion bash)                            # in ~/.bashrc
    carico completion zsh > "${fpath[1]}/_carico"
    carico completion fish > ~/.config/fish/completions/carico.fish

The script is generated from the parsers and contains everything: completing starts no Python.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import NamedTuple

from carico.cli import COMMANDS, build_parser, command_parser, is_installed
from carico.system import runs_here

FILE_VALUES = ("FILE", "DIR", "SOCKET")  # metavars of flags and arguments that name files


class Flag(NamedTuple):
    names: tuple[str, ...]
    about: str
    takes_value: bool
    choices: tuple[str, ...]
    is_file: bool


class Described(NamedTuple):
    """A command and what can follow it."""

    name: str
    about: str
    flags: list[Flag]
    choices: tuple[str, ...]  # of its first argument
    takes_files: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = f"{parser.prog} bash|zsh|fish"
    parser.add_argument("shell", choices=list(SCRIPTS), metavar="|".join(SCRIPTS), help="the shell to complete in")


def run(args: argparse.Namespace) -> int:
    here = [_described(name) for name in COMMANDS if runs_here(name) and is_installed(name)]
    print(SCRIPTS[args.shell](here, _flags(build_parser(None))), end="")
    return 0


def _described(name: str) -> Described:
    parser = command_parser(build_parser(name), name)
    arguments = [action for action in parser._actions if not action.option_strings]
    choices = tuple(map(str, arguments[0].choices)) if arguments and arguments[0].choices else ()
    return Described(name, COMMANDS[name].about, _flags(parser), choices, any(_is_file(action) for action in arguments))


def _flags(parser: argparse.ArgumentParser) -> list[Flag]:
    return [
        Flag(
            tuple(action.option_strings),
            (action.help or "").replace("%%", "%"),
            action.nargs != 0,
            tuple(map(str, action.choices or ())) or _choices(action.metavar),
            _is_file(action),
        )
        for action in parser._actions
        if action.option_strings and action.help is not argparse.SUPPRESS
    ]


def _choices(metavar: object) -> tuple[str, ...]:
    """Choices from a metavar; settings write theirs as {a,b}.

    >>> _choices("{auto,none}"), _choices("TEXT")
    (('auto', 'none'), ())
    """
    text = metavar if isinstance(metavar, str) else ""
    return tuple(text[1:-1].split(",")) if text.startswith("{") else ()


def _is_file(action: argparse.Action) -> bool:
    return isinstance(action.metavar, str) and action.metavar in FILE_VALUES


# --- bash ---


def bash(commands: list[Described], top: list[Flag]) -> str:
    """Where nothing is offered bash completes file names, as flags that take a file need."""
    names = " ".join(command.name for command in commands)
    lines = [
        "# carico completion bash",
        "_carico() {",
        '  local current="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" command= i',
    ]
    lines += [
        "  for ((i = 1; i < COMP_CWORD; i++)); do",
        f'    case "${{COMP_WORDS[i]}}" in {"|".join(names.split())}) command="${{COMP_WORDS[i]}}"; break ;; esac',
        "  done",
    ]
    lines += ["  COMPREPLY=()", '  case "$command $before" in']
    for name, flag in _with_values(commands, top):
        offered = f"COMPREPLY=($(compgen -W '{' '.join(flag.choices)}' -- \"$current\")); " if flag.choices else ""
        lines.append(f"    {'|'.join(_quoted(f'{name} {one}') for one in flag.names)}) {offered}return ;;")
    lines += [
        "  esac",
        '  case "$command" in',
        f"    '') COMPREPLY=($(compgen -W '{names} {_all_names(top)}' -- \"$current\")) ;;",
    ]
    for command in commands:
        offered = " ".join([*command.choices, _all_names(command.flags)])
        only = ' [[ "$current" == -* ]] || return;' if command.takes_files and not command.choices else ""
        lines.append(f"    {command.name}){only} COMPREPLY=($(compgen -W '{offered}' -- \"$current\")) ;;")
    return "\n".join([*lines, "  esac", "}", "complete -o default -F _carico carico", ""])


def _with_values(commands: list[Described], top: list[Flag]) -> Iterator[tuple[str, Flag]]:
    for name, flags in [("", top), *((command.name, command.flags) for command in commands)]:
        yield from ((name, flag) for flag in flags if flag.takes_value)


def _all_names(flags: list[Flag]) -> str:
    return " ".join(name for flag in flags for name in flag.names)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


# --- zsh ---


def zsh(commands: list[Described], top: list[Flag]) -> str:
    described = " ".join(_quoted(f"{command.name}:{command.about.replace(':', ' -')}") for command in commands)
    lines = ["#compdef carico", "_carico() {", "  local -a offered", f"  offered=({described})"]
    lines += ["  local i command=", "  for ((i = 2; i < CURRENT; i++)); do", '    case "$words[i]" in']
    lines += [
        f"      {'|'.join(command.name for command in commands)}) command=$words[i]; break ;;",
        "    esac",
        "  done",
        '  case "$command" in',
    ]
    lines.append(f"    '') _arguments {_zsh_flags(top)} '1:command:{{_describe command offered}}' ;;")
    for command in commands:
        first = (
            [f"'*:{command.name}:({' '.join(command.choices)})'"]
            if command.choices
            else ["'*:file:_files'"]
            if command.takes_files
            else []
        )
        lines.append(f"    {command.name}) _arguments '1:command: ' {' '.join([_zsh_flags(command.flags), *first])} ;;")
    return "\n".join(
        [
            *lines,
            "  esac",
            "}",
            'if [[ "$funcstack[1]" == _carico ]]; then _carico "$@"; else compdef _carico carico; fi',
            "",
        ]
    )


def _zsh_flags(flags: list[Flag]) -> str:
    return " ".join(
        _quoted(f"{name}[{_zsh_text(flag.about)}]{_zsh_value(flag)}") for flag in flags for name in flag.names
    )


def _zsh_text(text: str) -> str:
    return text.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")


def _zsh_value(flag: Flag) -> str:
    if not flag.takes_value:
        return ""
    return f":value:({' '.join(flag.choices)})" if flag.choices else ":file:_files" if flag.is_file else ":value: "


# --- fish ---


def fish(commands: list[Described], top: list[Flag]) -> str:
    names = " ".join(command.name for command in commands)
    lines = ["# carico completion fish", "complete -c carico -f"]
    none = f"not __fish_seen_subcommand_from {names}"
    lines += [
        f"complete -c carico -n {_fish(none)} -a {command.name} -d {_fish(command.about)}" for command in commands
    ]
    lines += [_fish_flag(none, flag) for flag in top]
    for command in commands:
        seen = f"__fish_seen_subcommand_from {command.name}"
        lines += (
            [f"complete -c carico -n {_fish(seen)} -a {_fish(' '.join(command.choices))}"] if command.choices else []
        )
        lines += [f"complete -c carico -n {_fish(seen)} -F"] if command.takes_files else []
        lines += [_fish_flag(seen, flag) for flag in command.flags]
    return "\n".join([*lines, ""])


def _fish_flag(condition: str, flag: Flag) -> str:
    names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in flag.names)
    value = (
        ""
        if not flag.takes_value
        else f" -xa {_fish(' '.join(flag.choices))}"
        if flag.choices
        else " -rF"
        if flag.is_file
        else " -x"
    )
    return f"complete -c carico -n {_fish(condition)} {names}{value} -d {_fish(flag.about)}"


def _fish(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


SCRIPTS = {"bash": bash, "zsh": zsh, "fish": fish}
