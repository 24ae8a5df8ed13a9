"""A real node: kubelet with our containerd, kube-proxy and CoreDNS, all in the sealed namespaces."""

from __future__ import annotations

import json

from . import containerd
from .api import Api
from .controlplane import ControlPlane
from .daemons import Daemons
from .kwok import is_ready
from .pki import ADMIN
from .ports import answers_http, free_port
from .runs import Run
from .sealed import NODE_ADDRESS

NAME = "node-1"
DOMAIN = "cluster.local"
KUBELET_PORT = 10250


def start(run: Run, plane: ControlPlane, daemons: Daemons, binaries: dict[str, str]) -> None:
    """Start all three and wait until the node is Ready, names resolve and Services answer."""
    (run.folder / "resolv.conf").write_text(f"nameserver {NODE_ADDRESS}\n")
    daemons.start("kubelet", _kubelet(run, plane, binaries))
    proxy_health, dns_health = free_port(), free_port()
    daemons.start("kube-proxy", _proxy(plane, binaries, proxy_health))
    daemons.start("coredns", _dns(run, plane, binaries, dns_health))
    daemons.wait_for("coredns", lambda: answers_http(dns_health, "/ready"), log="coredns")
    daemons.wait_for("kube-proxy", lambda: answers_http(proxy_health, "/healthz"), log="kube-proxy")
    daemons.wait_for("the node", lambda: _is_open(plane.api), log="kubelet")


def _is_open(api: Api) -> bool:
    item = api.get(f"/api/v1/nodes/{NAME}")
    return is_ready(item) and not item["spec"].get("taints")


def _kubelet(run: Run, plane: ControlPlane, binaries: dict[str, str]) -> list[str]:
    folder, pki = run.folder, plane.authority.folder
    certificate, key = plane.authority.issue(
        "kubelet", f"system:node:{NAME}", ("system:nodes",), [NODE_ADDRESS], [NAME]
    )
    configuration = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(plane.authority.certificate)},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(certificate),
        "tlsPrivateKeyFile": str(key),
        "port": KUBELET_PORT,
        "containerRuntimeEndpoint": f"unix://{containerd.STATE / containerd.SOCKET}",
        "clusterDNS": [NODE_ADDRESS],
        "clusterDomain": DOMAIN,
        "resolvConf": str(folder / "resolv.conf"),
        "volumePluginDir": str(folder / "volume-plugins"),
        **_resources(run),
    }
    file = pki / "kubelet.json"
    file.write_text(json.dumps(configuration))
    kubeconfig = plane.kubeconfig(pki, "kubelet", f"system:node:{NAME}", ("system:nodes",))
    return [
        binaries["kubelet"],
        f"--config={file}",
        f"--kubeconfig={kubeconfig}",
        f"--hostname-override={NAME}",
        f"--node-ip={NODE_ADDRESS}",
        f"--root-dir={folder / 'kubelet'}",
        f"--cert-dir={pki}",
    ]


def _resources(run: Run) -> dict[str, object]:
    """Settings for a kubelet on a shared machine: version 1 cgroups, a branch of them, a disk of any fill level."""
    return {
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{run.cgroup}",
        "failCgroupV1": False,
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "localStorageCapacityIsolation": False,
        # sealed.py provides the kernel settings that it expects; it must not change the machine's.
        "protectKernelDefaults": True,
        "maxPods": 250,
        # A developer's disk may be nearly full: this must not remove images or evict pods.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
    }


def _proxy(plane: ControlPlane, binaries: dict[str, str], health: int) -> list[str]:
    kubeconfig = plane.kubeconfig(plane.authority.folder, "kube-proxy", "system:kube-proxy")
    return [
        binaries["kube-proxy"],
        f"--kubeconfig={kubeconfig}",
        "--proxy-mode=nftables",
        f"--cluster-cidr={containerd.POD_NETWORK}",
        f"--hostname-override={NAME}",
        # The connection tracking table belongs to the machine: do not change its size.
        "--conntrack-max-per-core=0",
        f"--healthz-bind-address=127.0.0.1:{health}",
        f"--metrics-bind-address=127.0.0.1:{free_port()}",
    ]


def _dns(run: Run, plane: ControlPlane, binaries: dict[str, str], health: int) -> list[str]:
    kubeconfig = plane.kubeconfig(plane.authority.folder, "coredns", *ADMIN)
    corefile = run.folder / "Corefile"
    corefile.write_text(f"""\
.:53 {{
    bind {NODE_ADDRESS}
    errors
    ready 127.0.0.1:{health}
    kubernetes {DOMAIN} in-addr.arpa {{
        kubeconfig {kubeconfig} carico
        pods insecure
        ttl 5
    }}
}}
""")
    return [binaries["coredns"], "-conf", str(corefile)]
