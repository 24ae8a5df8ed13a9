"""Nodes without kubelets: kwok reports them Ready, renews their Leases and simulates the pods bound to them."""

from __future__ import annotations

from pathlib import Path

from .api import Api, Object
from .controlplane import ControlPlane, lease_seconds
from .daemons import Daemons
from .pki import ADMIN
from .ports import free_port

STAGES = Path(__file__).with_name("kwok-stages.yaml")
MARK = "kwok.x-k8s.io/node"
SIZE = {"cpu": "32", "memory": "256Gi", "pods": "110"}


def start(plane: ControlPlane, daemons: Daemons, binary: str, nodes: int) -> None:
    """Start kwok, create the nodes and wait until all of them are Ready and without taints."""
    folder = plane.authority.folder
    kubeconfig = plane.kubeconfig(folder, "kwok", *ADMIN)
    argv = [
        binary,
        f"--config={STAGES}",
        f"--kubeconfig={kubeconfig}",
        f"--manage-nodes-with-annotation-selector={MARK}=fake",
        f"--node-lease-duration-seconds={lease_seconds(nodes)}",
        f"--server-address=127.0.0.1:{free_port()}",
        "--node-ip=127.0.0.1",
    ]
    daemons.start("kwok", argv)
    width = max(4, len(str(nodes - 1)))
    plane.api.post_all("/api/v1/nodes", (node(f"kwok-{number:0{width}d}") for number in range(nodes)))
    patience = 60 + nodes / 20
    daemons.wait_for(f"{nodes} kwok nodes", lambda: open_nodes(plane.api) >= nodes, patience, log="kwok")


def node(name: str) -> Object:
    """A node that kwok manages.

    It is created Ready: otherwise the node life-cycle controller taints it until kwok has processed it, and the start
    of 1,000 nodes takes twice as long.
    """
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "type": "kwok",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {MARK: "fake"}},
        "status": {
            "phase": "Running",
            "nodeInfo": {"kubeletVersion": "kwok", "operatingSystem": "linux", "architecture": "amd64"},
            "capacity": SIZE,
            "allocatable": SIZE,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "played by kwok"}],
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": name}],
        },
    }


def open_nodes(api: Api) -> int:
    """How many kwok nodes are Ready and without the taints of new nodes."""
    answer = api.get("/api/v1/nodes?labelSelector=type%3Dkwok&resourceVersion=0")
    return sum(is_ready(item) and not item["spec"].get("taints") for item in answer["items"])


def is_ready(item: Object) -> bool:
    """Whether a Node has the condition Ready."""
    conditions = item.get("status", {}).get("conditions", [])
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
