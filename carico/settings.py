"""Every knob of every process, with its default, its unit and the reason for it. knobs.py says how values are found."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from carico.knobs import knob

# Usage at which a resource counts as full. For cpu (mean of utilisation and pressure) 0.99 is two busy tasks per core.
FULL = 0.99

DIMENSIONS = ("cpu", "memory", "memory_pressure", "io_pressure", "disk", "network")
LEASE_JITTER = 1.2  # tries to take the Lease are up to so many times lease_retry apart
ESTIMATORS = ("resource-joint", "resource", "signal", "signal-trace", "signal-difference", "signal-joint")


@dataclasses.dataclass(frozen=True)
class TelemetrySettings:
    """What is read from the kernel, and how often."""

    rate_hz: float = knob(
        10.0, "samples per second; 10 shows the 200 ms spikes of container starts", least=0.1, most=100
    )
    proc_root: Path = knob(Path("/proc"), "where the host's /proc is mounted")
    cgroup_root: Path = knob(Path("/sys/fs/cgroup"), "where the host's cgroup tree is mounted")
    dimensions: tuple[str, ...] = knob(("cpu", "memory"), "resources to watch, in this order", choices=DIMENSIONS)
    cpu: str = knob(
        "mean",
        "cpu is the mean of utilisation and pressure, or one of them",
        choices=("mean", "utilisation", "pressure"),
    )
    memory: str = knob(
        "available", "used memory from MemAvailable, or from free+buffers+cached", choices=("available", "free")
    )
    own_limits: bool = knob(
        False, "measure against the cgroup limits that this process lives under instead of the machine"
    )
    disk_device: str = knob("", "disk to watch, e.g. nvme0n1; empty: the busiest one")
    network_device: str = knob("", "network interface to watch, e.g. eth0; empty: the one with the default route")
    network_bytes_per_second: float = knob(
        125e6, "bytes/s that count as a full network link (125e6 = 1 Gbit/s)", least=1
    )


@dataclasses.dataclass(frozen=True)
class EstimateSettings:
    """How samples become Pod-Capacity."""

    estimator: str = knob(
        "resource-joint", "what makes Pod-Capacity; docs/estimators.md compares them", choices=ESTIMATORS
    )
    smoothing: str = knob(
        "change-aware",
        "ema alone, or restarted when the runtime says that pods changed",
        choices=("change-aware", "ema"),
    )
    batch: int = knob(10, "samples per estimate; with rate_hz 10 one estimate a second", least=1, most=1000)
    damping: float = knob(0.75, "weight of the past in the local subspace", least=0, most=0.999)
    cluster_weight: float = knob(
        0.8, "weight of the cluster's model beside the local one in the signal k", least=0, most=1
    )
    full: dict[str, float] = knob(
        {},
        f"usage at which a resource is full, by resource; the others {FULL}",
        least=0.01,
        most=1,
        choices=DIMENSIONS,
    )
    capacity_limit: float = knob(1000.0, "pods; Pod-Capacity never says more than this", least=1)
    pronto_window: int = knob(60, "seconds in which Pronto's reject signal looks for spikes", least=2, most=86400)
    pronto_threshold: float = knob(
        3.0, "weighted sum of spikes, in standard deviations, over which it rejects", least=0
    )


@dataclasses.dataclass(frozen=True)
class RuntimeSettings:
    """Where pods are counted."""

    runtime: str = knob(
        "auto",
        "who tells about pods; auto takes the best there is",
        choices=("auto", "containerd", "cri", "cgroup", "none"),
    )
    containerd_socket: Path = knob(Path("/run/containerd/containerd.sock"), "containerd's socket")
    cri_socket: Path = knob(Path("/run/crio/crio.sock"), "socket of a CRI runtime such as CRI-O")
    churn_after_start: float = knob(0.1, "s after a container start in which usage is not trusted", least=0)
    churn_after_delete: float = knob(0.3, "s after a container deletion in which usage is not trusted", least=0)
    settle: float = knob(2.0, "s until the load of a new pod is in the usage", least=0)


@dataclasses.dataclass(frozen=True)
class TlsFiles:
    """Certificates of one side of a gRPC connection."""

    tls_ca: Path | None = knob(None, "PEM file with the authority that the other side's certificate must come from")
    tls_cert: Path | None = knob(None, "PEM file with this side's certificate")
    tls_key: Path | None = knob(None, "PEM file with this side's key")
    plaintext: bool = knob(False, "speak gRPC without TLS; for a trusted network only")


@dataclasses.dataclass(frozen=True)
class NodeSettings(TelemetrySettings, EstimateSettings, RuntimeSettings):
    """All that makes Pod-Capacity on one node."""


@dataclasses.dataclass(frozen=True)
class AgentSettings(NodeSettings, TlsFiles):
    """`carico agent`, one per node."""

    node_name: str = knob("", "this node's name in Kubernetes; empty: the host name")
    listen: str = knob("127.0.0.1:9464", "address of /metrics, /healthz and /readyz")
    schedulers: tuple[str, ...] = knob(
        (), "host:port of the schedulers' gRPC; every address behind a name gets the reports"
    )
    aggregator: str = knob("", "host:port of the aggregator's gRPC")
    state_file: Path | None = knob(None, "keeps what a pod costs across restarts; empty: forgotten at every restart")
    ask_every: float = knob(10.0, "s; the cluster's model is asked for at least this often", least=0.1)
    ask_when_moved: float = knob(0.1, "ask at once when the direction or the cost moved by this share", least=0.001)


@dataclasses.dataclass(frozen=True)
class ViewSettings(AgentSettings):
    """`carico top`, `record` and `replay`: the agent's section, for someone who may sit in a container."""

    own_limits: bool = knob(
        True, "measure against the cgroup limits that this process lives under instead of the machine"
    )


@dataclasses.dataclass(frozen=True)
class AggregatorSettings(TlsFiles):
    """`carico aggregator`, the cluster's model."""

    listen: str = knob("127.0.0.1:9465", "address of /metrics, /healthz, /readyz and /debug/model")
    grpc_listen: str = knob("127.0.0.1:9466", "address of the gRPC service")
    merge: str = knob(
        "latest",
        "every node's last model counts once, or each message is merged as it comes",
        choices=("latest", "running"),
    )
    fade_after: float = knob(30.0, "s of silence after which a node starts to fade", least=0.1)
    fade_over: float = knob(30.0, "s over which a silent node fades to nothing", least=0.1)
    hold: float = knob(
        2.0, "s after a start and the first node's word in which no model is given: one node is no cluster", least=0
    )
    merge_every: float = knob(0.25, "s between two makings of the model", least=0.01)
    replica_name: str = knob("", "this replica's name among its peers; empty: the host name")
    peers: tuple[str, ...] = knob(
        (), "host:port of the headless Service of all replicas, or of each of them; every address behind it is a peer"
    )
    peer_every: float = knob(1.0, "s between two exchanges with a peer", least=0.01)


@dataclasses.dataclass(frozen=True)
class ClientSettings:
    """How the API server is spoken to."""

    kubeconfig: Path | None = knob(
        None, "kubeconfig file; empty: $KUBECONFIG, the pod's service account, ~/.kube/config"
    )
    exec_in_pod: bool = knob(False, "run the credential plugin of a kubeconfig inside a pod too")
    qps: float = knob(0.0, "requests/s to the API server; 0: no limit but the API server's own", least=0)
    burst: int = knob(100, "requests that may be sent at once when qps is set", least=1)
    connections: int = knob(512, "connections to the API server beside the watches", least=1)


@dataclasses.dataclass(frozen=True)
class LedgerSettings:
    """When a node has room, and whom to believe."""

    threshold: float = knob(1.0, "pods; free capacity per unit that a node must have to be chosen", least=0.01)
    on_stale: str = knob(
        "filter",
        "a node without a recent report is left out, judged by requests alone, or by its last report",
        choices=("filter", "requests", "ignore"),
    )
    heartbeat: float = knob(5.0, "s between two reports of a quiet node, up to 1,500 nodes", least=0.1)
    startup_limit: int = knob(8, "pods that may be starting on a node whose fullest resource is used up", least=1)
    startup_limit_idle: int = knob(32, "the same on an idle node; in between in proportion", least=1)
    startup_patience: float = knob(
        60.0, "s after which a pod that does not start no longer counts as starting", least=1
    )
    preempt_for_capacity: bool = knob(False, "evict pods of lower priority when only Pod-Capacity is missing")
    validate: bool = knob(False, "re-check the ledger's sums after every step; for tests, slow")


@dataclasses.dataclass(frozen=True)
class LeaseSettings:
    """Which of several replicas binds."""

    leader_elect: bool = knob(True, "bind only while holding the Lease")
    lease_namespace: str = knob("kube-system", "namespace of the Lease")
    lease_name: str = knob("carico-scheduler", "name of the Lease")
    lease_duration: float = knob(15.0, "s without renewal after which another replica may take the Lease", least=1)
    lease_renew: float = knob(10.0, "s without a successful renewal after which the leader steps down", least=0.5)
    lease_retry: float = knob(2.0, "s between two tries to take or renew the Lease", least=0.1)

    def conflicts(self) -> Iterator[tuple[tuple[str, str], str]]:
        """As kube-scheduler has it: two leaders at once would be possible, or one that steps down at once."""
        if not self.leader_elect:
            return
        if self.lease_duration <= self.lease_renew:
            text = f"lease_duration ({self.lease_duration:g} s) must be more than lease_renew ({self.lease_renew:g} s)"
            yield ("lease_duration", "lease_renew"), text
        if self.lease_renew <= LEASE_JITTER * self.lease_retry:
            least = f"{LEASE_JITTER:g} times lease_retry ({self.lease_retry:g} s)"
            yield ("lease_renew", "lease_retry"), f"lease_renew ({self.lease_renew:g} s) must be more than {least}"


@dataclasses.dataclass(frozen=True)
class SchedulerSettings(ClientSettings, LedgerSettings, LeaseSettings, TlsFiles):
    """`carico scheduler`, which binds."""

    listen: str = knob(
        "127.0.0.1:9467", "address of the web page, /metrics, /healthz, /readyz, /explain, /extender and /debug"
    )
    grpc_listen: str = knob("127.0.0.1:9468", "address of the gRPC service that the agents report to")
    identity: str = knob("", "this replica's name, which no other may have; empty: host name and a random number")
    profiles: dict[str, Any] = knob(
        {"carico": {}}, "plugins and weights by schedulerName; docs/scheduler.md has the form"
    )
    binders: int = knob(400, "bindings under way at once; the API server works best with many", least=1)
    first_backoff: float = knob(1.0, "s that a pod pauses after its first failure, doubled at each", least=0)
    last_backoff: float = knob(10.0, "s that a pod pauses at most", least=0)
    flush_after: float = knob(
        300.0, "s after which a waiting pod is tried again even if nothing helpful happened", least=1
    )
    writers: int = knob(16, "evictions and nominations sent at once, and as many conditions", least=1)
    event_queue: int = knob(20_000, "Events of pods without a node that may wait to be sent; the oldest go", least=1)
    event_workers: int = knob(400, "Events sent at once while no pod waits for its binding", least=1)
    page: bool = knob(True, "serve the web page at / of the address above")
    decisions: int = knob(10_000, "decisions kept for /debug/decisions", least=1)
    per_node_metrics: int = knob(1000, "nodes above which /metrics has no series per node", least=0)
