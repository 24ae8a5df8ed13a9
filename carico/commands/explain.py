"""`carico explain`: why a pod runs where it runs, or does not; with `-f`, where a pod that does not exist would go.

It queries a running scheduler, which knows the Pod-Capacity of every node (scheduler/http/remote.py finds it). Where
none can be reached, it reads the objects from the API server and evaluates the pod here, with every plugin but
Pod-Capacity. A pod of a file is first sent to the API server as a dry-run create, which returns it as it would be
stored, with the rights of the user who runs this command; the scheduler itself never needs the right to create pods.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
from http import HTTPStatus
from urllib.parse import quote

import msgspec

from carico import output
from carico.clock import SystemClock
from carico.errors import ApiError, CaricoError, UsageError
from carico.kube import dry_run, flags, pods, server_info
from carico.kube.client import Client
from carico.kube.objects import Pod
from carico.scheduler.assembly import assemble
from carico.scheduler.http import manifest, remote
from carico.scheduler.http.client import PageClient
from carico.scheduler.http.explain import explain
from carico.scheduler.http.explanation import Explanation, as_table
from carico.scheduler.informers import Informers
from carico.settings import SchedulerSettings

PATIENCE = 30.0  # s: timeout of an answer
INVALID = (400, 422)  # status codes of the API server for an invalid pod

log = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = f"{parser.prog} {{POD | -f FILE}} [OPTION …]"
    about = "a pod of the cluster: web, pod/web, pod web or NAMESPACE/web"
    parser.add_argument("pod", nargs="*", metavar="POD", help=about)
    parser.add_argument(
        "-f", "--file", metavar="FILE", help="YAML or JSON of a pod: where it would go; - is standard input"
    )
    parser.add_argument("--feasible", action="store_true", help="print only the names of nodes that could take it")
    flags.add_namespace(parser)
    output.add_flag(parser, ("json", "yaml", "name", "wide"), name="nodes that could take the pod, the best first")
    remote.add_flags(parser)


def run(args: argparse.Namespace) -> int:
    if bool(args.pod) == bool(args.file):
        raise UsageError("give either a pod of the cluster or -f FILE; see `carico explain --help`")
    result = asyncio.run(_explain_file(args) if args.file else _explain(args))
    if args.feasible:
        _show_feasible(args, result)
    else:
        show(args, result)
    return 0


def _show_feasible(args: argparse.Namespace, result: Explanation) -> None:
    for note in result.notes:
        log.warning("%s", note)
    names = [verdict.node for verdict in result.nodes if verdict.feasible]
    print(json.dumps(names) if args.output == "json" else "\n".join(names))


async def _explain_file(args: argparse.Namespace) -> Explanation:
    wanted = manifest.read(args.file, args.namespace or flags.namespace_of(args))
    stored, note = await _dry_run(args, wanted)
    async with remote.reach(args) as pages:
        if pages.client is not None:
            result = await fetch(pages.client, "/simulate", msgspec.json.encode(stored))
        else:
            result = await evaluate_here(args, manifest.as_pod(stored, args.file), None, pages.why_not)
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


async def _explain(args: argparse.Namespace) -> Explanation:
    namespace, name = flags.pod_name(args.pod, args.namespace)
    if namespace is None:
        namespace = flags.namespace_of(args)
    async with remote.reach(args) as pages:
        if pages.client is not None:
            return await fetch(pages.client, f"/explain?pod={quote(f'{namespace}/{name}')}", None)
    return await evaluate_here(args, None, (namespace, name), pages.why_not)


async def fetch(client: PageClient, path: str, body: bytes | None) -> Explanation:
    answer = await client.fetch(path, body)
    try:
        return msgspec.json.decode(answer, type=Explanation)
    except msgspec.DecodeError as error:
        raise CaricoError(f"{client.url}: the server there is not a scheduler ({error}); check --server") from error


async def evaluate_here(
    args: argparse.Namespace, pod: Pod | None, name: tuple[str, str] | None, why_here: str
) -> Explanation:
    """Reads the cluster once and evaluates the pod with every default plugin but Capacity."""
    client = Client(flags.find(args))
    try:
        return await _evaluated(client, pod, name, why_here)
    finally:
        await client.close()


async def _evaluated(client: Client, pod: Pod | None, name: tuple[str, str] | None, why_here: str) -> Explanation:
    if name is not None:
        pod = await _pod(client, *name)
    else:
        with contextlib.suppress(msgspec.DecodeError):
            await server_info.read(client)  # each watch would log that there is no API server
    settings = SchedulerSettings(profiles={"carico": {"disable": ["Capacity"]}})
    clock = SystemClock()
    parts = assemble(settings, clock, client)
    watches = Informers(client, parts.cluster, clock, registered=parts.registrations.kinds)
    following = asyncio.create_task(watches.run())
    try:
        async with asyncio.timeout(PATIENCE):
            await watches.wait_for_sync()
        assert pod is not None
        result = explain(parts, pod, clock.monotonic())
        result.waits_in = ""  # it would be the queue that was made here for this answer
        result.notes.append(f"Pod-Capacity, which only a running scheduler knows, is not considered: {why_here}")
        return result
    except TimeoutError as error:
        raise CaricoError("the API server did not answer in time") from error
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def _pod(client: Client, namespace: str, name: str) -> Pod:
    try:
        return await pods.read(client, namespace, name)
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        raise CaricoError(f"there is no pod {namespace}/{name}") from error


def show(args: argparse.Namespace, result: Explanation) -> None:
    if args.output == "name":
        best_first = sorted(result.nodes, key=lambda verdict: (-verdict.total, verdict.node))
        print("".join(f"node/{verdict.node}\n" for verdict in best_first if verdict.feasible), end="")
    elif args.output in ("json", "yaml"):
        output.show(args.output, result)
    else:
        print(as_table(result, wide=args.output == "wide"))
