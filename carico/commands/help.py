"""`carico help [COMMAND]`: prints the same text as `carico COMMAND --help`."""

from __future__ import annotations

import argparse

from carico import cli, flags
from carico.system import runs_here


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = f"{parser.prog} [COMMAND]"
    here = [command for command in cli.COMMANDS if runs_here(command) and cli.is_installed(command)]
    parser.add_argument("about", nargs="?", choices=here, metavar=flags.COMMAND, help="the command")


def run(args: argparse.Namespace) -> int:
    parser = cli.build_parser(args.about)
    print((parser if args.about is None else cli.command_parser(parser, args.about)).format_help(), end="")
    return 0
