"""The command `carico` and its words.

Each word lives in its own module, imported only when it is used, so that `carico --help` is quick.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import logging
import os
import re
import sys
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

from carico import __version__
from carico.errors import CaricoError
from carico.system import require_linux


class Word(NamedTuple):
    module: str  # has add_arguments(parser) and run(args) -> exit code
    about: str


LOG_LINE = "%(asctime)s %(levelname)s %(name)s: %(message)s"

WORDS: dict[str, Word] = {
    "demo": Word("carico.local.demo.command", "why capacity beats requests, on this machine, in two minutes"),
    "run": Word("carico.local.run.command", "a command over a list of inputs, as many at once as the machine can take"),
    "top": Word("carico.agent.top", "the signal of this machine, live in the terminal"),
    "record": Word("carico.agent.record", "write raw telemetry of this machine into a file"),
    "replay": Word("carico.agent.replay", "run a recording through the estimation"),
    "agent": Word("carico.agent.process", "measure this node and tell how many more pods fit on it"),
    "aggregator": Word("carico.aggregator.process", "merge what all nodes say of themselves into one model"),
    "scheduler": Word("carico.scheduler.command", "place pods by what the nodes can really still take"),
    "explain": Word("carico.scheduler.ask", "why a pod runs where it runs, or why it does not"),
    "simulate-placement": Word("carico.scheduler.ask", "where a pod would go now, without creating it"),
    "decisions": Word("carico.scheduler.review", "what a scheduler decided, held to the rules once more"),
    "certificates": Word("carico.wire.issue", "make the certificates of agents, aggregator and scheduler"),
    "doctor": Word("carico.doctor.command", "what is missing on this machine or cluster, and how to mend it"),
    "completion": Word("carico.completion", "completion of words and flags in bash, zsh or fish"),
}


def main(argv: list[str] | None = None) -> int:
    # One BLAS thread, set before numpy loads: matrices here are 2 × 2, and on 64 cores it would start 64 threads.
    for variable in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    argv = sys.argv[1:] if argv is None else argv
    try:
        return _run(argv)
    except CaricoError as error:
        for line in str(error).splitlines():
            print(f"carico: {line}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        sys.stderr.close()  # the reader of a pipe went away (`carico … | head`): nothing is wrong
        return 0
    except KeyboardInterrupt:
        return 130


def _run(argv: list[str]) -> int:
    asked_for = next((word for word in argv if word in WORDS), None)
    if asked_for is not None:
        require_linux(asked_for)
    parser = build_parser(asked_for)
    args = parser.parse_args(argv)
    if args.word is None:
        parser.print_help()
        return 0
    logging.basicConfig(level=args.log_level.upper(), format=LOG_LINE, stream=sys.stderr)
    result: int = importlib.import_module(WORDS[args.word].module).run(args)
    return result


class OneLineParser(argparse.ArgumentParser):
    """Says what is wrong in one line, with what was probably meant."""

    def error(self, message: str) -> NoReturn:
        wrong = re.search(r"invalid choice: '([^']*)'|unrecognized arguments: (\S+)", message)
        known = list(_known(self))
        said = (wrong[1] or wrong[2]).split("=")[0] if wrong else ""
        near = difflib.get_close_matches(said, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"`{self.prog} --help` tells more"
        if said in near:  # a flag of `carico` itself
            hint = f"it stands before the word: carico {said} …"
        self.exit(2, f"carico: {message}; {hint}\n")


def _known(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Flags and choices of a parser and of its words: the flags of a word are refused by the parser above it."""
    for action in parser._actions:
        yield from (*action.option_strings, *map(str, action.choices or ()))
        if isinstance(action.choices, dict):
            for word in action.choices.values():
                yield from _known(word)


def build_parser(asked_for: str | None) -> argparse.ArgumentParser:
    about = "Places Kubernetes pods by what the nodes can really still take."
    parser = OneLineParser(prog="carico", description=about)
    parser.add_argument("--version", action="version", version=f"carico {__version__}")
    levels = ("debug", "info", "warning", "error")
    parser.add_argument("--log-level", choices=levels, default="info", help="what to log, to standard error")
    words = parser.add_subparsers(dest="word", metavar="WORD", title="words (`carico WORD --help` tells more)")
    for name, word in WORDS.items():
        sub = words.add_parser(name, help=word.about, description=word.about)
        if name == asked_for:
            importlib.import_module(word.module).add_arguments(sub)
    return parser


if __name__ == "__main__":
    sys.exit(main())
