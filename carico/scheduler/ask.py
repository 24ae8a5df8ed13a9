"""The words `carico explain` and `carico simulate-placement`.

With `--server` a running scheduler is asked, which knows the Pod-Capacity of every node. Without it the objects are
read from the API server and judged here, by everything but Pod-Capacity. A pod that does not exist yet is first shown
to the API server, which says what it would store of it; the scheduler itself never needs the right to create pods.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import quote

import msgspec

from carico.clock import SystemClock
from carico.errors import CaricoError, UsageError
from carico.kube import binding, credentials, dry_run
from carico.kube.client import ApiError, Client
from carico.kube.objects import Pod
from carico.scheduler import manifest
from carico.scheduler.assembly import assemble
from carico.scheduler.explain import explain
from carico.scheduler.explanation import Explanation, as_table
from carico.scheduler.watches import Watches
from carico.settings import SchedulerSettings

PATIENCE = 30.0  # s for an answer
INVALID = (400, 422)  # the API server's answers to a pod that cannot be

log = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    if parser.prog.endswith("explain"):
        parser.add_argument("kind", choices=["pod"], help="what to explain")
        parser.add_argument("name", metavar="NAMESPACE/NAME", help="a pod of the cluster")
    else:
        parser.add_argument(
            "-f", "--file", required=True, metavar="FILE", help="YAML or JSON of a pod; - is standard input"
        )
        parser.add_argument("--feasible", action="store_true", help="only the names of all nodes that could take it")
    parser.add_argument("--json", action="store_true", help="JSON instead of a table")
    parser.add_argument("--server", metavar="URL", help="a running scheduler's pages, e.g. http://127.0.0.1:9467")
    parser.add_argument("--kubeconfig", type=Path, metavar="FILE", help="how to reach the API server")


def run(args: argparse.Namespace) -> int:
    if hasattr(args, "file"):
        return _show(args, asyncio.run(_simulated(args)))
    namespace, slash, name = args.name.partition("/")
    if not slash or not namespace or not name:
        raise UsageError(f"{args.name!r} is not of the form NAMESPACE/NAME, e.g. default/web-1")
    if args.server:
        return _show(args, _ask(args.server, f"/explain?pod={quote(args.name)}", None))
    return _show(args, asyncio.run(_here(args.kubeconfig, None, (namespace, name))))


async def _simulated(args: argparse.Namespace) -> Explanation:
    """Asks the API server first what it would store, with the rights of whoever runs this word."""
    wanted = manifest.read(args.file)
    stored, note = await _stored(args.kubeconfig, wanted, args.file)
    if args.server:
        result = _ask(args.server, "/simulate", msgspec.json.encode(stored))
    else:
        result = await _here(args.kubeconfig, manifest.as_pod(stored, args.file), None)
    result.notes = [*([note] if note else ()), *(told for told in result.notes if told != manifest.UNKNOWN)]
    return result


async def _stored(kubeconfig: Path | None, wanted: manifest.Plain, file: str) -> tuple[manifest.Plain, str]:
    """The pod as the API server would store it; else as it was written, with a sentence about what is missing in it."""
    try:
        client = Client(credentials.find(kubeconfig))
        try:
            return await dry_run.create_pod(client, wanted), ""
        finally:
            await client.close()
    except ApiError as error:
        if error.status in INVALID:
            raise UsageError(f"{file}: the API server would not take this pod: {error.message}") from error
        why = f"the API server refused to try out the pod's creation ({error.status} {error.message})"
    except (CaricoError, OSError) as error:
        why = f"no API server could be asked what it makes of the pod ({str(error) or type(error).__name__})"
    return wanted, f"{why}: {manifest.UNKNOWN}"


def _ask(server: str, path: str, body: bytes | None) -> Explanation:
    try:
        with urllib.request.urlopen(server.rstrip("/") + path, body, timeout=PATIENCE) as answer:
            return msgspec.json.decode(answer.read(), type=Explanation)
    except urllib.error.HTTPError as error:
        raise CaricoError(f"{server}: {error.read().decode(errors='replace').strip()}") from error
    except (OSError, ValueError) as error:
        raise CaricoError(f"{server}: no scheduler answers there ({error}); check --server") from error


async def _here(kubeconfig: Path | None, pod: Pod | None, name: tuple[str, str] | None) -> Explanation:
    """Reads the cluster once and judges with every default plugin but Capacity."""
    client = Client(credentials.find(kubeconfig))
    settings = SchedulerSettings(profiles={"carico": {"disable": ["Capacity"]}})
    clock = SystemClock()
    parts = assemble(settings, clock, client)
    watches = Watches(client, parts.cluster, clock)
    following = asyncio.create_task(watches.run())
    try:
        if name is not None:
            pod = await binding.get_pod(client, *name)
        async with asyncio.timeout(PATIENCE):
            await watches.synced()
        assert pod is not None
        log.info("Pod-Capacity is not considered here; ask a running scheduler with --server")
        return explain(parts, pod, clock.monotonic())
    except TimeoutError as error:
        raise CaricoError("the API server did not answer in time") from error
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await client.close()


def _show(args: argparse.Namespace, result: Explanation) -> int:
    if getattr(args, "feasible", False):
        for note in result.notes:
            log.warning("%s", note)
        names = [verdict.node for verdict in result.nodes if verdict.feasible]
        print(json.dumps(names) if args.json else "\n".join(names))
    elif args.json:
        print(msgspec.json.format(msgspec.json.encode(result)).decode())
    else:
        print(as_table(result))
    return 0
