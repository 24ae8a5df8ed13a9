"""`carico simulate-placement`: where a pod would go, without creating it.

The pod is first sent to the API server as a dry-run create, which returns it as it would be stored; the scheduler
itself never needs the right to create pods. The rest is the same as `carico explain`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging

import msgspec

from carico.commands import explain
from carico.errors import ApiError, CaricoError, UsageError
from carico.kube import dry_run, flags
from carico.kube.client import Client
from carico.scheduler.http import manifest, remote
from carico.scheduler.http.explanation import Explanation

INVALID = (400, 422)  # status codes of the API server for an invalid pod

log = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = f"{parser.prog} -f FILE [OPTION …]"
    parser.add_argument(
        "-f", "--file", required=True, metavar="FILE", help="YAML or JSON of a pod; - is standard input"
    )
    parser.add_argument("--feasible", action="store_true", help="print only the names of nodes that could take it")
    explain.add_common(parser)


def run(args: argparse.Namespace) -> int:
    result = asyncio.run(_simulate(args))
    if args.feasible:
        _show_feasible(args, result)
    else:
        explain.show(args, result)
    return 0


def _show_feasible(args: argparse.Namespace, result: Explanation) -> None:
    for note in result.notes:
        log.warning("%s", note)
    names = [verdict.node for verdict in result.nodes if verdict.feasible]
    print(json.dumps(names) if args.output == "json" else "\n".join(names))


async def _simulate(args: argparse.Namespace) -> Explanation:
    """Starts with a dry-run create, with the rights of the user who runs this command."""
    wanted = manifest.read(args.file, args.namespace or flags.namespace_of(args))
    stored, note = await _dry_run(args, wanted)
    async with remote.reach(args) as pages:
        if pages.client is not None:
            result = await explain.fetch(pages.client, "/simulate", msgspec.json.encode(stored))
        else:
            result = await explain.evaluate_here(args, manifest.as_pod(stored, args.file), None, pages.why_not)
    result.notes = [
        *([note] if note else ()),
        *(kept_note for kept_note in result.notes if kept_note != manifest.UNKNOWN),
    ]
    return result


async def _dry_run(args: argparse.Namespace, wanted: manifest.Plain) -> tuple[manifest.Plain, str]:
    """The pod as the API server would store it; else as in the file, with a sentence about what is missing in it."""
    try:
        client = Client(flags.find(args))
        try:
            return await dry_run.create_pod(client, wanted), ""
        finally:
            await client.close()
    except ApiError as error:
        if error.status in INVALID:
            raise UsageError(f"{args.file}: the API server would not take this pod: {error.message}") from error
        why = f"the API server refused to try out the pod's creation ({error.status} {error.message})"
    except (CaricoError, OSError) as error:
        why = f"no API server could apply its defaults to the pod ({str(error) or type(error).__name__})"
    return wanted, f"{why}: {manifest.UNKNOWN}"
