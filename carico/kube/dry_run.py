"""What the API server would store of a new pod, without storing it."""

from __future__ import annotations

from typing import Any

from carico.errors import ApiError
from carico.kube import pods
from carico.kube.client import Client

TAKEN = 409  # HTTP Conflict: another object has this name


async def create_pod(client: Client, pod: dict[str, Any]) -> dict[str, Any]:
    """The pod with all defaults and all that admission sets; ApiError if the API server would reject it.

    A pod of the same name may exist, because users ask about manifests that they have applied already. That conflict
    does not show where such a pod would go, so the request is repeated with a name that the API server generates.
    """
    try:
        return await _create(client, pod)
    except ApiError as error:
        name = pod["metadata"].get("name")
        if error.status != TAKEN or not name:
            raise
    meta = {key: value for key, value in pod["metadata"].items() if key != "name"} | {"generateName": f"{name}-"}
    stored = await _create(client, pod | {"metadata": meta})
    stored["metadata"]["name"] = name
    return stored


async def _create(client: Client, pod: dict[str, Any]) -> dict[str, Any]:
    return await pods.create(client, pod["metadata"]["namespace"], pod, dry_run=True)
