"""A stock kube-scheduler with Carico as its extender: pods of `default-scheduler` respect Pod-Capacity too."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import ssl
import tempfile
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from carico.kube import credentials
from carico.kube.client import Client
from carico.wire.certificates import Authority
from harness.cluster.cluster import Cluster, pod
from harness.cluster.fixtures import needs_scale
from harness.cluster.ports import free_port
from harness.scheduler.fleet import Fleet, SchedulerProcess

pytestmark = [pytest.mark.cluster, pytest.mark.slow, needs_scale]

NODES, CAPACITY, PODS, LAG = 10, 10, 300, 3.0
ROOM = NODES * CAPACITY
# kwok's pods run at once: nothing but Pod-Capacity is to hold anybody back here.
STORMS = ("--startup-limit", "1000", "--startup-limit-idle", "1000")


class Stage:
    authority: str  # file with the certificate of the extender's authority
    extender_port: int

    def __init__(self, cluster: Cluster, namespace: str, grpc_port: int, flags: tuple[str, ...]) -> None:
        self.cluster, self.namespace, self._grpc_port, self._flags = cluster, namespace, grpc_port, flags

    def start(self) -> None:
        self.process = SchedulerProcess(self.cluster.kubeconfig, self._grpc_port, *self._flags)

    def fleet(self, client: Client) -> Fleet:
        nodes = {f"kwok-{i:04d}": float(CAPACITY) for i in range(NODES)}
        return Fleet(client, nodes, [f"127.0.0.1:{self._grpc_port}"], self.namespace, LAG)

    def create(self, count: int) -> None:
        pods = (pod(f"p-{i}", ["x"]) for i in range(count))
        self.cluster.api.post_all(f"/api/v1/namespaces/{self.namespace}/pods", pods)

    def pods(self, selector: str = "") -> list[dict[str, Any]]:
        return list(self.cluster.api.get(f"/api/v1/namespaces/{self.namespace}/pods{selector}")["items"])

    def try_to_bind_as_a_stranger(self) -> None:
        """Without a certificate, and with one of another authority: neither gets as far as to a request."""
        name = self.pods("?fieldSelector=spec.nodeName%3D")[0]["metadata"]["name"]
        body = json.dumps({"PodName": name, "PodNamespace": self.namespace, "Node": "kwok-0000"}).encode()
        with tempfile.TemporaryDirectory() as folder:
            forged = Authority(Path(folder)).issue("kube-scheduler")
            for pair in (None, forged):
                tls = ssl.create_default_context(cafile=self.authority)
                if pair is not None:
                    tls.load_cert_chain(pair.cert, pair.key)
                url = f"https://127.0.0.1:{self.extender_port}/extender/bind"
                request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
                with pytest.raises(OSError):  # of TLS, at the handshake or at the first read
                    urllib.request.urlopen(request, timeout=30, context=tls)

    def count(self, verb: str, result: str) -> float:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.process.page_port}/metrics", timeout=30) as page:
            name = rf'^carico_extender_requests_total{{result="{result}",verb="{verb}"}} (.*)$'
            found = re.search(name, page.read().decode(), re.MULTILINE)
        return float(found[1]) if found else 0.0


@contextmanager
def tandem(**verbs: Any) -> Iterator[Stage]:
    """A cluster of its own, as an extender is part of kube-scheduler's configuration; both sides show certificates."""
    port, grpc = free_port(), free_port()
    with tempfile.TemporaryDirectory() as folder:
        authority = Authority(Path(folder))
        server, client = authority.issue("localhost", "127.0.0.1"), authority.issue("kube-scheduler")
        files = {"certFile": str(client.cert), "keyFile": str(client.key), "caFile": str(authority.cert)}
        base = {"urlPrefix": f"https://127.0.0.1:{port}/extender", "enableHTTPS": True, "tlsConfig": files}
        base |= {"filterVerb": "filter", "prioritizeVerb": "prioritize", "weight": 5, "nodeCacheCapable": True}
        flags = ("--extender-listen", f"127.0.0.1:{port}", "--extender-client-ca", str(authority.cert))
        pair = ("--tls-cert", str(server.cert), "--tls-key", str(server.key))
        with Cluster(NODES, extenders=[base | verbs]) as cluster, cluster.namespace() as namespace:
            stage = Stage(cluster, namespace, grpc, ("--validate", *flags, *pair, *STORMS))
            stage.authority, stage.extender_port = str(authority.cert), port
            stage.start()
            try:
                yield stage
            finally:
                stage.process.stop(signal.SIGKILL)


def play(stage: Stage, scenario: Callable[[Fleet], Awaitable[None]]) -> Fleet:
    async def whole() -> Fleet:
        client = Client(credentials.from_kubeconfig(stage.cluster.kubeconfig))
        fleet = stage.fleet(client)
        async with fleet.at_work():
            await scenario(fleet)
        await client.close()
        return fleet

    return asyncio.run(whole())


async def burst(stage: Stage, fleet: Fleet, count: int = PODS) -> None:
    await asyncio.to_thread(stage.create, count)
    await fleet.until(ROOM)
    await asyncio.sleep(LAG + 3)  # now every report has counted every pod: an overload would show here


@pytest.mark.timeout(300)
def test_a_burst_does_not_run_away_and_room_that_comes_back_is_used() -> None:
    with tandem(bindVerb="bind") as stage:

        async def scenario(fleet: Fleet) -> None:
            await burst(stage, fleet)
            assert (fleet.bound, fleet.worst) == (ROOM, 0)
            waiting = await asyncio.to_thread(stage.pods, "?fieldSelector=spec.nodeName%3D")
            assert len(waiting) == PODS - ROOM
            said = {c["message"] for item in waiting for c in item["status"].get("conditions", [])}
            assert any("had no free capacity" in message for message in said), said
            # Nothing happens in the API server now: only the report has more room.
            began = time.monotonic()
            fleet.capacity["kwok-0003"] += 5
            await fleet.until(ROOM + 5)
            print(f"room that came back was used after {time.monotonic() - began:.1f} s")

        fleet = play(stage, scenario)
        print(f"worst {fleet.worst:+g}; {stage.count('bind', 'failed'):g} bindings came too late")
        assert (fleet.bound, fleet.worst) == (ROOM + 5, 0)
        assert all(len(nodes) == 1 for nodes in fleet.bound_to.values())
        # The watch may deliver a binding before the API server has answered the request for it.
        stage.cluster.wait_for("the count", lambda: stage.count("bind", "done") >= ROOM + 5, 60)
        stage.try_to_bind_as_a_stranger()
        assert stage.count("bind", "done") == ROOM + 5


@pytest.mark.timeout(300)
def test_without_the_bind_verb_the_error_is_bounded_by_the_pods_in_flight() -> None:
    with tandem() as stage:
        fleet = play(stage, lambda fleet: burst(stage, fleet, 2 * PODS))
        print(f"worst {fleet.worst:+g}, {fleet.bound} bound")
        assert fleet.bound >= ROOM
        assert fleet.worst <= 20  # without any charge it would be 50
        assert all(len(nodes) == 1 for nodes in fleet.bound_to.values())


@pytest.mark.timeout(300)
def test_without_carico_an_ignorable_extender_is_left_out() -> None:
    """Which is what lets Carico's own pods start in a cluster that relies on it."""
    with tandem(ignorable=True) as stage:
        stage.process.stop(signal.SIGKILL)
        stage.create(5)
        stage.cluster.wait_for("binding", lambda: all(item["spec"].get("nodeName") for item in stage.pods()), 60)


@pytest.mark.timeout(300)
def test_a_restart_in_the_middle_of_a_burst_overloads_no_node() -> None:
    """Pods that the one before had filtered come to the next one to be bound, or are filtered again."""
    with tandem(bindVerb="bind") as stage:

        async def scenario(fleet: Fleet) -> None:
            await asyncio.to_thread(stage.create, PODS)
            await fleet.until(ROOM // 4)
            await asyncio.to_thread(stage.process.stop, signal.SIGKILL)
            await asyncio.to_thread(stage.start)
            await fleet.until(ROOM, 240)
            await asyncio.sleep(LAG + 3)
            assert (fleet.bound, fleet.worst) == (ROOM, 0)

        fleet = play(stage, scenario)
        assert all(len(nodes) == 1 for nodes in fleet.bound_to.values())
