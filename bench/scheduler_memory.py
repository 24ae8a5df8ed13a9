"""Resident memory of Carico's scheduler and of kube-scheduler with 5,000 nodes and 30,000 running pods.

Both watch the same cluster; the figures are taken once both know every pod. NODES and PODS change the size.
"""

from __future__ import annotations

import asyncio
import os
import time
import urllib.request
from pathlib import Path

import msgspec
import psutil

from bench.scheduler_throughput import carico, stock_scheduler
from carico.kube import credentials
from carico.kube.client import Client
from harness.cluster.cluster import Cluster

NODES = int(os.environ.get("NODES", "5000"))
PODS = int(os.environ.get("PODS", "30000"))
SETTLE = 30.0  # s for both to read what was created


async def fill(kubeconfig: Path) -> None:
    """Create pods that already have a node: no scheduler has anything to do."""
    client = Client(credentials.from_kubeconfig(kubeconfig))
    width = max(4, len(str(NODES - 1)))
    places = asyncio.Semaphore(32)

    async def one(number: int) -> None:
        container = {"name": "c", "image": "registry.invalid/none", "resources": {"requests": {"cpu": "10m"}}}
        spec = {"nodeName": f"kwok-{number % NODES:0{width}d}", "containers": [container]}
        body = {"metadata": {"name": f"p-{number}", "labels": {"app": f"a{number % 100}"}}, "spec": spec}
        async with places:
            await client.call("POST", "/api/v1/namespaces/default/pods", msgspec.json.encode(body))

    for start in range(0, PODS, 1000):
        await asyncio.gather(*(one(number) for number in range(start, min(PODS, start + 1000))))
    await client.close()


def run() -> dict[str, float]:
    with Cluster(nodes=NODES) as cluster, carico(cluster) as (ours, generator):
        asyncio.run(fill(cluster.kubeconfig))
        time.sleep(SETTLE)
        stock = stock_scheduler(cluster)
        figures = {
            "carico_mb": ours.memory_info().rss / 1e6,
            "kube_scheduler_mb": stock.memory_info().rss / 1e6,
            "reports_mb": generator.memory_info().rss / 1e6,
        }
        known = _known_pods(ours.pid)
    print(f"{NODES} nodes, {PODS} pods ({known:.0f} known to Carico)")
    for name, value in figures.items():
        print(f"  {name:18} {value:6.0f}")
    return {name: round(value, 1) for name, value in figures.items()}


def _known_pods(pid: int) -> float:
    """From the scheduler's metrics, so that a figure of a half-filled cluster is not mistaken for a good one."""
    ports = [c.laddr.port for c in psutil.Process(pid).net_connections("tcp") if c.status == psutil.CONN_LISTEN]
    for port in ports:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
                for line in page.read().decode().splitlines():
                    if line.startswith('scheduler_cache_size{type="pods"}'):
                        return float(line.split()[-1])
        except OSError:
            continue
    raise RuntimeError("the scheduler's metrics could not be read")
