"""`carico classes`: what pods of each class really use, and where their requests differ most from it."""

from __future__ import annotations

import argparse
import asyncio

import msgspec

from carico import output
from carico.errors import CaricoError
from carico.scheduler.framework.amounts import size
from carico.scheduler.http import remote
from carico.scheduler.http.class_view import ORDERS, ClassRow, quantities
from carico.table import table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    about = "only classes of this namespace (default: all)"
    parser.add_argument("-n", "--namespace", metavar="NAMESPACE", help=about)
    about = "sort by the difference between requests and use, by cost, by pods (largest first) or by name"
    parser.add_argument("--sort", choices=tuple(ORDERS), default="difference", metavar="|".join(ORDERS), help=about)
    output.add_flag(parser, ("json", "yaml", "name", "wide"), name="the classes")
    remote.add_flags(parser)


def run(args: argparse.Namespace) -> int:
    rows = [row for row in asyncio.run(_fetch(args)) if args.namespace in (None, row.namespace)]
    rows.sort(key=ORDERS[args.sort])
    if args.output == "name":
        print("".join(f"{row.family}\n" for row in rows), end="")
    elif args.output in ("json", "yaml"):
        output.show(args.output, {"classes": rows})
    else:
        print(as_table(rows, wide=args.output == "wide"))
    return 0


async def _fetch(args: argparse.Namespace) -> list[ClassRow]:
    async with remote.reach(args) as pages:
        if pages.client is None:
            raise CaricoError(pages.why_not)
        answer = await pages.client.fetch("/debug/classes")
    try:
        return msgspec.json.decode(answer, type=dict[str, list[ClassRow]])["classes"]
    except (msgspec.DecodeError, KeyError) as error:
        raise CaricoError(f"the server there has no class costs ({error}); check --server") from error


def as_table(rows: list[ClassRow], *, wide: bool = False) -> str:
    """`wide` adds the spread between pods, what is reserved for one, and where the figures come from.

    >>> row = ClassRow("team-a/web", "team-a", 3, 2.0, uses={"cpu": 0.31, "memory": 440401920.0},
    ...     requests={"cpu": 1.0, "memory": 0.0}, suggested={"cpu": 0.35, "memory": 461373440.0})
    >>> print(as_table([row, ClassRow("team-a/new", "team-a", 1)]))
    CLASS       PODS  MEASURED   CPU   MEMORY  REQUESTS  SUGGESTED
    team-a/web     3         2  0.31  420 MiB  1, none   350m, 440Mi
    team-a/new     1      none     ?        ?  ?         ?
    """
    more = ("SPREAD", "RESERVED", "REVISIONS", "FROM", "AGE") if wide else ()
    head = ("CLASS", "PODS", "MEASURED", "CPU", "MEMORY", "REQUESTS", "SUGGESTED", *more)
    lines = [(*_cells(row), *(_more(row) if wide else ())) for row in rows]
    return table(head, lines, right=(1, 2, 3, 4))


def _cells(row: ClassRow) -> tuple[str, ...]:
    measured = f"{row.measured:.0f}" if row.measured else "none"
    cpu, memory = (f"{row.uses['cpu']:.2f}" if "cpu" in row.uses else "?"), _size(row.uses.get("memory"))
    return row.family, str(row.pods), measured, cpu, memory, quantities(row.requests), quantities(row.suggested)


def _more(row: ClassRow) -> tuple[str, ...]:
    spread = f"{row.spread['cpu']:.2f}, {_size(row.spread.get('memory'))}" if row.spread else "?"
    reserved = f"{row.charged['cpu']:.2f}, {_size(row.charged.get('memory'))}" if row.charged else "?"
    return spread, reserved, str(row.revisions), row.source or "?", f"{row.age:.0f}s" if row.source else "?"


def _size(amount: float | None) -> str:
    return "?" if amount is None else size(amount)
