"""`carico version`: prints the version, as JSON or YAML also that of Python and the system."""

from __future__ import annotations

import argparse
import platform

from carico import __version__


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--output", choices=("json", "yaml"), metavar="json|yaml", help="with Python's version and the system"
    )


def run(args: argparse.Namespace) -> int:
    if args.output:
        about = {"version": __version__, "python": platform.python_version(), "system": platform.platform()}
        from carico import output  # late: it takes longer than the rest of this command

        output.show(args.output, about)
    else:
        print(f"carico {__version__}")
    return 0
