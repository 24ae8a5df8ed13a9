"""Agents of many simulated nodes in one process, for scheduler-throughput: real messages, by the agents' sending rule.

    python -m bench.report_generator KUBECONFIG HOST:PORT

Each node has a separate stream. It counts a pod once that pod runs; its Pod-Capacity is 110 minus the pods counted.
Prints `ready` when every node has reported.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from grpc import aio

from carico.clock import SystemClock
from carico.embedded.simulated.agent import SimulatedAgent
from carico.kube import calls, credentials
from carico.kube.client import Client
from carico.kube.objects import Node, Pod
from carico.kube.watch import Reflector, WatchedResource
from carico.types import NodeSize

FULL = 110.0  # pods
SIZE = NodeSize(cores=32, memory_bytes=256 << 30)
CHANNELS = 4


async def generate(kubeconfig: Path, target: str) -> None:
    client, clock = Client(credentials.from_kubeconfig(kubeconfig)), SystemClock()
    agents: dict[str, SimulatedAgent] = {}

    def node_changed(old: Node | None, new: Node | None) -> None:
        if old is None and new is not None:
            agents[new.name] = SimulatedAgent(new.name, FULL, SIZE, clock)

    def pod_changed(old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        assert pod is not None
        if pod.spec.node_name in agents:
            agents[pod.spec.node_name].counts(pod.uid, new is not None and new.status.phase == "Running")

    watches: list[Reflector[Any]] = [
        Reflector(client, WatchedResource(calls.FOLLOW_NODES, Node), node_changed),
        Reflector(client, WatchedResource(calls.FOLLOW_PODS, Pod), pod_changed),
    ]
    async with asyncio.TaskGroup() as group:
        for watch in watches:
            group.create_task(watch.run())
            await watch.synced.wait()
        channels = [
            aio.insecure_channel(target, options=[("grpc.use_local_subchannel_pool", 1)]) for _ in range(CHANNELS)
        ]
        for i, agent in enumerate(list(agents.values())):
            group.create_task(agent.talk(channels[i % CHANNELS]))
        for agent in list(agents.values()):
            await agent.reported.wait()
        print("ready", flush=True)


if __name__ == "__main__":
    asyncio.run(generate(Path(sys.argv[1]), sys.argv[2]))
