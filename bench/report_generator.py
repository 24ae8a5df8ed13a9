"""Agents of many played nodes in one process, for scheduler-throughput: real messages, by the agents' own sending rule.

    python -m bench.report_generator KUBECONFIG HOST:PORT

Each node has a stream of its own. It counts a pod once that pod runs; its Pod-Capacity is 110 minus the pods counted.
Prints `ready` when every node has reported.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import sys
import time
from pathlib import Path

from grpc import aio

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from scheduling import make_report

from carico.kube import credentials
from carico.kube.client import Client
from carico.kube.objects import Node, Pod
from carico.kube.watch import Reflector, Resource
from carico.wire.codec import report as codec
from carico.wire.report_client import METHOD
from carico.wire.reporting import ReportRule

FULL = 110.0  # pods
CHANNELS = 4


class PlayedNode:
    def __init__(self, name: str) -> None:
        self.name, self.rule, self.counted = name, ReportRule(), set[str]()
        self.news = asyncio.Event()
        self.reported = asyncio.Event()
        self._sequence = itertools.count(1)

    def offer(self) -> None:
        now = time.monotonic()
        self.rule.offer(make_report(self.name, FULL - len(self.counted), self.counted, at=now, sampled_at=time.time()))
        self.news.set()

    async def talk(self, channel: aio.Channel) -> None:
        call = channel.stream_stream(METHOD)()
        listening = asyncio.create_task(self._listen(call))
        self.rule.opened()
        self.offer()
        while True:
            wait = self.rule.wait(time.monotonic())
            if wait > 0:
                self.news.clear()
                try:
                    await asyncio.wait_for(self.news.wait(), None if math.isinf(wait) else wait)
                except TimeoutError:
                    self.offer()  # a heartbeat has a fresh sample
                continue
            await call.write(codec.encode(self.rule.take(next(self._sequence), time.monotonic())))
            self.reported.set()
            if listening.done():
                listening.result()

    async def _listen(self, call: aio.StreamStreamCall) -> None:  # type: ignore[type-arg]
        async for message in call:
            ack = codec.decode_ack(message)
            self.rule.acknowledged(ack.heartbeat, refused=ack.refused is not None)


async def generate(kubeconfig: Path, target: str) -> None:
    client = Client(credentials.from_kubeconfig(kubeconfig))
    nodes: dict[str, PlayedNode] = {}

    def node_changed(old: Node | None, new: Node | None) -> None:
        if old is None and new is not None:
            nodes[new.name] = PlayedNode(new.name)

    def pod_changed(old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        assert pod is not None
        node = nodes.get(pod.spec.node_name)
        if node is None:
            return
        runs = new is not None and new.status.phase == "Running"
        if runs != (pod.uid in node.counted):
            node.counted.add(pod.uid) if runs else node.counted.discard(pod.uid)
            node.offer()

    watches = [
        Reflector(client, Resource("/api/v1/nodes", Node), node_changed),
        Reflector(client, Resource("/api/v1/pods", Pod), pod_changed),
    ]
    async with asyncio.TaskGroup() as group:
        for watch in watches:
            group.create_task(watch.run())
            await watch.synced.wait()
        channels = [
            aio.insecure_channel(target, options=[("grpc.use_local_subchannel_pool", 1)]) for _ in range(CHANNELS)
        ]
        for i, node in enumerate(list(nodes.values())):
            group.create_task(node.talk(channels[i % CHANNELS]))
        for node in list(nodes.values()):
            await node.reported.wait()
        print("ready", flush=True)


if __name__ == "__main__":
    asyncio.run(generate(Path(sys.argv[1]), sys.argv[2]))
