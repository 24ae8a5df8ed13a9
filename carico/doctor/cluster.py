"""The API server: whether it is reachable, the scheduler's rights, the leader, the nodes, and the clocks."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from carico.clock import SystemClock
from carico.doctor.finding import Finding, ok, problem
from carico.errors import ApiError, CaricoError, UsageError
from carico.kube import credentials, leases, nodes, reviews, server_info
from carico.kube.client import Client
from carico.kube.rights import Right, rights
from carico.scheduler import enabled_parts
from carico.scheduler.assembly import registered_calls
from carico.settings import SchedulerSettings

CLOCK_LIMIT = 5.0  # s between this machine and the API server, whose Date header has whole seconds
SHOWN = 4  # of a list of names


async def look(settings: SchedulerSettings, context: str | None = None) -> list[Finding]:
    named = settings.kubeconfig is not None or context is not None
    try:
        found = credentials.find(settings.kubeconfig, context=context, exec_in_pod=settings.exec_in_pod)
        client = Client(found, agent="carico-doctor")
    except (UsageError, CaricoError) as error:
        return [
            problem(
                "api server",
                str(error),
                "set --kubeconfig; `carico cluster create` makes a cluster on this machine",
                needed=named,
            )
        ]
    try:
        return await _review_rights(client, settings, named)
    finally:
        await client.close()


async def _review_rights(client: Client, settings: SchedulerSettings, named: bool) -> list[Finding]:
    try:
        async with asyncio.timeout(10):
            server = await server_info.read(client)
        found = [ok("api server", f"Kubernetes {server.version}")]
    except (CaricoError, OSError, msgspec.DecodeError) as error:
        why = str(error) or "no answer in 10 s"
        return [
            problem(
                "api server", why, "check the address in the kubeconfig, the network and the certificates", needed=named
            )
        ]
    found.append(_clock(server.date))
    found += await asyncio.gather(_rights(client, settings), _lease(client, settings), _nodes(client))
    return found


def _clock(date: str) -> Finding:
    try:
        away = time.time() - parsedate_to_datetime(date).timestamp()
    except ValueError:
        return ok("clocks", "the API server does not say what time it is")
    if abs(away) > CLOCK_LIMIT:
        return problem(
            "clocks",
            f"{abs(away):.0f} s {'ahead of' if away > 0 else 'behind'} the API server",
            "start a time service (chrony, systemd-timesyncd); Carico itself compares no clocks",
            needed=False,
        )
    return ok("clocks", "this machine and the API server agree")


async def _rights(client: Client, settings: SchedulerSettings) -> Finding:
    where, lease = settings.leader_elect_resource_namespace, settings.leader_elect_resource_name
    needed_rights = rights(enabled_parts.parts(settings), where, lease, also=registered_calls(settings))
    try:
        answers = await asyncio.gather(*(_may(client, right) for right in needed_rights))
    except (CaricoError, OSError, ValueError) as error:  # ValueError: the response is not an API server's
        return problem(
            "rights", f"cannot be checked: {error}", "allow create on selfsubjectaccessreviews", needed=False
        )
    found = zip(needed_rights, answers, strict=True)
    denied = list(dict.fromkeys(str(right) for right, allowed in found if not allowed))
    if denied:
        more = f" and {len(denied) - SHOWN} more" if len(denied) > SHOWN else ""
        return problem(
            "rights",
            f"may not {', '.join(denied[:SHOWN])}{more}",
            "give this user or service account these rights in a ClusterRole",
            needed=True,
        )
    return ok("rights", f"all {len(needed_rights)} that the scheduler needs")


async def _may(client: Client, right: Right) -> bool:
    return await reviews.self_access(client, {name: value for name, value in right._asdict().items() if value})


async def _lease(client: Client, settings: SchedulerSettings) -> Finding:
    namespace, lease = settings.leader_elect_resource_namespace, settings.leader_elect_resource_name
    name = f"{namespace}/{lease}"
    start = "start `carico scheduler`, or see its log for why it does not lead. --no-leader-elect uses no Lease"
    try:
        spec = msgspec.json.decode(await leases.read(client, namespace, lease), type=dict[str, Any])["spec"]
        holder, renewed = spec.get("holderIdentity") or "", datetime.fromisoformat(spec["renewTime"]).timestamp()
    except ApiError as error:
        why = f"there is no Lease {name}" if error.status == 404 else str(error)
        return problem("leader", why, start, needed=False)
    except (CaricoError, OSError, KeyError, TypeError, ValueError) as error:
        return problem("leader", f"the Lease {name} cannot be read: {error}", start, needed=False)
    age = SystemClock().wall() - renewed
    if not holder or age > settings.leader_elect_lease_duration:
        return problem("leader", f"no scheduler holds {name}; it was renewed {age:.0f} s ago", start, needed=False)
    return ok("leader", f"{holder} holds {name}, renewed {max(0.0, age):.0f} s ago")


async def _nodes(client: Client) -> Finding:
    try:
        items = await nodes.read_all(client)
    except (CaricoError, OSError, ValueError) as error:
        return problem("nodes", str(error), "allow list on nodes", needed=False)
    if not items:
        return problem(
            "nodes", "the cluster has none", "join a node; `carico demo` makes this machine one", needed=False
        )
    unready = [item["metadata"]["name"] for item in items if not _ready(item)]
    if unready:
        shown = ", ".join(unready[:SHOWN]) + (" …" if len(unready) > SHOWN else "")
        return problem(
            "nodes",
            f"{len(unready)} of {len(items)} are not ready: {shown}",
            "`kubectl describe node` shows why",
            needed=False,
        )
    return ok("nodes", f"{len(items)} of {len(items)} are ready")


def _ready(node: dict[str, Any]) -> bool:
    conditions = node.get("status", {}).get("conditions") or []
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)
