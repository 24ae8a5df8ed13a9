"""`-o json|yaml|name|wide`, as in kubectl; `--json` is the same as `-o json`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from carico.table import table


def add_flag(parser: argparse.ArgumentParser, forms: tuple[str, ...], name: str = "") -> None:
    """`name` describes the output of `-o name`."""
    notes = [f"name prints {name or 'only names'}"] if "name" in forms else []
    notes += ["wide adds columns"] if "wide" in forms else []
    about = "; ".join(["output format (default: a table)", *notes])
    parser.add_argument("-o", "--output", choices=forms, metavar="|".join(forms), help=about)
    parser.add_argument("--json", dest="output", action="store_const", const="json", help=argparse.SUPPRESS)


def show(form: str, value: Any) -> None:
    """Prints `value`, which msgspec can encode, as JSON or YAML."""
    plain = msgspec.to_builtins(value)
    if form == "yaml":
        import yaml  # takes 10 ms, so only where it is needed

        print(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True), end="")
    else:
        print(json.dumps(plain, indent=2, ensure_ascii=False))


def show_table(head: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> None:
    print(table([name.upper() for name in head], rows, right=right))
