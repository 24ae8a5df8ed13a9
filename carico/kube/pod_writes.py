"""What a scheduler writes to the status of waiting pods, and the evictions that make room for them.

Each write names the pod's UID: a pod re-created under the same name is not changed. The write for a pod that is gone
counts as done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from carico.clock import Clock
from carico.errors import ApiError, ChangedMeanwhile
from carico.kube import pods
from carico.kube.binding import NOT_THIS_POD, rfc3339
from carico.kube.client import Client, Fence
from carico.kube.objects import Pod
from carico.kube.writes import Urgency, Write, always, nothing

# s of failed attempts after which an eviction is given up: API servers and etcd restart faster. The preemptor is not
# tried meanwhile, not even on a new node.
EVICTION_PATIENCE = 60.0

OnEnd = Callable[[Exception | None], object]
Wanted = Callable[[], bool]


def condition(
    client: Client,
    pod: Pod,
    reason: str,
    message: str,
    clock: Clock,
    *,
    wanted: Wanted = always,
    on_end: OnEnd = nothing,
) -> Write:
    """PodScheduled=False, which users and autoscalers read.

    `wanted` must return False once the pod is bound: it would be marked as waiting again.
    """
    condition_patch = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    if not any(c.type == "PodScheduled" and c.status == "False" for c in pod.status.conditions):
        # Otherwise the stored time is kept: the pod has been waiting since then.
        condition_patch["lastTransitionTime"] = _seconds(clock)

    async def send(fence: Fence) -> None:
        await _patch_status(client, pod, {"conditions": [condition_patch]}, fence)

    return Write(("condition", pod.uid), Urgency.CONDITION, send, wanted, on_end)


def nomination(client: Client, pod: Pod, node: str, *, wanted: Wanted = always, on_end: OnEnd = nothing) -> Write:
    """The node that is reserved for the pod; an empty one clears the nomination."""

    async def send(fence: Fence) -> None:
        await _patch_status(client, pod, {"nominatedNodeName": node or None}, fence)

    return Write(("nomination", pod.uid), Urgency.NOMINATION, send, wanted, on_end)


def eviction(
    client: Client,
    victim: Pod,
    scheduler: str,
    clock: Clock,
    *,
    wanted: Wanted = always,
    on_end: OnEnd = nothing,
    on_accepted: Callable[[], object] = lambda: None,
    patience: float = EVICTION_PATIENCE,
) -> Write:
    """Deletes a victim of preemption, after a condition in its status. A partial attempt can be repeated in full.

    `on_accepted` is called if the API server accepts the deletion; `on_end` also if the pod is gone already.
    """
    condition_patch = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": f"{scheduler}: preempting to accommodate a higher priority pod",
        "lastTransitionTime": _seconds(clock),
    }

    marked = False

    async def send(fence: Fence) -> None:
        nonlocal marked
        if victim.terminating:
            return
        marked = marked or await _patch_status(client, victim, {"conditions": [condition_patch]}, fence)
        if not marked:
            return
        try:
            await pods.delete(client, victim, fence=fence)
        except ApiError as error:
            await _look(client, victim, error)
        else:
            on_accepted()

    return Write(("eviction", victim.uid), Urgency.EVICTION, send, wanted, on_end, patience)


async def _patch_status(client: Client, pod: Pod, status: dict[str, Any], fence: Fence) -> bool:
    """Whether the pod still exists. The writer has waited for the rate limit already."""
    try:
        await pods.patch_status(client, pod, status, urgent=True, fence=fence)
    except ApiError as error:
        await _look(client, pod, error)
        return False
    return True


async def _look(client: Client, pod: Pod, error: ApiError) -> None:
    """Returns if the pod is gone; otherwise the write was rejected for another reason, which is raised."""
    if error.status == 404:
        return
    if error.status not in NOT_THIS_POD:
        raise error
    try:
        present = await pods.read(client, pod.namespace, pod.name)
    except ApiError as missing:
        if missing.status == 404:
            return
        raise
    if present.uid != pod.uid:
        return
    if error.status == 409:
        raise ChangedMeanwhile(error.message) from error
    raise error


def _seconds(clock: Clock) -> str:
    return rfc3339(clock.wall())[:19] + "Z"
