"""Evicts a pod through the Eviction API, which keeps its PodDisruptionBudget.

Preemption does not use it: like kube-scheduler's, it deletes its victims, and prefers those whose budget allows it.

https://kubernetes.io/docs/concepts/scheduling-eviction/api-eviction/
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from carico.errors import ApiError
from carico.kube import pods
from carico.kube.client import Client, Fence
from carico.kube.objects import Pod

BUDGET_CAUSE = "DisruptionBudget"  # metav1.StatusCause of a 429 that is no rate limit
TWO_BUDGETS = "more than one PodDisruptionBudget"  # in the message of a 500 that no retry changes; it has no reason


class EvictionResult(Enum):
    ACCEPTED = "accepted"  # the pod is being deleted; in a dry run: it would be
    GONE = "gone"  # it was deleted, or re-created under its name
    DISALLOWED = "disallowed"  # by its PodDisruptionBudget now, or because it has several


class EvictionOutcome(NamedTuple):
    result: EvictionResult
    why: str = ""  # the API server's message
    retry_after: float = 0.0  # s, if the API server names a time


async def evict(
    client: Client, pod: Pod, *, grace: int | None = None, dry_run: bool = False, fence: Fence | None = None
) -> EvictionOutcome:
    """One attempt. ApiError and others: it is unknown whether the pod may be evicted, the attempt may be repeated.

    `grace` in s, None: the pod's own. A dry run is not charged to the budget: several pods may each get
    the answer that they could be evicted although not all of them can.
    """
    try:
        await pods.evict(client, pod, grace=grace, dry_run=dry_run, fence=fence)
    except ApiError as error:
        return await _outcome_of(client, pod, error)
    return EvictionOutcome(EvictionResult.ACCEPTED)


async def _outcome_of(client: Client, pod: Pod, error: ApiError) -> EvictionOutcome:
    if error.status == 404:
        return EvictionOutcome(EvictionResult.GONE, error.message)
    if error.status == 429 and BUDGET_CAUSE in error.causes:
        return EvictionOutcome(EvictionResult.DISALLOWED, error.causes[BUDGET_CAUSE], error.retry_after)
    if error.status == 500 and TWO_BUDGETS in error.message:
        return EvictionOutcome(EvictionResult.DISALLOWED, error.message)
    if error.status == 409 and await _is_another(client, pod):
        return EvictionOutcome(EvictionResult.GONE, error.message)
    raise error


async def _is_another(client: Client, pod: Pod) -> bool:
    """Whether the pod is gone or re-created; otherwise the conflict was one of concurrent writes."""
    try:
        return (await pods.read(client, pod.namespace, pod.name)).uid != pod.uid
    except ApiError as error:
        return error.status == 404
