"""`carico version`: prints the version, as JSON also that of Python and the system."""

from __future__ import annotations

import argparse
import json
import platform

from carico import __version__


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--output", choices=("json",), metavar="json", help="with Python's version and the system"
    )


def run(args: argparse.Namespace) -> int:
    if args.output:
        about = {"version": __version__, "python": platform.python_version(), "system": platform.platform()}
        print(json.dumps(about))
    else:
        print(f"carico {__version__}")
    return 0
