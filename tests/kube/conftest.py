"""Certificates of a server, and a cluster behind a proxy that breaks things on demand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from carico.kube import credentials
from carico.kube.client import Client
from carico.wire.certificates import Authority, Pair
from harness.cluster.fixtures import AnyCluster
from harness.kube.faulty import FaultyServer
from harness.kube.place import Place, Scenario


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    (tmp_path / "pki").mkdir()
    return Authority(tmp_path / "pki")


@pytest.fixture
def pair(authority: Authority) -> Pair:
    return authority.issue("server", "127.0.0.1", "localhost", "inside.example")


@pytest.fixture
def play(any_cluster: AnyCluster, tmp_path: Path) -> Callable[[Scenario], None]:
    def run(scenario: Scenario) -> None:
        cluster = any_cluster(5)

        async def whole() -> None:
            async with FaultyServer(cluster.kubeconfig, tmp_path) as proxy:
                client = Client(credentials.from_kubeconfig(proxy.kubeconfig))
                try:
                    await scenario(Place(client, proxy, namespace))
                finally:
                    await client.close()

        with cluster.namespace() as namespace:
            asyncio.run(whole())

    return run
