"""A node that is this machine, under an API server, for tests of it."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from carico.clock import SystemClock
from carico.embedded.apiserver.server import ApiServer
from carico.embedded.node.process import run
from carico.errors import ApiError
from carico.kube import credentials
from carico.kube.client import Client

NODE = "this-machine"
PATIENCE = 60.0  # s; on a busy machine


class Place:
    """A namespace of an API server, and the folder and socket of the node."""

    def __init__(self, client: Client, namespace: str, folder: Path) -> None:
        self.client, self.namespace, self.folder = client, namespace, folder

    @property
    def socket(self) -> Path:
        return self.folder / "cri.sock"

    def log(self, pod: dict[str, Any], container: str = "main") -> str:
        text: str = (self.folder / "logs" / pod["metadata"]["uid"] / f"{container}.log").read_text()
        return text

    async def call(self, method: str, path: str, body: object = None) -> Any:
        raw = msgspec.json.encode(body) if body is not None else b""
        return msgspec.json.decode(await self.client.call(method, path, raw))

    def path(self, name: str = "", sub: str = "") -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods" + (f"/{name}" if name else "") + sub

    async def pod(self, name: str, *argv: str, container: Any = None, node: str = NODE, **spec: Any) -> dict[str, Any]:
        """Creates a pod on the node; `container` and `spec` take more, written as in YAML."""
        one = {"name": "main", "image": "none", "command": list(argv)} | (container or {})
        whole = {"nodeName": node, "containers": [one], "restartPolicy": "Never"} | spec
        made: dict[str, Any] = await self.call("POST", self.path(), {"metadata": {"name": name}, "spec": whole})
        return made

    async def get(self, name: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = await self.call("GET", self.path(name))
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        return found

    async def until(self, name: str, holds: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """The pod as soon as `holds` of it."""
        seen: dict[str, Any] | None = None
        try:
            async with asyncio.timeout(PATIENCE):
                while True:
                    seen = await self.get(name)
                    if seen is not None and holds(seen):
                        return seen
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"pod {name} did not reach that state: {seen and seen.get('status')}") from None

    async def until_phase(self, name: str, phase: str) -> dict[str, Any]:
        return await self.until(name, lambda pod: pod["status"].get("phase") == phase)

    async def until_gone(self, name: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while True:
                if await self.get(name) is None:
                    return
                await asyncio.sleep(0.02)

    async def delete(self, name: str, grace: int | None = None) -> None:
        body = {} if grace is None else {"gracePeriodSeconds": grace}
        await self.call("DELETE", self.path(name), {"apiVersion": "v1", "kind": "DeleteOptions"} | body)


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110 - what is waited for is in another process
            await asyncio.sleep(0.02)


def state(pod: dict[str, Any], container: str = "main") -> dict[str, Any]:
    statuses = pod["status"]["containerStatuses"]
    found: dict[str, Any] = next(one for one in statuses if one["name"] == container)["state"]
    return found


@asynccontextmanager
async def node(kubeconfig: Path, namespace: str = "default", name: str = NODE) -> AsyncIterator[Place]:
    """The node, in this process. A short folder name: a socket's path may have 107 characters."""
    client = Client(credentials.from_kubeconfig(kubeconfig))
    stop = asyncio.Event()
    with tempfile.TemporaryDirectory(prefix="node-") as folder:
        place = Place(client, namespace, Path(folder))
        running = asyncio.create_task(run(kubeconfig, name, place.socket, place.folder, stop))
        try:
            await _registered(place, name, running)
            yield place
        finally:
            stop.set()
            await running
            await client.close()


async def _registered(place: Place, name: str, running: asyncio.Task[None]) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            if running.done():
                running.result()
            try:
                found = await place.call("GET", f"/api/v1/nodes/{name}")
                if found.get("status", {}).get("conditions"):
                    # Its lease is made last, a request after its status.
                    await place.call("GET", f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}")
                    return
            except ApiError:
                pass
            await asyncio.sleep(0.02)


def play(scenario: Callable[[Place], Awaitable[None]], folder: Path) -> None:
    """Runs a scenario under the embedded API server."""

    async def whole() -> None:
        async with ApiServer(SystemClock()) as server:
            server.kubeconfig(folder / "kubeconfig")
            async with node(folder / "kubeconfig") as place:
                await scenario(place)

    asyncio.run(whole())
