"""Nodes that do not exist, to see the scheduler and its page with many of them.

    python -m carico.embedded.simulated --kubeconfig FILE --nodes 1000 --schedulers 127.0.0.1:9468

Each is a Node object, a kubelet whose pods are only simulated (kubelet.py) and an agent that reports to the
schedulers as a real one does (agent.py). API server and schedulers are real processes with real connections.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import logging
import random
import sys
from pathlib import Path
from typing import Any

from carico import __version__, logs
from carico.clock import Clock, SystemClock
from carico.embedded.simulated.agent import SimulatedAgent
from carico.embedded.simulated.kubelet import SimulatedKubelet
from carico.errors import ApiError, CaricoError
from carico.kube import credentials, nodes
from carico.kube.binding import rfc3339
from carico.kube.client import Client
from carico.process import call_on_stop_signals
from carico.settings import TlsFiles
from carico.types import NodeSize
from carico.wire.channel import Dialer

log = logging.getLogger("carico.embedded.simulated")

GROUP = 250  # agents that share a gRPC connection and a certificate with all their names: longer ones are rejected
MARK = "carico.dev/simulated"
PREFIX = "sim-"
GIB = 1 << 30


def node_names(nodes: int, prefix: str = PREFIX) -> list[str]:
    """
    >>> node_names(2)
    ['sim-0000', 'sim-0001']
    """
    width = max(4, len(str(nodes - 1)))
    return [f"{prefix}{i:0{width}d}" for i in range(nodes)]


class Plan:
    """How many nodes, and how large they are. The same seed gives the same nodes."""

    def __init__(self, nodes: int, prefix: str = PREFIX, least: float = 8, most: float = 32, seed: int = 1) -> None:
        chance = random.Random(seed)
        self.rooms = {name: float(round(chance.uniform(least, most))) for name in node_names(nodes, prefix)}
        self.size = NodeSize(cores=32, memory_bytes=256 * GIB)


def group_files(tls: TlsFiles, group: int) -> TlsFiles:
    """The files of one group of nodes: `{}` in a name is replaced by its number.

    >>> group_files(TlsFiles(tls_cert=Path("sim-{}.pem")), 3).tls_cert
    PosixPath('sim-3.pem')
    """
    cert, key = (path and Path(str(path).replace("{}", str(group))) for path in (tls.tls_cert, tls.tls_key))
    return dataclasses.replace(tls, tls_cert=cert, tls_key=key)


def node_object(name: str, size: NodeSize, wall: float) -> dict[str, Any]:
    room = {"cpu": f"{size.cores:.0f}", "memory": f"{size.memory_bytes / GIB:.0f}Gi", "pods": "110"}
    at = rfc3339(wall)[:19] + "Z"
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "simulated"}
    info = {"kubeletVersion": f"carico-{__version__}", "operatingSystem": "linux", "architecture": "amd64"}
    info |= dict.fromkeys(("osImage", "kernelVersion", "containerRuntimeVersion"), "simulated")
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", MARK: "true"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {
            "nodeInfo": info,
            "capacity": room,
            "allocatable": room,
            "conditions": [ready | {"lastHeartbeatTime": at, "lastTransitionTime": at}],
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": name}],
        },
    }


class SimulatedNodes:
    """`run` creates the nodes and simulates them until it is cancelled; the Node objects remain."""

    def __init__(self, client: Client, plan: Plan, schedulers: list[str], tls: TlsFiles, clock: Clock) -> None:
        self._client, self._plan, self._schedulers, self._clock = client, plan, schedulers, clock
        self._tls = tls
        self.agents = {name: self._agents(name, room) for name, room in plan.rooms.items()}
        self._kubelet = SimulatedKubelet(client, plan.rooms.keys(), self._count, clock)
        self.made = asyncio.Event()  # all Node objects exist

    def _agents(self, name: str, room: float) -> list[SimulatedAgent]:
        """One for each scheduler: each stream has its own state of what was sent."""
        return [SimulatedAgent(name, room, self._plan.size, self._clock) for _ in self._schedulers]

    async def run(self) -> None:
        await self._make()
        self.made.set()
        async with asyncio.TaskGroup() as group, contextlib.AsyncExitStack() as stack:
            group.create_task(self._kubelet.run())
            for number, target in enumerate(self._schedulers):
                for i, agents in enumerate(self.agents.values()):
                    if i % GROUP == 0:
                        channel = Dialer(target, group_files(self._tls, i // GROUP), "a scheduler").open(target)
                        stack.push_async_callback(channel.close, None)
                    group.create_task(agents[number].talk(channel))
            await asyncio.Event().wait()

    def _count(self, node: str, uid: str, running: bool) -> None:
        for agent in self.agents[node]:
            agent.counts(uid, running)

    async def _make(self) -> None:
        places = asyncio.Semaphore(32)

        async def make(name: str) -> None:
            node = node_object(name, self._plan.size, self._clock.wall())
            async with places:
                try:
                    await nodes.create(self._client, node)
                except ApiError as error:
                    if error.status != 409:  # otherwise it exists from an earlier start
                        raise

        await asyncio.gather(*(make(name) for name in self._plan.rooms))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m carico.embedded.simulated", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--kubeconfig", type=Path, required=True, help="of the API server that the nodes belong to")
    parser.add_argument("--nodes", type=int, default=10, help="how many")
    parser.add_argument("--prefix", default=PREFIX, help="their names start with this")
    parser.add_argument("--pods", default="8,32", help="pods that a node has room for: between these two")
    parser.add_argument("--schedulers", default="", help="host:port of each scheduler's gRPC, by commas")
    for name in ("ca", "cert", "key"):
        parser.add_argument(
            f"--tls-{name}", type=Path, help=f"as for `carico agent`; {{}} is the number of {GROUP} nodes"
        )
    args = parser.parse_args(argv)
    logs.start()
    logs.dump_stacks_on_signal()
    try:
        least, _, most = args.pods.partition(",")
        plan = Plan(args.nodes, args.prefix, float(least), float(most or least))
        tls = TlsFiles(args.tls_ca, args.tls_cert, args.tls_key, plaintext=args.tls_ca is None)
        asyncio.run(_play(plan, args.kubeconfig, [one for one in args.schedulers.split(",") if one], tls))
    except ValueError as error:
        print(f"carico: --pods {args.pods!r}: {error}; write it like 8,32", file=sys.stderr)
        return 2
    except CaricoError as error:
        print(f"carico: {error}", file=sys.stderr)
        return error.exit_code
    return 0


async def _play(plan: Plan, kubeconfig: Path, schedulers: list[str], tls: TlsFiles) -> None:
    client = Client(credentials.from_kubeconfig(kubeconfig), agent="carico-simulated")
    nodes = SimulatedNodes(client, plan, schedulers, tls, SystemClock())
    playing = asyncio.create_task(nodes.run())
    call_on_stop_signals(playing.cancel)
    announcing = asyncio.create_task(_announce(nodes, len(plan.rooms)))
    try:
        await playing
    except asyncio.CancelledError:
        pass  # stopped by a signal
    finally:
        announcing.cancel()
        await client.close()


async def _announce(nodes: SimulatedNodes, count: int) -> None:
    await nodes.made.wait()
    log.info("%d nodes are there", count)
    for agents in nodes.agents.values():
        for agent in agents:
            await agent.reported.wait()
    log.info("all nodes have reported")


if __name__ == "__main__":
    sys.exit(main())
