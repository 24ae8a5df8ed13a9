"""`carico explain` and `carico simulate-placement`.

Both ask a running scheduler, which knows the Pod-Capacity of every node (remote.py finds it). Where none can be
reached, they read the objects from the API server and evaluate the pod here, with every plugin but Pod-Capacity. A pod
that does not exist yet is first sent to the API server as a dry-run create, which returns it as it would be stored; the
scheduler itself never needs the right to create pods.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
from http import HTTPStatus
from urllib.parse import quote

import msgspec

from carico import output
from carico.clock import SystemClock
from carico.errors import CaricoError, UsageError
from carico.kube import binding, dry_run, flags
from carico.kube.client import ApiError, Client
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
    if parser.prog.endswith("explain"):
        parser.usage = f"{parser.prog} POD [OPTION …]"
        about = "a pod of the cluster: web, pod/web, pod web or NAMESPACE/web"
        parser.add_argument("pod", nargs="+", metavar="POD", help=about)
    else:
        parser.usage = f"{parser.prog} -f FILE [OPTION …]"
        parser.add_argument(
            "-f", "--file", required=True, metavar="FILE", help="YAML or JSON of a pod; - is standard input"
        )
        parser.add_argument("--feasible", action="store_true", help="print only the names of nodes that could take it")
    flags.add_namespace(parser)
    output.add_flag(parser, ("json", "yaml", "name", "wide"), name="nodes that could take the pod, the best first")
    remote.add_flags(parser)


def run(args: argparse.Namespace) -> int:
    return _show(args, asyncio.run(_simulated(args) if hasattr(args, "file") else _explained(args)))


async def _explained(args: argparse.Namespace) -> Explanation:
    namespace, name = flags.pod_name(args.pod, args.namespace)
    if namespace is None:
        namespace = flags.namespace_of(args)
    async with remote.reach(args) as pages:
        if pages.client is not None:
            return await _ask(pages.client, f"/explain?pod={quote(f'{namespace}/{name}')}", None)
    return await _here(args, None, (namespace, name), pages.why_not)


async def _simulated(args: argparse.Namespace) -> Explanation:
    """Starts with a dry-run create, with the rights of the user who runs this command."""
    wanted = manifest.read(args.file, args.namespace or flags.namespace_of(args))
    stored, note = await _stored(args, wanted)
    async with remote.reach(args) as pages:
        if pages.client is not None:
            result = await _ask(pages.client, "/simulate", msgspec.json.encode(stored))
        else:
            result = await _here(args, manifest.as_pod(stored, args.file), None, pages.why_not)
    result.notes = [*([note] if note else ()), *(told for told in result.notes if told != manifest.UNKNOWN)]
    return result


async def _stored(args: argparse.Namespace, wanted: manifest.Plain) -> tuple[manifest.Plain, str]:
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
        why = f"no API server could be asked what it makes of the pod ({str(error) or type(error).__name__})"
    return wanted, f"{why}: {manifest.UNKNOWN}"


async def _ask(client: PageClient, path: str, body: bytes | None) -> Explanation:
    answer = await client.ask(path, body)
    try:
        return msgspec.json.decode(answer, type=Explanation)
    except msgspec.DecodeError as error:
        raise CaricoError(f"{client.url}: what answers there is no scheduler ({error}); check --server") from error


async def _here(args: argparse.Namespace, pod: Pod | None, name: tuple[str, str] | None, why_here: str) -> Explanation:
    """Reads the cluster once and evaluates the pod with every default plugin but Capacity."""
    client = Client(flags.find(args))
    settings = SchedulerSettings(profiles={"carico": {"disable": ["Capacity"]}})
    clock = SystemClock()
    parts = assemble(settings, clock, client)
    watches = Informers(client, parts.cluster, clock)
    following = asyncio.create_task(watches.run())
    try:
        if name is not None:
            pod = await _pod(client, *name)
        async with asyncio.timeout(PATIENCE):
            await watches.synced()
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
        await client.close()


async def _pod(client: Client, namespace: str, name: str) -> Pod:
    try:
        return await binding.get_pod(client, namespace, name)
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        raise CaricoError(f"there is no pod {namespace}/{name}") from error


def _show(args: argparse.Namespace, result: Explanation) -> int:
    if getattr(args, "feasible", False):
        for note in result.notes:
            log.warning("%s", note)
        names = [verdict.node for verdict in result.nodes if verdict.feasible]
        print(json.dumps(names) if args.output == "json" else "\n".join(names))
    elif args.output == "name":
        best_first = sorted(result.nodes, key=lambda verdict: (-verdict.total, verdict.node))
        print("".join(f"node/{verdict.node}\n" for verdict in best_first if verdict.feasible), end="")
    elif args.output in ("json", "yaml"):
        output.show(args.output, result)
    else:
        print(as_table(result, wide=args.output == "wide"))
    return 0
