"""`carico decisions`: lists and replays the decisions of a scheduler, from a dump or from a running one.

A dump is the output of `/debug/decisions` or of SIGUSR2: one JSON record per line. Other lines, such as log lines
between them, are skipped. The replay checks every decision against the rules again; `--threshold` shows what a stricter
one would have rejected. The exit code is 1 if a decision violates a rule.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from carico import output
from carico.errors import CaricoError, UsageError
from carico.kube import flags
from carico.logs import timestamp
from carico.scheduler.cycle.decision_log import DecisionRecord, load, replay
from carico.scheduler.http import remote
from carico.table import table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = f"{parser.prog} [FILE] [OPTION …]"
    about = "a dump, or - for standard input (default: those of the running scheduler)"
    parser.add_argument("file", nargs="?", metavar="FILE", help=about)
    parser.add_argument("--pod", metavar="POD", help="only decisions about this pod: web, pod/web or NAMESPACE/web")
    parser.add_argument("-n", "--namespace", metavar="NAMESPACE", help="only decisions about pods of this namespace")
    threshold = (
        "free capacity per unit that a node should have had (default: what the scheduler went by, as its records say)"
    )
    parser.add_argument("--threshold", type=float, metavar="PODS", help=threshold)
    output.add_flag(parser, ("json", "yaml", "name", "wide"), name="the pods")
    remote.add_flags(parser)


def run(args: argparse.Namespace) -> int:
    dump = _read(args)
    records = load(dump)
    if args.file and dump and not records:
        raise UsageError(f"{args.file}: holds no decisions; write a dump with SIGUSR2 or /debug/decisions")
    wrong = replay(records, args.threshold)
    shown = _chosen(records, args)
    if args.output == "name":
        print(
            "".join(f"pod/{name}\n" for name in dict.fromkeys(record.pod.partition("/")[2] for record in shown)), end=""
        )
    elif args.output in ("json", "yaml"):
        output.show(args.output, {"decisions": shown, "wrong": wrong})
    else:
        print(as_table(shown, wide=args.output == "wide"))
        print("\n".join(_summary(records, wrong)))
    return 1 if wrong else 0


def _chosen(records: list[DecisionRecord], args: argparse.Namespace) -> list[DecisionRecord]:
    namespace, name = flags.pod_name([args.pod], args.namespace) if args.pod else (args.namespace, None)
    return [
        record
        for record in records
        if namespace in (None, record.pod.partition("/")[0]) and name in (None, record.pod.partition("/")[2])
    ]


def _read(args: argparse.Namespace) -> bytes:
    if args.file and args.server:
        raise UsageError("the decisions come from FILE or from --server, not from both")
    try:
        if args.file:
            return sys.stdin.buffer.read() if args.file == "-" else Path(args.file).read_bytes()
    except OSError as error:
        raise UsageError(f"{args.file}: cannot be read ({error.strerror})") from error
    return asyncio.run(_fetch(args))


async def _fetch(args: argparse.Namespace) -> bytes:
    async with remote.reach(args) as pages:
        if pages.client is not None:
            return await pages.client.fetch("/debug/decisions")
    raise CaricoError(f"{pages.why_not}; or name a dump of decisions as FILE")


def as_table(records: list[DecisionRecord], *, wide: bool = False) -> str:
    """`wide` has the profile and the duration of the decision too.

    >>> record = DecisionRecord(0.25, "default/a", "u", "carico", 1, "n1", free_before=2.5)
    >>> as_table([record]).splitlines()[1].split()[1:]
    ['default/a', '1', 'n1', '2.5', 'scheduled']
    """
    head = (
        "TIME",
        "POD",
        "TRY",
        "NODE",
        "FREE",
        "RESULT",
        *(("PROFILE", "NODES", "MICROS") if wide else ()),
        "REASONS",
    )
    lines = []
    for record in records:
        free = "" if record.free_before is None else f"{record.free_before:g}"
        more = (record.profile, f"{record.feasible}/{record.nodes}", f"{record.micros:g}") if wide else ()
        cells = (
            timestamp(record.at),
            record.pod,
            str(record.attempt),
            record.node or "-",
            free,
            record.result,
            *more,
            record.reasons,
        )
        lines.append(cells)
    return table(head, lines, right=(2, 4, 7, 8) if wide else (2, 4))


def _summary(records: list[DecisionRecord], wrong: list[str]) -> list[str]:
    counts: dict[str, int] = {}
    for record in records:
        counts[record.result] = counts.get(record.result, 0) + 1
    totals = ", ".join(f"{count} {result}" for result, count in sorted(counts.items())) or "none"
    decisions = "1 decision" if len(records) == 1 else f"{len(records)} decisions"
    return [f"replayed {decisions} ({totals}): {len(wrong) or 'none'} violate the rules", *wrong]
