"""Finds the pages of a running scheduler.

--server or $CARICO_SERVER has the address. Otherwise the Lease has the name of the leading pod, and `kubectl
port-forward` makes its pages reachable while the command runs. TLS and a token are used there only if the user names
the authority that must have signed the pod's certificate (for localhost): the Lease does not authenticate the pod.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import re
import shlex
import shutil
import signal
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple

from carico.errors import CaricoError, UsageError
from carico.flags import CommandParser
from carico.http.address import is_loopback
from carico.kube import flags, leader, url
from carico.kube.client import Client
from carico.kube.leader import Leader
from carico.scheduler.http import client as page_client
from carico.scheduler.http.client import PageClient
from carico.settings import LeaseSettings

log = logging.getLogger(__name__)

VARIABLE = "CARICO_SERVER"
NAME_ONE = f"name one with --server or ${VARIABLE}"
PORT = 9469  # default port of a scheduler's pages
LOOK = 10.0  # s: timeout for finding the leader, and for kubectl
FORWARDING = re.compile(rb"Forwarding from 127\.0\.0\.1:(\d+) ->")


class Pages(NamedTuple):
    client: PageClient | None = None
    why_not: str = ""  # why there is no client


def add_flags(parser: argparse.ArgumentParser) -> None:
    """--server and its TLS and token flags, --lease, and those of the cluster."""
    flags.add_cluster(parser)
    lease = f"{LeaseSettings.leader_elect_resource_namespace}/{LeaseSettings.leader_elect_resource_name}"
    group = parser.add_argument_group("Scheduler")
    default = f"${VARIABLE}, or those of the pod that holds the Lease"
    about = f"a scheduler's pages, with https:// beyond loopback (default: {default})"
    group.add_argument("--server", metavar="HOST:PORT", help=about)
    page_client.add_flags(group)
    about = f"the schedulers' Lease (default: {lease})"
    action = group.add_argument("--lease", metavar="NAMESPACE/NAME", default=lease, help=about)
    if isinstance(parser, CommandParser):
        parser.rare.append(action)


def named(args: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> str:
    """The URL of --server or of the variable, or an empty text."""
    server = args.server or environ.get(VARIABLE, "")
    return url_of(server, "--server" if args.server else f"${VARIABLE}") if server else ""


def url_of(server: str, where: str = "--server") -> str:
    """The default scheme is https beyond loopback: a scheduler accepts nothing else there.

    >>> url_of("127.0.0.1:9469"), url_of("http://[::1]:9469/"), url_of("carico.example:9469")
    ('http://127.0.0.1:9469', 'http://[::1]:9469', 'https://carico.example:9469')
    """
    with contextlib.suppress(ValueError):
        parsed = url.parse(server)
        scheme = "http" if is_loopback(parsed.host) else "https"
        if parsed.userinfo is None:
            return (server if "://" in server else f"{scheme}://{server}").rstrip("/")
    raise UsageError(f"{where} {server!r}: write it like 127.0.0.1:{PORT} or https://HOST:PORT")


def lease_of(args: argparse.Namespace) -> tuple[str, str]:
    namespace, slash, name = args.lease.partition("/")
    if not slash or not namespace or not name:
        raise UsageError(f"--lease {args.lease!r}: write it like kube-system/carico-scheduler")
    return namespace, name


@asynccontextmanager
async def reach(args: argparse.Namespace) -> AsyncIterator[Pages]:
    """The pages of the named scheduler or of the leader, while the context lasts."""
    async with _reach(args) as pages, pages.client or contextlib.nullcontext():
        yield pages


@asynccontextmanager
async def _reach(args: argparse.Namespace) -> AsyncIterator[Pages]:
    if address := named(args):
        _warn_of_another_cluster(address, args)
        yield Pages(page_client.named(address, args))
        return
    try:
        found = await _leader(args)
    except (CaricoError, OSError) as error:
        yield Pages(why_not=f"no scheduler was found: {str(error) or 'the API server does not answer'}")
        return
    if found is None or not found.holder:
        yield Pages(why_not=f"no scheduler was found: none holds the Lease {args.lease}; {NAME_ONE}")
    elif found.pod:
        async with _forward(args, found) as pages:
            yield pages
    elif found.holder.rpartition("_")[0] == socket.gethostname() and _listens():
        yield Pages(usual())
    else:
        yield Pages(why_not=f"{found.holder} leads, which is not a pod; name its pages with --server")


def _warn_of_another_cluster(address: str, args: argparse.Namespace) -> None:
    """For a shell in which the variable was set for one cluster, and a command that names another one."""
    flag = "--context" if args.context else "--kubeconfig" if args.kubeconfig else ""
    if flag and not args.server and url.parse(address).scheme == "http":  # over https the kubeconfig's token is used
        log.warning(
            "the scheduler is that of $%s, %s, not that of %s; unset $%s to ask that cluster's, or use --server",
            *(VARIABLE, address, flag, VARIABLE),
        )


def usual() -> PageClient:
    """A scheduler on this host, at its default address."""
    return page_client.plain(f"http://127.0.0.1:{PORT}")


async def _leader(args: argparse.Namespace) -> Leader | None:
    client = Client(flags.find(args))
    try:
        async with asyncio.timeout(LOOK):
            return await leader.find(client, *lease_of(args))
    finally:
        await client.close()


def _listens() -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", PORT)) == 0


@asynccontextmanager
async def _forward(args: argparse.Namespace, found: Leader) -> AsyncIterator[Pages]:
    chosen = [f"--kubeconfig={args.kubeconfig}"] if args.kubeconfig else []
    chosen += [f"--context={args.context}"] if args.context else []
    command = ["kubectl", *chosen, "-n", found.namespace, "port-forward", f"pod/{found.pod}"]
    by_hand = f"`{shlex.join([*command, f'{PORT}:{PORT}'])}` makes it reachable for --server 127.0.0.1:{PORT}"
    if shutil.which("kubectl") is None:
        yield Pages(why_not=f"pod {found.namespace}/{found.pod} leads, and there is no kubectl here; {by_hand}")
        return
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, f":{PORT}", stdout=pipe, stderr=pipe)
    try:
        port = await _port(process)
        if port and args.server_ca:
            hint = "if its debug_listen is on loopback, leave --server-ca out"
            yield Pages(page_client.named(f"https://localhost:{port}", args, hint=hint))
        elif port:
            hint = "if its debug_listen is beyond loopback, name its authority with --server-ca"
            yield Pages(page_client.plain(f"http://127.0.0.1:{port}", hint))
        else:
            why = await _complaint(process)
            yield Pages(why_not=f"pod {found.namespace}/{found.pod} leads, and cannot be reached: {why}; {by_hand}")
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL)
        await process.communicate()


async def _port(process: asyncio.subprocess.Process) -> int:
    """The local port that kubectl chose; 0 if it failed."""
    assert process.stdout is not None
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LOOK):
            while line := await process.stdout.readline():
                if match := FORWARDING.match(line):
                    return int(match[1])
    return 0


async def _complaint(process: asyncio.subprocess.Process) -> str:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    _, stderr = await process.communicate()
    lines = stderr.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "kubectl port-forward did not answer"
