"""The binding of a pod to a node.

A binding may reach the API server twice (a broken connection hides the answer). A conflict is therefore looked into:
bound to the node that we chose is success, anything else is somebody else's decision.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from enum import Enum
from urllib.parse import quote

import msgspec

from carico.clock import Clock
from carico.errors import CaricoError
from carico.kube import protobuf
from carico.kube.chunked import HttpError
from carico.kube.client import ApiError, Client
from carico.kube.objects import Pod

RETRIES = 4  # times that a binding is sent again after 429, 5xx or a broken connection
NOT_THIS_POD = (404, 409, 422)  # answers to a write that names a UID: the pod is gone, or made anew under its name
FIRST_WAIT = 0.1  # s before the first of them, doubled each time

_pod = msgspec.json.Decoder(Pod)


class Bound(Enum):
    """What became of a binding."""

    DONE = "done"
    GONE = "gone"  # the pod was deleted, or made anew under its name
    ELSEWHERE = "elsewhere"  # somebody else bound it first
    FAILED = "failed"  # the API server does not take it now; the pod waits and is tried again


class Outcome(msgspec.Struct, frozen=True):
    bound: Bound
    why: str = ""


DONE = Outcome(Bound.DONE)


def pod_path(pod: Pod, sub: str = "") -> str:
    return f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}{sub}"


def now_text(wall: float) -> str:
    """
    >>> now_text(0.25)
    '1970-01-01T00:00:00.250000Z'
    """
    return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


async def bind(
    client: Client, pod: Pod, node: str, clock: Clock, may_bind: Callable[[], bool] = lambda: True
) -> Outcome:
    """`may_bind` is asked right before each try: the Lease may be lost while this one waits for its turn."""
    meta = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    thing = {"metadata": meta, "target": target}
    path = pod_path(pod, "/binding")
    wait, why = FIRST_WAIT, ""
    for _ in range(RETRIES + 1):
        pause = wait
        await client.turn()
        if not may_bind():
            return Outcome(Bound.FAILED, "this replica no longer leads")
        try:
            await client.create(path, protobuf.BINDING, thing, urgent=True)
            return DONE
        except ApiError as error:
            if error.status in (404, 409):
                return await _look(client, pod, node, error)
            if error.status != 429 and error.status < 500:
                return Outcome(Bound.FAILED, error.message)
            why, pause = str(error), max(wait, error.retry_after)
        except (HttpError, OSError) as error:
            why = str(error) or type(error).__name__
        await clock.sleep(pause)
        wait *= 2
    return await _look(client, pod, node, CaricoError(why))


async def _look(client: Client, pod: Pod, node: str, cause: CaricoError) -> Outcome:
    """What the API server has of the pod now."""
    try:
        present = _pod.decode(await client.call("GET", pod_path(pod)))
    except ApiError as error:
        return Outcome(Bound.GONE if error.status == 404 else Bound.FAILED, str(cause))
    except (HttpError, OSError):
        return Outcome(Bound.FAILED, str(cause))
    if present.uid != pod.uid or present.terminating:
        return Outcome(Bound.GONE, str(cause))
    if not present.spec.node_name:
        return Outcome(Bound.FAILED, str(cause))
    if present.spec.node_name == node:
        return Outcome(Bound.DONE)
    return Outcome(Bound.ELSEWHERE, f"it runs on {present.spec.node_name} already")


async def get_pod(client: Client, namespace: str, name: str) -> Pod:
    return _pod.decode(await client.call("GET", f"/api/v1/namespaces/{quote(namespace)}/pods/{quote(name)}"))
