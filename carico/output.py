"""`-o json|yaml|name|wide`, as kubectl has it; `--json` means the same as `-o json`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from carico.table import table

ABOUT = {"json": "JSON", "yaml": "YAML", "name": "names only", "wide": "more columns"}


def add_flag(parser: argparse.ArgumentParser, forms: tuple[str, ...], name: str = "") -> None:
    """`name` says what `-o name` prints."""
    about = ", ".join(f"{form}: {name if form == 'name' and name else ABOUT[form]}" for form in forms)
    parser.add_argument(
        "-o", "--output", choices=forms, metavar="|".join(forms), help=f"form of the output ({about}; default: a table)"
    )
    parser.add_argument("--json", dest="output", action="store_const", const="json", help=argparse.SUPPRESS)


def show(form: str, value: Any) -> None:
    """Prints `value`, which msgspec can encode, as JSON or YAML."""
    plain = msgspec.to_builtins(value)
    if form == "yaml":
        import yaml  # 10 ms, which the other forms need not wait for

        print(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True), end="")
    else:
        print(json.dumps(plain, indent=2, ensure_ascii=False))


def show_table(head: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> None:
    print(table([name.upper() for name in head], rows, right=right))
