"""A scheduler that issues its certificates and identifies agents by their tokens, on a real kube-apiserver.

It has the generated roles and nothing else. Tokens come from the API server, those with a short life from its key.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from grpc import aio

from carico.aggregator.service import SERVICE
from carico.clock import SystemClock
from carico.kube.calls import NeededBy
from carico.kube.roles import manifests
from carico.settings import TlsFiles
from carico.testing import make_report
from carico.wire import client
from carico.wire.channel import Dialer
from carico.wire.codec import classes
from carico.wire.codec.classes import Query
from carico.wire.report_client import METHOD, ReportClient
from harness.cluster.cluster import Cluster, pod
from harness.cluster.fixtures import needs_scale
from harness.cluster.ports import free_port
from harness.kube.made_tokens import AUDIENCE, of, signed
from harness.running import Process
from harness.wire.report_streams import ended, with_files

pytestmark = [pytest.mark.cluster, pytest.mark.slow, needs_scale]

NODES = 5
PARTS = {NeededBy.SCHEDULER, NeededBy.ELECTION, NeededBy.TOKENS, NeededBy.CERTIFICATES, NeededBy.NODE_CAPACITIES}
RBAC = "/apis/rbac.authorization.k8s.io/v1"
PATIENCE = 120.0  # s
UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED


class Stage:
    def __init__(self, cluster: Cluster, namespace: str, folder: Path) -> None:
        self.cluster, self.namespace, self.folder = cluster, namespace, folder
        self.accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        lease = ("--leader-elect-resource-namespace", namespace, "--leader-elect-resource-name", "ours")
        cluster.kubectl("apply", "-f", "-", stdin=manifests(PARTS, namespace, "ours", name=namespace))
        self.port = free_port()
        self.process = Process(
            "scheduler", "--kubeconfig", str(self._kubeconfig()), "--grpc-listen", f"127.0.0.1:{self.port}",
            "--listen", "127.0.0.1:0", "--debug-listen", "127.0.0.1:0",
            "--issue-certificates", "--token-audience", AUDIENCE, *lease,
        )  # fmt: skip
        self.page = int(self.process.wait_for(r" listen on port (\d+)", PATIENCE)[1])
        for name in ("carico-agent", "carico-aggregator", "stranger"):
            cluster.api.post(self.accounts, {"metadata": {"name": name}})
        bundle = cluster.wait_for("the ConfigMap", self._bundle, PATIENCE)
        (folder / "ca.pem").write_text(bundle)
        cluster.wait_for("readiness", self._is_ready, PATIENCE)

    def aggregator(self) -> tuple[Process, int]:
        """With the certificate that the scheduler made, and the right to review tokens and no other."""
        role, port = f"{self.namespace}-aggregator", free_port()
        self.cluster.kubectl("apply", "-f", "-", stdin=manifests({NeededBy.TOKENS}, "", name=role))
        secret = self.cluster.api.get(f"/api/v1/namespaces/{self.namespace}/secrets/carico-aggregator-tls")
        for name, content in secret["data"].items():
            (self.folder / name).write_bytes(base64.b64decode(content))
        (self.folder / "peer").write_text(self.token("carico-aggregator"))
        files = {"tls-cert": "tls.crt", "tls-key": "tls.key", "tls-ca": "ca.pem", "token-file": "peer"}
        kubeconfig = self._own_namespace(self.cluster.kubeconfig_of_account("reviews", role, namespace=self.namespace))
        process = Process(
            "aggregator", "--kubeconfig", str(kubeconfig), "--token-audience", AUDIENCE,
            "--grpc-listen", f"127.0.0.1:{port}", "--listen", "127.0.0.1:0", "--peers", "carico-aggregator:9466",
            *(word for flag, name in files.items() for word in (f"--{flag}", str(self.folder / name))),
        )  # fmt: skip
        process.wait_for("gRPC on port", PATIENCE)
        return process, port

    def _kubeconfig(self) -> Path:
        file = self.cluster.kubeconfig_of_account("carico-scheduler", self.namespace, namespace=self.namespace)
        account = {"kind": "ServiceAccount", "name": "carico-scheduler", "namespace": self.namespace}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": self.namespace}
        body = {"metadata": {"name": "scheduler"}, "roleRef": role, "subjects": [account]}
        self.cluster.api.post(f"{RBAC}/namespaces/{self.namespace}/rolebindings", body)
        return self._own_namespace(file)

    def _own_namespace(self, file: Path) -> Path:
        config = json.loads(file.read_text())
        config["contexts"][0]["context"]["namespace"] = self.namespace
        own = self.folder / file.name
        own.write_text(json.dumps(config))
        return own

    def _bundle(self) -> str | None:
        items = self.cluster.api.get(f"/api/v1/namespaces/{self.namespace}/configmaps")["items"]
        return next((item["data"]["ca.pem"] for item in items if item["metadata"]["name"] == "carico-ca"), None)

    def _is_ready(self) -> bool:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{self.page}/readyz") as answer:
            return bool(answer.status == 200)
        return False

    def metric(self, name: str, label: str) -> float:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.page}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(f"{name}_total{{") and label in line)

    def agent_pod(self, name: str, node: str) -> dict[str, Any]:
        item = pod(name, ["x"], nodeName=node, serviceAccountName="carico-agent")
        return dict(self.cluster.create(item, self.namespace))

    def token(self, account: str, bound_to: dict[str, Any] | None = None, audience: str = AUDIENCE) -> str:
        spec: dict[str, Any] = {"audiences": [audience] if audience else [], "expirationSeconds": 3600}
        if bound_to is not None:
            meta = bound_to["metadata"]
            spec["boundObjectRef"] = {"kind": "Pod", "apiVersion": "v1", "name": meta["name"], "uid": meta["uid"]}
        answer = self.cluster.api.post(f"{self.accounts}/{account}/token", {"spec": spec})
        return str(answer["status"]["token"])

    def again(self, token: str, life: float, key: Path | None = None) -> str:
        """The same token with another life, signed by the API server's key."""
        now = time.time()
        claims = of(token) | {"iat": int(now) - 60, "nbf": int(now) - 60, "exp": int(now + life)}
        return signed(key or self.cluster.folder / "pki" / "service-accounts.key", claims)

    def dialer(self, token: str, service: str = "carico-scheduler") -> Dialer:
        (self.folder / "token").write_text(token)
        files = TlsFiles(tls_ca=self.folder / "ca.pem", token_file=self.folder / "token" if token else None)
        return Dialer(f"{service}.{self.namespace}.svc:{self.port}", files, "a test")

    async def status(
        self, token: str, method: str = METHOD, port: int = 0, first: bytes | None = None
    ) -> tuple[grpc.StatusCode, str]:
        """Of a call: OK once something comes, after `first` was sent."""
        dialer = self.dialer(token, "carico-aggregator" if port else "carico-scheduler")
        async with dialer.open(f"127.0.0.1:{port or self.port}") as channel:
            stream: Any = channel.stream_stream
            call = stream(method)(metadata=dialer.metadata())
            try:
                if first is not None:
                    with contextlib.suppress(asyncio.InvalidStateError):
                        await call.write(first)
                await asyncio.wait_for(call.read(), PATIENCE)
            except aio.AioRpcError as error:
                return error.code(), error.details() or ""
            call.cancel()
            return grpc.StatusCode.OK, ""


@pytest.fixture
def stage(scale_cluster: Callable[[int], Cluster], tmp_path: Path) -> Iterator[Stage]:
    cluster = scale_cluster(NODES)
    with cluster.namespace() as namespace:
        made = Stage(cluster, namespace, tmp_path)
        try:
            yield made
        finally:
            made.process.stop(signal.SIGKILL)
            made_for = (namespace, f"{namespace}-aggregator", f"carico-scheduler-{namespace}")
            for name in (*made_for, f"reviews-{namespace}-aggregator"):
                cluster.kubectl("delete", "clusterrole,clusterrolebinding", name, "--ignore-not-found")


def forged_key(folder: Path) -> Path:
    file, key = folder / "forged.key", ec.generate_private_key(ec.SECP256R1())
    form = serialization.PrivateFormat.PKCS8
    file.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
    return file


def test_who_may_report(stage: Stage) -> None:
    """And that the API server's answer decides, the scheduler has the rights it needs, and no other."""
    bound = stage.agent_pod("agent", "kwok-0001")
    good = stage.token("carico-agent", bound)
    assert of(good)["kubernetes.io"]["node"]["name"] == "kwok-0001"
    refused = {
        "no-token": "",
        "audience": stage.token("carico-agent", bound, audience=""),
        "account": stage.token("stranger"),
        "expired": stage.again(good, -30.0),
        "unknown": stage.again(good, 3600.0, forged_key(stage.folder)),
        "no-node": stage.token("carico-agent"),  # of no pod
    }

    async def play() -> None:
        assert (await stage.status(good))[0] is grpc.StatusCode.OK
        for reason, token in refused.items():
            code, detail = await stage.status(token)
            assert code is grpc.StatusCode.UNAUTHENTICATED, (reason, detail)
            assert detail.startswith(f"{reason}: "), detail
        assert (await stage.status(stage.token("carico-aggregator")))[0] is grpc.StatusCode.PERMISSION_DENIED
        assert (await stage.status(good))[0] is grpc.StatusCode.OK, "harmless to others"

    asyncio.run(play())
    for reason in refused:
        assert stage.metric("carico_tokens_refused", f'"{reason}"') == 1, reason
    assert stage.metric("carico_token_reviews", '"refused"') == 1, "of the forged one; others need no review"
    assert "orbidden" not in stage.process.log()


def test_who_may_call_the_aggregator(stage: Stage) -> None:
    process, port = stage.aggregator()
    bound = stage.agent_pod("agent", "kwok-0001")
    agent, peer = stage.token("carico-agent", bound), stage.token("carico-aggregator")
    scheduler, stranger = stage.token("carico-scheduler"), stage.token("stranger")
    query = classes.encode_query(Query(0, 0, frozenset()))

    async def code(token: str, method: str, first: bytes | None = None) -> grpc.StatusCode:
        found, detail = await stage.status(token, f"{SERVICE}/{method}", port, first)
        assert found is not grpc.StatusCode.UNAVAILABLE, detail
        return found

    async def play() -> None:
        for token in (agent, scheduler):
            assert await code(token, "Classes", query) is grpc.StatusCode.OK
        for token, method in ((peer, "Classes"), (agent, "Peer"), (scheduler, "Peer"), (scheduler, "Exchange")):
            assert await code(token, method) is grpc.StatusCode.PERMISSION_DENIED, method
        for method in ("Classes", "Peer", "Exchange"):
            assert await code(stranger, method) is grpc.StatusCode.UNAUTHENTICATED
        assert await code(stage.again(agent, 600.0, forged_key(stage.folder)), "Exchange") is UNAUTHENTICATED

    try:
        asyncio.run(play())
        assert "orbidden" not in process.log()
    finally:
        process.stop(signal.SIGKILL)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110 - what is waited for is in another process
            await asyncio.sleep(0.1)


async def follow(stage: Stage, token: str, *nodes: str) -> None:
    """An agent with this token reports for each of the nodes, one after the other."""
    dialer = stage.dialer(token)
    settings = with_files(TlsFiles(tls_ca=stage.folder / "ca.pem", token_file=stage.folder / "token"), dialer.target)
    for node in nodes:
        agent = ReportClient(settings, SystemClock())
        agent.offer(make_report(node, 10.0))
        task = asyncio.create_task(agent.run())
        try:

            def has_grown(before: float = stage.metric("carico_scheduler_reports", "")) -> bool:
                return stage.metric("carico_scheduler_reports", "") > before

            await until(has_grown)
        finally:
            await ended(task)


@pytest.fixture
def by_address(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    async def addresses(_: Dialer) -> list[str]:
        return [f"127.0.0.1:{stage.port}"]

    monkeypatch.setattr(Dialer, "addresses", addresses)


@pytest.mark.usefixtures("by_address")
def test_no_node_speaks_for_another_and_no_stream_outlives_its_token(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "SOONEST", 1.0)
    bound = stage.agent_pod("agent", "kwok-0001")
    good = stage.token("carico-agent", bound)

    async def play() -> None:
        await follow(stage, good, "kwok-0002", "kwok-0001")
        assert stage.metric("carico_scheduler_reports", '"refused"') == 1
        assert stage.metric("carico_scheduler_reports", '"accepted"') == 1
        silent = stage.metric("carico_scheduler_reports", '"silent"')
        dialer = stage.dialer(stage.again(good, 8.0))
        settings = with_files(
            TlsFiles(tls_ca=stage.folder / "ca.pem", token_file=stage.folder / "token"), dialer.target
        )
        agent = ReportClient(settings, SystemClock())
        agent.offer(make_report("kwok-0001", 10.0))
        task = asyncio.create_task(agent.run())
        try:
            await until(lambda: stage.metric("carico_scheduler_reports", '"accepted"') >= 2)
            (stage.folder / "token").write_text(good)  # as the kubelet does
            started = stage.metric("grpc_server_started", "Capacity")
            await until(lambda: stage.metric("grpc_server_started", "Capacity") > started)
            accepted = stage.metric("carico_scheduler_reports", '"accepted"')
            await until(lambda: stage.metric("carico_scheduler_reports", '"accepted"') > accepted)
            assert stage.metric("carico_scheduler_reports", '"silent"') == silent, "its reports went on at once"
        finally:
            await ended(task)

    asyncio.run(play())
