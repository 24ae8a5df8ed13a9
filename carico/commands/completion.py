"""`carico completion bash|zsh|fish`: a script that completes commands, flags and the choices of flags.

    source <(carico completion bash)                            # in ~/.bashrc
    carico completion zsh > "${fpath[1]}/_carico"
    carico completion fish > ~/.config/fish/completions/carico.fish

shtab generates the script from the parsers. It contains everything: completing starts no Python.
"""

from __future__ import annotations

import argparse
from typing import Any

from carico.cli import COMMANDS, build_parser, command_parser, is_installed
from carico.errors import UsageError
from carico.system import runs_here

SHELLS = ("bash", "zsh", "fish")
FILE_VALUES = ("FILE", "DIR", "SOCKET")  # metavars of flags and arguments that name files


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = f"{parser.prog} bash|zsh|fish"
    parser.add_argument("shell", choices=SHELLS, metavar="|".join(SHELLS), help="the shell to complete in")


def run(args: argparse.Namespace) -> int:
    try:
        import shtab
    except ImportError:
        raise UsageError("completion scripts need shtab: pip install 'carico[demo]'") from None
    print(shtab.complete(_whole_parser(shtab.FILE), args.shell))
    return 0


def _whole_parser(file: Any) -> argparse.ArgumentParser:
    """One parser with all commands: `carico` itself builds only that of the command in use."""
    whole = argparse.ArgumentParser(prog="carico", add_help=False)
    for action in build_parser(None)._actions:
        if action.option_strings and action.help is not argparse.SUPPRESS:
            whole._add_action(action)
    commands = whole.add_subparsers()
    for name in filter(lambda name: runs_here(name) and is_installed(name), COMMANDS):
        parser = command_parser(build_parser(name), name)
        for action in parser._actions:
            _note_values(action, file)
        commands.add_parser(name, parents=[parser], add_help=False, help=COMMANDS[name].about)
    return whole


def _note_values(action: argparse.Action, file: Any) -> None:
    """What the value of a flag or argument may be, where only its metavar has it; settings write choices as {a,b}."""
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    if metavar in FILE_VALUES:
        action.complete = file  # type: ignore[attr-defined]
    elif metavar.startswith("{") and not action.choices:
        action.choices = metavar[1:-1].split(",")
