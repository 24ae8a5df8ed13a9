"""The API server: whether it is reachable, the scheduler's rights, the leader, the nodes, and the clocks."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

import msgspec

from carico.clock import SystemClock
from carico.doctor.finding import Finding, ok, wanting
from carico.errors import CaricoError, UsageError
from carico.http.address import is_loopback, split_address
from carico.kube import credentials
from carico.kube.client import ApiError, Client
from carico.kube.paths import segment
from carico.scheduler.informers import NODES, OTHERS, PODS
from carico.settings import SchedulerSettings

CLOCK_LIMIT = 5.0  # s between this machine and the API server, whose Date header has whole seconds
SHOWN = 4  # of a list of names


class Right(NamedTuple):
    verb: str
    group: str
    resource: str
    subresource: str = ""
    namespace: str = ""  # all of them

    def __str__(self) -> str:
        name = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        return f"{self.verb} {name}{f'.{self.group}' if self.group else ''}"


# Of the ClusterRole system:auth-delegator, to authenticate and authorise callers of the private pages.
REVIEWS = [
    Right("create", "authentication.k8s.io", "tokenreviews"),
    Right("create", "authorization.k8s.io", "subjectaccessreviews"),
]


def rights(settings: SchedulerSettings) -> list[Right]:
    """All rights that the scheduler needs in the API server."""
    needed = [resource.path for resource in OTHERS if not resource.optional]
    followed = [_followed(path) for path in (NODES.path, PODS.path, *needed)]
    lease = [
        Right(verb, "coordination.k8s.io", "leases", "", settings.leader_elect_resource_namespace)
        for verb in ("get", "create", "update")
    ]
    return [
        *(Right(verb, *where) for where in followed for verb in ("list", "watch")),
        Right("get", "", "pods"),  # after a binding whose response was lost
        Right("create", "", "pods", "binding"),
        Right("patch", "", "pods", "status"),
        Right("delete", "", "pods"),
        Right("create", "events.k8s.io", "events"),
        Right("patch", "events.k8s.io", "events"),
        Right("patch", "", "persistentvolumeclaims"),
        Right("patch", "", "persistentvolumes"),
        *lease,
        *([Right("patch", "", "nodes")] if settings.extender_listen else []),  # writes free capacity for kube-scheduler
        *([] if is_loopback(split_address(settings.debug_listen)[0]) else REVIEWS),
    ]


def _followed(path: str) -> tuple[str, str]:
    """
    >>> _followed("/api/v1/pods"), _followed("/apis/apps/v1/replicasets")
    (('', 'pods'), ('apps', 'replicasets'))
    """
    words = path.strip("/").split("/")
    return ("", words[-1]) if words[0] == "api" else (words[1], words[-1])


async def look(settings: SchedulerSettings, context: str | None = None) -> list[Finding]:
    named = settings.kubeconfig is not None or context is not None
    try:
        found = credentials.find(settings.kubeconfig, context=context, exec_in_pod=settings.exec_in_pod)
        client = Client(found, agent="carico-doctor")
    except (UsageError, CaricoError) as error:
        return [
            wanting(
                "api server",
                str(error),
                "set --kubeconfig; `carico cluster create` makes a cluster on this machine",
                needed=named,
            )
        ]
    try:
        return await _ask(client, settings, named)
    finally:
        await client.close()


async def _ask(client: Client, settings: SchedulerSettings, named: bool) -> list[Finding]:
    try:
        async with asyncio.timeout(10):
            answer = await client.exchange("GET", "/version")
        version = msgspec.json.decode(answer.body, type=dict[str, Any]).get("gitVersion", "of unknown version")
        found = [ok("api server", f"Kubernetes {version}")]
    except (CaricoError, OSError, msgspec.DecodeError) as error:
        why = str(error) or "no answer in 10 s"
        return [
            wanting(
                "api server", why, "check the address in the kubeconfig, the network and the certificates", needed=named
            )
        ]
    found.append(_clock(answer.headers.get(b"date", b"").decode("latin-1")))
    found += await asyncio.gather(_rights(client, settings), _lease(client, settings), _nodes(client))
    return found


def _clock(date: str) -> Finding:
    try:
        away = time.time() - parsedate_to_datetime(date).timestamp()
    except ValueError:
        return ok("clocks", "the API server does not say what time it is")
    if abs(away) > CLOCK_LIMIT:
        return wanting(
            "clocks",
            f"{abs(away):.0f} s {'ahead of' if away > 0 else 'behind'} the API server",
            "start a time service (chrony, systemd-timesyncd); Carico itself compares no clocks",
            needed=False,
        )
    return ok("clocks", "this machine and the API server agree")


async def _rights(client: Client, settings: SchedulerSettings) -> Finding:
    asked = rights(settings)
    try:
        answers = await asyncio.gather(*(_may(client, right) for right in asked))
    except (CaricoError, OSError, ValueError) as error:  # ValueError: what answers is no API server
        return wanting(
            "rights", f"cannot be asked for: {error}", "allow create on selfsubjectaccessreviews", needed=False
        )
    denied = [str(right) for right, allowed in zip(asked, answers, strict=True) if not allowed]
    if denied:
        more = f" and {len(denied) - SHOWN} more" if len(denied) > SHOWN else ""
        return wanting(
            "rights",
            f"may not {', '.join(denied[:SHOWN])}{more}",
            "give this user or service account these rights in a ClusterRole",
            needed=True,
        )
    return ok("rights", f"all {len(asked)} that the scheduler needs")


async def _may(client: Client, right: Right) -> bool:
    attributes = {name: value for name, value in right._asdict().items() if value}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    answer = msgspec.json.decode(await client.call("POST", path, msgspec.json.encode(body)), type=dict[str, Any])
    return bool(answer.get("status", {}).get("allowed"))


async def _lease(client: Client, settings: SchedulerSettings) -> Finding:
    namespace, lease = settings.leader_elect_resource_namespace, settings.leader_elect_resource_name
    name = f"{namespace}/{lease}"
    path = f"/apis/coordination.k8s.io/v1/namespaces/{segment(namespace)}/leases/{segment(lease)}"
    start = "start `carico scheduler`; its log says why it does not lead. With --no-leader-elect there is no Lease"
    try:
        spec = msgspec.json.decode(await client.call("GET", path), type=dict[str, Any])["spec"]
        holder, renewed = spec.get("holderIdentity") or "", datetime.fromisoformat(spec["renewTime"]).timestamp()
    except ApiError as error:
        why = f"there is no Lease {name}" if error.status == 404 else str(error)
        return wanting("leader", why, start, needed=False)
    except (CaricoError, OSError, KeyError, TypeError, ValueError) as error:
        return wanting("leader", f"the Lease {name} cannot be read: {error}", start, needed=False)
    age = SystemClock().wall() - renewed
    if not holder or age > settings.leader_elect_lease_duration:
        return wanting("leader", f"no scheduler holds {name}; it was renewed {age:.0f} s ago", start, needed=False)
    return ok("leader", f"{holder} holds {name}, renewed {max(0.0, age):.0f} s ago")


async def _nodes(client: Client) -> Finding:
    try:
        listed = msgspec.json.decode(await client.call("GET", "/api/v1/nodes"), type=dict[str, Any])
        items = listed.get("items") or []
    except (CaricoError, OSError, ValueError) as error:
        return wanting("nodes", str(error), "allow list on nodes", needed=False)
    if not items:
        return wanting(
            "nodes", "the cluster has none", "join a node; `carico demo` makes this machine one", needed=False
        )
    unready = [item["metadata"]["name"] for item in items if not _ready(item)]
    if unready:
        shown = ", ".join(unready[:SHOWN]) + (" …" if len(unready) > SHOWN else "")
        return wanting(
            "nodes",
            f"{len(unready)} of {len(items)} are not ready: {shown}",
            "`kubectl describe node` says why",
            needed=False,
        )
    return ok("nodes", f"{len(items)} of {len(items)} are ready")


def _ready(node: dict[str, Any]) -> bool:
    conditions = node.get("status", {}).get("conditions") or []
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)
