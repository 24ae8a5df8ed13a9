"""etcd, kube-apiserver, kube-controller-manager, kube-scheduler: unmodified, configured for a small machine.

In scale mode they listen on loopback only; in a sealed cluster the API server also listens on the node's address, for
the pods.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from .api import Api, Object
from .daemons import Daemons
from .pki import ADMIN, Authority, signing_key
from .ports import free_port
from .runs import Run

SERVICE_NETWORK = "10.96.0.0/16"
API_SERVICE_ADDRESS = "10.96.0.1"
API_NAMES = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)
QPS, BURST = 5_000, 5_000
AUDIT_LOG = "audit.log"
# A kubelet's Lease lasts 40 s and is renewed four times in that: with thousands of nodes the renewals alone would keep
# the machine busy, so the interval grows with the number of nodes. 20 renewals a second at most.
SHORTEST_LEASE = 40
NODES_PER_LEASE_SECOND = 5


@dataclass(frozen=True)
class Options:
    user_port: int | None  # a forwarded port, for the user's kubeconfig
    extenders: list[Object]  # of kube-scheduler
    audited: str  # group of users whose requests are recorded; empty: none


@dataclass(frozen=True)
class ControlPlane:
    """A started control plane."""

    authority: Authority
    api: Api
    server: str
    """Its address as the parts beside it see it."""

    def kubeconfig(self, folder: Path, part: str, user: str, groups: tuple[str, ...] = ()) -> Path:
        """The kubeconfig of a component."""
        return self.authority.kubeconfig(folder / f"{part}.kubeconfig", self.server, user, groups)


def start(
    run: Run,
    daemons: Daemons,
    binaries: dict[str, str],
    nodes: int,
    node_address: str | None,
    options: Options,
) -> ControlPlane:
    """Start all four and wait for the API server; writes the user's `kubeconfig`."""
    port = free_port()
    authority = Authority(run.folder / "pki")
    addresses = ["127.0.0.1", API_SERVICE_ADDRESS, *([node_address] if node_address else [])]
    authority.issue("apiserver", "kube-apiserver", addresses=addresses, names=API_NAMES)
    authority.issue("kubelet-client", "kube-apiserver-kubelet-client", ("system:masters",))
    signing_key(authority.folder)
    etcd = f"http://127.0.0.1:{free_port()}"
    daemons.start("etcd", _etcd(run, binaries, etcd))
    audit = _audit(run, options.audited) if options.audited else []
    daemons.start("kube-apiserver", [*_apiserver(authority, binaries, etcd, port, node_address), *audit])
    server = f"https://127.0.0.1:{port}"
    authority.kubeconfig(run.folder / "kubeconfig", f"https://127.0.0.1:{options.user_port or port}", *ADMIN)
    admin = authority.kubeconfig(authority.folder / "admin.kubeconfig", server, *ADMIN)
    plane = ControlPlane(authority, Api(admin), server)
    daemons.wait_for("kube-apiserver", plane.api.is_ready, log="kube-apiserver")
    daemons.start("kube-controller-manager", _controller_manager(plane, binaries, nodes))
    daemons.start("kube-scheduler", _scheduler(plane, binaries, options.extenders))
    return plane


def lease_seconds(nodes: int) -> int:
    """Duration of a node's Lease in s.

    >>> lease_seconds(3), lease_seconds(1000)
    (40, 200)
    """
    return max(SHORTEST_LEASE, nodes // NODES_PER_LEASE_SECOND)


def has_default_account(api: Api) -> bool:
    """Pods can be created only when the controller manager has created the namespace's service account."""
    return bool(api.get("/api/v1/namespaces/default/serviceaccounts/default"))


def _etcd(run: Run, binaries: dict[str, str], client: str) -> list[str]:
    peer = f"http://127.0.0.1:{free_port()}"
    return [
        binaries["etcd"],
        f"--data-dir={run.folder / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",  # a test cluster is never restored after a power failure
        "--log-level=warn",
    ]


def _apiserver(
    authority: Authority, binaries: dict[str, str], etcd: str, port: int, node_address: str | None
) -> list[str]:
    pki = authority.folder
    # On loopback there is no address that pods could reach, and none to publish.
    listen = (
        ["--bind-address=0.0.0.0", f"--advertise-address={node_address}"]
        if node_address
        else ["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none"]
    )
    return [
        binaries["kube-apiserver"],
        *listen,
        f"--secure-port={port}",
        f"--etcd-servers={etcd}",
        f"--tls-cert-file={pki / 'apiserver.crt'}",
        f"--tls-private-key-file={pki / 'apiserver.key'}",
        f"--client-ca-file={authority.certificate}",
        # Without it, controller manager and scheduler log its absence twice a minute.
        f"--requestheader-client-ca-file={authority.certificate}",
        "--requestheader-allowed-names=front-proxy-client",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={pki / 'service-accounts.pub'}",
        f"--service-account-signing-key-file={pki / 'service-accounts.key'}",
        f"--service-cluster-ip-range={SERVICE_NETWORK}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged",
        # Without it `kubectl logs` would resolve the node's name.
        "--kubelet-preferred-address-types=InternalIP",
        f"--kubelet-certificate-authority={authority.certificate}",
        f"--kubelet-client-certificate={pki / 'kubelet-client.crt'}",
        f"--kubelet-client-key={pki / 'kubelet-client.key'}",
        "--max-requests-inflight=3000",
        "--max-mutating-requests-inflight=1000",
    ]


def _audit(run: Run, group: str) -> list[str]:
    rules = [{"level": "Metadata", "userGroups": [group]}, {"level": "None"}]
    # With ResponseStarted: a watch has not ended when a test looks.
    policy = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": rules}
    file = run.folder / "audit-policy.json"
    file.write_text(json.dumps(policy))
    return [f"--audit-policy-file={file}", f"--audit-log-path={run.folder / AUDIT_LOG}"]


def _controller_manager(plane: ControlPlane, binaries: dict[str, str], nodes: int) -> list[str]:
    pki = plane.authority.folder
    kubeconfig = plane.kubeconfig(pki, "kube-controller-manager", "system:kube-controller-manager")
    return [
        binaries["kube-controller-manager"],
        *_served(kubeconfig),
        f"--kubeconfig={kubeconfig}",
        f"--root-ca-file={plane.authority.certificate}",
        f"--client-ca-file={plane.authority.certificate}",
        f"--service-account-private-key-file={pki / 'service-accounts.key'}",
        f"--cluster-signing-cert-file={plane.authority.certificate}",
        f"--cluster-signing-key-file={plane.authority.key}",
        "--use-service-account-credentials",
        f"--flex-volume-plugin-dir={pki.parent / 'volume-plugins'}",  # otherwise it creates one in /usr
        # It writes a TTL annotation for kubelets to every node, and to all again when their number passes a threshold.
        "--controllers=*,-ttl-controller",
        f"--node-monitor-grace-period={1.25 * lease_seconds(nodes):.0f}s",
        f"--kube-api-qps={QPS}",
        f"--kube-api-burst={BURST}",
        "--leader-elect=false",
    ]


def _scheduler(plane: ControlPlane, binaries: dict[str, str], extenders: list[Object]) -> list[str]:
    pki = plane.authority.folder
    kubeconfig = plane.kubeconfig(pki, "kube-scheduler", "system:kube-scheduler")
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        # Otherwise a test would measure its default limit of 50 requests/s.
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": QPS, "burst": BURST},
        "leaderElection": {"leaderElect": False},
        "extenders": extenders,
    }
    file = pki / "kube-scheduler.json"
    file.write_text(json.dumps(configuration))
    return [
        binaries["kube-scheduler"],
        *_served(kubeconfig),
        f"--config={file}",
        f"--client-ca-file={plane.authority.certificate}",
    ]


def _served(kubeconfig: Path) -> list[str]:
    """Health and metrics on a free loopback port, for clients that the API server authorizes."""
    return [
        "--bind-address=127.0.0.1",
        f"--secure-port={free_port()}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
    ]
