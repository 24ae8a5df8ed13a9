"""The word `carico decisions`: what a scheduler decided, read from a dump or from a running one, and replayed.

A dump is what `/debug/decisions` gives or SIGUSR2 writes: one JSON record a line. Other lines, such as a log around
them, are skipped. Replayed, every decision is held to the rules once more; `--threshold` asks what a stricter one would
have refused. The exit code is 1 if a decision broke a rule.
"""

from __future__ import annotations

import argparse
import sys
import urllib.error
import urllib.request
from datetime import datetime
from pathlib import Path

import msgspec

from carico.errors import CaricoError, UsageError
from carico.scheduler.decisions import Record, load, replay
from carico.table import table

PATIENCE = 30.0  # s for an answer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", metavar="FILE", help="a dump; - is standard input")
    parser.add_argument("--server", metavar="URL", help="a running scheduler's pages, e.g. http://127.0.0.1:9467")
    parser.add_argument("--pod", metavar="NAMESPACE/NAME", help="only what was decided about this pod")
    threshold = "pods of free capacity per unit (default: what the scheduler went by, as its records say)"
    parser.add_argument("--threshold", type=float, help=threshold)
    parser.add_argument("--json", action="store_true", help="JSON instead of a table")


def run(args: argparse.Namespace) -> int:
    records = load(_read(args))
    wrong = replay(records, args.threshold)
    shown = [record for record in records if args.pod in (None, record.pod)]
    if args.json:
        print(msgspec.json.encode({"decisions": shown, "wrong": wrong}).decode())
    else:
        print(as_table(shown))
        print("\n".join(_summary(records, wrong)))
    return 1 if wrong else 0


def _read(args: argparse.Namespace) -> bytes:
    if bool(args.file) == bool(args.server):
        raise UsageError("say where the decisions are: a FILE, or --server URL")
    try:
        if args.server:
            with urllib.request.urlopen(args.server.rstrip("/") + "/debug/decisions", timeout=PATIENCE) as answer:
                return bytes(answer.read())
        return sys.stdin.buffer.read() if args.file == "-" else Path(args.file).read_bytes()
    except urllib.error.URLError as error:
        raise CaricoError(f"{args.server}: no scheduler answers there ({error.reason}); check --server") from error
    except ValueError as error:
        raise UsageError(f"{args.server}: {error}") from error
    except OSError as error:
        raise UsageError(f"{args.file or args.server}: cannot be read ({error.strerror})") from error


def as_table(records: list[Record]) -> str:
    """
    >>> record = Record(0.25, "default/a", "u", "carico", 1, "n1", free_before=2.5)
    >>> as_table([record]).splitlines()[1].split()[1:]
    ['default/a', '1', 'n1', '2.5', 'scheduled']
    """
    lines = []
    for record in records:
        time = datetime.fromtimestamp(record.at).strftime("%H:%M:%S.%f")[:-3]
        free = "" if record.free_before is None else f"{record.free_before:g}"
        lines.append((time, record.pod, str(record.attempt), record.node or "-", free, record.result, record.reasons))
    return table(("TIME", "POD", "TRY", "NODE", "FREE", "RESULT", "REASONS"), lines, right=(2, 4))


def _summary(records: list[Record], wrong: list[str]) -> list[str]:
    counts: dict[str, int] = {}
    for record in records:
        counts[record.result] = counts.get(record.result, 0) + 1
    told = ", ".join(f"{count} {result}" for result, count in sorted(counts.items())) or "none"
    return [f"replayed {len(records)} decisions ({told}): {len(wrong) or 'none'} broke the rules", *wrong]
