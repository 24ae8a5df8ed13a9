"""The program `carico` and its commands.

Each command has its own module, imported only when it is used, so that `carico --help` is fast.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import logging
import os
import sys
import textwrap
import traceback
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from carico import __version__, flags, logs
from carico.errors import CaricoError, UsageError
from carico.flags import CommandParser
from carico.system import require_linux

ABOUT = "Carico places Kubernetes pods by what the nodes can really still take."


class Command(NamedTuple):
    """A command. Its module in commands/ has its name, `add_arguments(parser)` and `run(args)`, the exit code."""

    about: str
    group: str
    serves: bool = False  # runs until it is stopped
    own_error: int | None = None  # exit code of Carico's errors, for a command where 1 and 2 mean something else
    needs: str = ""  # a package that the wheel of container images does not have


# Flags of `carico` itself with a value, and those that one may write before kubectl's commands too.
GLOBAL = ("--config", "--log-level", "--log-format")
OF_KUBECTL = ("-n", "--namespace", "--context", "--kubeconfig", "-o", "--output", "--server")

TRY, CLUSTER, ASK, OTHER = "On this machine", "In a cluster", "Ask and check", "Other"

COMMANDS: dict[str, Command] = {
    "demo": Command("show on this machine why capacity beats requests", TRY, needs="carico.embedded"),
    "cluster": Command("create and delete embedded clusters on this machine", TRY, needs="carico.embedded"),
    "run": Command(
        "run a command over a list of inputs, as many at once as the machine can take",
        TRY,
        own_error=255,
        needs="carico.run",
    ),
    "top": Command("watch this machine: Pod-Capacity, usage, pods or processes", TRY),
    "record": Command("write raw telemetry of this machine to a file", TRY),
    "replay": Command("run a recording through the estimation", TRY),
    "simulate": Command("compare schedulers in a scenario, on simulated nodes and time", TRY, needs="carico.sim"),
    "agent": Command("measure this node and report how many more pods fit", CLUSTER, serves=True),
    "aggregator": Command("merge the nodes' models into one", CLUSTER, serves=True),
    "scheduler": Command("place pods by what the nodes can still take", CLUSTER, serves=True),
    "explain": Command("explain why a pod runs where it runs, or does not, or where it would go", ASK),
    "classes": Command("show what pods of each class use, and what to request", ASK),
    "decisions": Command("show and re-check past decisions of a scheduler", ASK),
    "certificates": Command("make the certificates of agents, aggregator and scheduler", CLUSTER),
    "doctor": Command("find what is missing here or in the cluster, and how to fix it", ASK),
    "completion": Command("print a completion script for bash, zsh or fish", OTHER),
    "version": Command("print the version", OTHER),
    "help": Command("show the help of a command", OTHER),
}

# Renamed commands: old → new. The old name still works, with a warning, for one minor release.
RENAMED = {"simulate-placement": "explain"}


def main(argv: list[str] | None = None) -> int:
    # One BLAS thread, set before numpy loads: matrices here are 2 × 2, and on 64 cores it would start 64 threads.
    for variable in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    argv = command_first(sys.argv[1:] if argv is None else argv)
    name = command_in(argv)
    if name in RENAMED:
        argv = [RENAMED[name] if word == name else word for word in argv]
        print(f"carico: warning: `carico {name}` is `carico {RENAMED[name]}` now", file=sys.stderr)
        name = RENAMED[name]
    own_error = COMMANDS[name].own_error if name in COMMANDS else None
    try:
        if name in COMMANDS:
            require_linux(name)
        return _run(name, argv)
    except CaricoError as error:
        logs.failed(str(error))
        return error.exit_code if own_error is None else own_error
    except BrokenPipeError:
        sys.stderr.close()  # the reader of a pipe exited (`carico … | head`): not an error
        return 0
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if logs.is_json():
            logging.getLogger("carico").exception("%r", error)
        elif own_error is None:
            raise
        else:
            traceback.print_exc()
        return 1 if own_error is None else own_error


def command_first(argv: list[str]) -> list[str]:
    """Moves flags of the command behind it, where the user wrote them before it, as one may for kubectl.

    >>> command_first(["--log-level", "debug", "-n", "team", "explain", "web"])
    ['--log-level', 'debug', 'explain', '-n', 'team', 'web']
    """
    before: list[str] = []
    behind: list[str] = []
    words = iter(argv)
    for word in words:
        if not word.startswith("-"):
            return [*before, word, *behind, *words]
        place = before if word.partition("=")[0] in (*GLOBAL, "--version") else behind
        place += [word, *islice(words, word in (*GLOBAL, *OF_KUBECTL))]
    return argv


def command_in(argv: list[str]) -> str | None:
    """The first argument that is neither a flag nor the value of a global flag.

    >>> command_in(["--config", "agent", "top", "--json"])
    'top'
    """
    words = iter(argv)
    for word in words:
        if not word.startswith("-"):
            return word
        if word in (*GLOBAL, *OF_KUBECTL):
            next(words, None)
    return None


def _run(name: str | None, argv: list[str]) -> int:
    parser = build_parser(name)
    args, extra = parser.parse_known_args(argv)
    mine = parser if name is None else command_parser(parser, name)
    if extra:
        raise flags.unknown(mine, extra)
    if name is None:
        parser.print_help()
        return 0
    if args.config is not None and not mine.reads_settings:
        raise UsageError(f"--config: `{mine.prog}` reads no settings")
    logs.start(args.log_level, args.log_format)
    if COMMANDS[name].serves:
        logs.dump_stacks_on_signal()
    result: int = module_of(name).run(args)
    return result


def module_of(name: str) -> ModuleType:
    if not is_installed(name):
        raise UsageError(
            f"`carico {name}` needs {COMMANDS[name].needs}, which container images leave out; "
            "run it from a full installation"
        )
    return importlib.import_module(f"carico.commands.{name.replace('-', '_')}")


def is_installed(name: str) -> bool:
    package = COMMANDS[name].needs
    return not package or importlib.util.find_spec(package) is not None


class TopParser(CommandParser):
    """The parser of `carico` itself: its help lists the commands by group."""

    def format_help(self) -> str:
        width = max(map(len, COMMANDS))
        lines = [f"usage: {self.prog} COMMAND [OPTION …]", "", *textwrap.wrap(ABOUT, 100)]
        for group in dict.fromkeys(command.group for command in COMMANDS.values()):
            lines += ["", f"{group}:"]
            lines += [f"  {name:<{width}}  {each.about}" for name, each in COMMANDS.items() if each.group == group]
        formatter = self._get_formatter()
        for part in self._action_groups:
            if part.title == flags.GLOBAL:
                formatter.start_section(part.title)
                formatter.add_arguments(part._group_actions)
                formatter.end_section()
        end = f"Use `{self.prog} COMMAND --help` for more about a command."
        return "\n".join([*lines, "", formatter.format_help(), end, ""])

    def format_help_all(self) -> str:
        return self.format_help()


def build_parser(name: str | None) -> CommandParser:
    """The parser with the arguments of command `name`; of the other commands it has only the names."""
    prog = "kubectl carico" if Path(sys.argv[0]).name == "kubectl-carico" else "carico"
    parser = TopParser(prog=prog, allow_abbrev=False)  # `command_in` handles full names only
    common = flags.add_global(parser, in_command=False)
    common.add_argument("--version", action="version", version=f"carico {__version__}", help="print the version")
    commands = parser.add_subparsers(dest="command", parser_class=CommandParser)
    for each, command in COMMANDS.items():
        usage = f"{prog} {each} [OPTION …]"
        sub = commands.add_parser(each, description=f"{command.about[0].upper()}{command.about[1:]}.", usage=usage)
        if each == name:
            module_of(name).add_arguments(sub)
            flags.add_global(sub, in_command=True)
    return parser


def command_parser(parser: CommandParser, name: str) -> CommandParser:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found = action.choices[name]
            assert isinstance(found, CommandParser)
            return found
    raise AssertionError(name)


if __name__ == "__main__":
    sys.exit(main())
