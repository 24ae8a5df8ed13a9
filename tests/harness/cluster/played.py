"""Nodes of any size on a cluster that has none, simulated by a kwok that treats pods as kubelets do.

`kwok.py` creates nodes for speed: all alike, pods run and end at once. Here pods take their grace period to end, some
never start, and started ones report their containers' resources; `kubelet-stages.yaml` has the rules.

    with Cluster() as cluster, nodes_played(cluster) as nodes:
        nodes.add("n0", {"cpu": "4", "memory": "32Gi", "pods": "110"})
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from . import builder, kwok
from .api import Object
from .cluster import Cluster
from .controlplane import SHORTEST_LEASE
from .ports import free_port

STAGES = Path(__file__).with_name("kubelet-stages.yaml")


class Nodes:
    def __init__(self, cluster: Cluster) -> None:
        self._api = cluster.api

    def add(self, name: str, size: Object, labels: dict[str, str] | None = None) -> Object:
        made = kwok.node(name)
        made["metadata"]["labels"] |= labels or {}
        made["status"] |= {"capacity": size, "allocatable": size}
        return self._api.post("/api/v1/nodes", made)

    def remove(self, name: str) -> None:
        self._api.delete(f"/api/v1/nodes/{name}")

    def are_open(self, count: int) -> bool:
        """Whether this many nodes are Ready and without the taints of new nodes."""
        return kwok.open_nodes(self._api) >= count


@contextmanager
def nodes_played(cluster: Cluster, stages: Path = STAGES) -> Iterator[Nodes]:
    """Use it with a cluster without kwok nodes: two kwoks would simulate every pod twice."""
    binary = builder.build(["kwok"])["kwok"]
    argv = [
        binary,
        f"--config={stages}",
        f"--kubeconfig={cluster.kubeconfig}",
        f"--manage-nodes-with-annotation-selector={kwok.MARK}=fake",
        f"--node-lease-duration-seconds={SHORTEST_LEASE}",
        f"--server-address=127.0.0.1:{free_port()}",
        "--node-ip=127.0.0.1",
    ]
    # Marked as part of the cluster: it ends with the cluster, also when this process is killed.
    environment = os.environ | cluster.run.environment
    with open(cluster.folder / "logs" / "kwok.log", "ab") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=log, env=environment)
    try:
        yield Nodes(cluster)
    finally:
        process.kill()
        process.wait()
