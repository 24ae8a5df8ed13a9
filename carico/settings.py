"""Every setting of every process, with its default, its unit and the reason for it; config.py reads their values.

Times are in seconds here; files, environment and flags may use `30s`, `5m` or a bare number. The docstrings of the
classes are headings in the output of --help.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from carico.config import duration, setting
from carico.durations import show
from carico.pod_class import DEFAULT_IGNORED

# Usage at which a resource counts as full. For cpu (mean of utilisation and pressure) 0.99 is two busy tasks per core.
FULL = 0.99
AUTO = Path("auto")

DIMENSIONS = ("cpu", "memory", "memory_pressure", "io_pressure", "disk", "network")
LEASE_JITTER = 1.2  # attempts to take the Lease are up to this many retry periods apart
ESTIMATORS = ("class", "resource-joint", "resource", "signal", "signal-trace", "signal-difference", "signal-joint")


@dataclasses.dataclass(frozen=True)
class TelemetrySettings:
    """What is read from the kernel, and how often."""

    rate_hz: float = setting(
        10.0,
        "samples per second; 10 shows the 200 ms spikes of container starts",
        least=0.1,
        most=100,
        metavar="HZ",
    )
    proc_root: Path = setting(Path("/proc"), "where the host's /proc is mounted", metavar="DIR")
    cgroup_root: Path = setting(Path("/sys/fs/cgroup"), "where the host's cgroup tree is mounted", metavar="DIR")
    dimensions: tuple[str, ...] = setting(
        ("cpu", "memory"),
        f"resources to watch, in this order, out of {', '.join(DIMENSIONS)}",
        choices=DIMENSIONS,
        metavar="NAME,…",
    )
    cpu: str = setting(
        "mean",
        "what cpu usage is: the mean of utilisation and pressure, or one of them",
        choices=("mean", "utilisation", "pressure"),
    )
    memory: str = setting(
        "available",
        "what used memory is taken from: MemAvailable, or free+buffers+cached",
        choices=("available", "free"),
    )
    own_limits: bool = setting(False, "measure against the cgroup limits of this process instead of the machine")
    disk_device: str = setting("", "disk to watch, e.g. nvme0n1; empty: the busiest one", metavar="NAME")
    network_device: str = setting(
        "", "network interface to watch, e.g. eth0; empty: the one with the default route", metavar="NAME"
    )
    network_bytes_per_second: float = setting(
        125e6, "rate at which a network link counts as full (125e6 = 1 Gbit/s)", least=1, metavar="BYTES/S"
    )


@dataclasses.dataclass(frozen=True)
class EstimateSettings:
    """How samples become Pod-Capacity."""

    estimator: str = setting(
        "class", "method that estimates Pod-Capacity; docs/estimators.md compares them", choices=ESTIMATORS
    )
    smoothing: str = setting(
        "change-aware",
        "a moving average alone (ema), or one that starts again when the runtime reports that pods changed",
        choices=("change-aware", "ema"),
    )
    batch: int = setting(10, "samples per estimate; with rate_hz 10 one estimate a second", least=1, most=1000)
    damping: float = setting(0.75, "weight of the past in the local subspace", least=0, most=0.999, metavar="RATIO")
    cluster_weight: float = setting(
        0.8,
        "weight of the cluster's model against the local one in the signal k",
        least=0,
        most=1,
        metavar="RATIO",
    )
    full: dict[str, float] = setting(
        {},
        f"usage at which a resource is full, by resource, e.g. cpu=0.9; {FULL} for the others",
        least=0.01,
        most=1,
        choices=DIMENSIONS,
        metavar="NAME=RATIO,…",
    )
    first_cost_cores: float = setting(
        1.0,
        "busy threads that a pod of a class is expected to need before one was measured",
        least=0.001,
        metavar="CORES",
    )
    first_cost_memory: float = setting(
        float(2**30),
        "memory that a pod of a class is expected to need before one was measured",
        least=1,
        metavar="BYTES",
    )
    capacity_limit: float = setting(1000.0, "highest Pod-Capacity that is ever reported", least=1, metavar="PODS")
    pronto_window: int = duration(60, "window in which Pronto's reject signal looks for spikes", least=2, most=86400)
    pronto_threshold: float = setting(
        3.0,
        "weighted sum of spikes, in standard deviations, above which Pronto rejects",
        least=0,
        metavar="DEVIATIONS",
    )


@dataclasses.dataclass(frozen=True)
class ClassSettings:
    """Which pods are alike: agents and schedulers need the same values."""

    class_ignored_labels: tuple[str, ...] = setting(
        DEFAULT_IGNORED,
        "labels of one pod, run or rollout, which do not distinguish classes; a trailing * matches any suffix, and "
        "`default` for the list in carico/pod_class.py",
        metavar="LABEL,…",
    )


@dataclasses.dataclass(frozen=True)
class RuntimeSettings(ClassSettings):
    """Where pods are counted."""

    runtime: str = setting(
        "auto",
        "source of pod counts; auto takes the best there is",
        choices=("auto", "containerd", "cri", "cgroup", "none"),
        common=True,
    )
    containerd_socket: Path = setting(Path("/run/containerd/containerd.sock"), "containerd's socket", metavar="SOCKET")
    cri_socket: Path = setting(Path("/run/crio/crio.sock"), "socket of a CRI runtime such as CRI-O", metavar="SOCKET")
    churn_after_start: float = duration(0.1, "time after a container start in which usage is not trusted", least=0)
    churn_after_delete: float = duration(0.3, "time after a container deletion in which usage is not trusted", least=0)
    settle: float = duration(2.0, "time until the load of a new pod shows in the usage", least=0)
    pod_stats: str = setting(
        "auto",
        "source of each pod's usage: its cgroup, or the runtime's statistics where that is not visible (auto)",
        choices=("auto", "cgroup", "cri", "none"),
    )
    measure_budget: float = duration(
        0.001, "processor time per second for reading pods that are older than 20 s; they take turns", least=0
    )


@dataclasses.dataclass(frozen=True)
class TlsFiles:
    """TLS of the gRPC connections."""

    tls_ca: Path | None = setting(
        None,
        "PEM file with the authority of the servers that this process calls; read again at each connection",
        common=True,
    )
    tls_cert: Path | None = setting(
        None, "PEM file with this side's certificate; read again at each connection", common=True
    )
    tls_key: Path | None = setting(None, "PEM file with this side's key; read again at each connection", common=True)
    token_file: Path | None = setting(
        None,
        "file with the ServiceAccount token that this process shows to the servers that it calls, over TLS only; read "
        "again at each connection",
        common=True,
    )
    plaintext: bool = setting(False, "gRPC without TLS; for a trusted network only", common=True)


@dataclasses.dataclass(frozen=True)
class ServerTlsFiles(TlsFiles):
    """Who may call over gRPC."""

    client_ca: Path | None = setting(
        None, "PEM file with the authority of the callers' certificates; read again at each connection", common=True
    )
    allow_anonymous_clients: bool = setting(
        False, "accept callers without a certificate: any client may then report for any node"
    )
    token_audience: str = setting(
        "",
        "audience of the ServiceAccount tokens that identify callers, verified by the API server; empty: certificates "
        "of client_ca instead",
        metavar="NAME",
        common=True,
    )
    agent_account: str = setting(
        "carico-agent",
        "ServiceAccount of the agents, as NAMESPACE/NAME, or NAME in this process's own namespace",
        metavar="ACCOUNT",
    )
    peer_account: str = setting("carico-aggregator", "ServiceAccount of the aggregator's replicas", metavar="ACCOUNT")
    scheduler_account: str = setting("carico-scheduler", "ServiceAccount of the schedulers", metavar="ACCOUNT")


@dataclasses.dataclass(frozen=True)
class NodeSettings(TelemetrySettings, EstimateSettings, RuntimeSettings):
    """All that makes Pod-Capacity on one node."""


@dataclasses.dataclass(frozen=True)
class AgentSettings(NodeSettings, TlsFiles):
    """Agent, one per node."""

    node_name: str = setting("", "this node's name in Kubernetes; empty: the host name", metavar="NAME", common=True)
    listen: str = setting(
        "127.0.0.1:9464", "address of /metrics, /healthz, /livez and /readyz", metavar="HOST:PORT", common=True
    )
    schedulers: tuple[str, ...] = setting(
        (),
        "addresses of the schedulers' gRPC; every address behind a name gets the reports",
        metavar="HOST:PORT,…",
        common=True,
    )
    aggregator: str = setting("", "address of the aggregator's gRPC", metavar="HOST:PORT", common=True)
    state_file: Path | None = setting(
        AUTO,
        "file that keeps what pods cost across restarts; auto: agent.json in $STATE_DIRECTORY, or in /var/lib/carico"
        " where that is there; empty: forgotten at every restart",
        common=True,
    )
    ask_every: float = duration(10.0, "longest time between two requests for the cluster's model", least=0.1)
    ask_when_moved: float = setting(
        0.1,
        "change of the direction or the cost at which the cluster's model is requested at once",
        least=0.001,
        metavar="RATIO",
    )


@dataclasses.dataclass(frozen=True)
class ViewSettings(AgentSettings):
    """`carico top`, `record` and `replay`: the agent's section, with the limits of the caller's container."""

    own_limits: bool = setting(True, "measure against the cgroup limits of this process instead of the machine")


@dataclasses.dataclass(frozen=True)
class AggregatorSettings(ServerTlsFiles):
    """Aggregator."""

    listen: str = setting(
        "127.0.0.1:9465",
        "address of /metrics, /healthz, /livez, /readyz and, for clients on this machine only, /debug/model",
        metavar="HOST:PORT",
        common=True,
    )
    grpc_listen: str = setting("127.0.0.1:9466", "address of the gRPC service", metavar="HOST:PORT", common=True)
    merge: str = setting(
        "latest",
        "latest: every node's last model counts once; running: each message is merged as it comes",
        choices=("latest", "running"),
    )
    fade_after: float = duration(30.0, "silence after which a node starts to fade", least=0.1)
    fade_over: float = duration(30.0, "time over which a silent node fades to nothing", least=0.1)
    warmup: float = duration(
        2.0, "time after the first node's message in which no model is given: one node is no cluster", least=0
    )
    merge_every: float = duration(0.25, "interval between model updates", least=0.01)
    replica_name: str = setting(
        "", "this replica's name among its peers; empty: the host name", metavar="NAME", common=True
    )
    peers: tuple[str, ...] = setting(
        (),
        "address of the headless Service of all replicas, or of each of them; every address behind it is a peer",
        metavar="HOST:PORT,…",
        common=True,
    )
    peer_every: float = duration(1.0, "interval between exchanges with a peer", least=0.01)
    kubeconfig: Path | None = setting(
        None,
        "kubeconfig file of the API server that reviews tokens, with token_audience only; empty: $KUBECONFIG, the "
        "pod's service account, ~/.kube/config",
    )


@dataclasses.dataclass(frozen=True)
class ClientSettings:
    """API client."""

    kubeconfig: Path | None = setting(
        None, "kubeconfig file; empty: $KUBECONFIG, the pod's service account, ~/.kube/config", common=True
    )
    exec_in_pod: bool = setting(False, "run the credential plugin of a kubeconfig inside a pod too")
    qps: float = setting(
        0.0, "requests per second to the API server; 0: no limit but the API server's own", least=0, metavar="RATE"
    )
    burst: int = setting(100, "requests that may be sent at once when qps is set", least=1)
    connections: int = setting(512, "connections to the API server, in addition to the watches", least=1)


@dataclasses.dataclass(frozen=True)
class CapacitySettings:
    """When a node has room; a profile may have its own, as arguments of the plugin Capacity."""

    threshold: float = setting(
        1.0, "free capacity per unit that a node must have to be chosen", least=0.01, metavar="PODS", common=True
    )
    on_stale: str = setting(
        "filter",
        "a node without a recent report is left out (filter), judged by requests alone, or by its last report (ignore)",
        choices=("filter", "requests", "ignore"),
        common=True,
    )
    startup_limit: int = setting(
        8, "pods that may be starting on a node whose fullest resource is used up", least=1, metavar="PODS"
    )
    startup_limit_idle: int = setting(
        32, "pods that may be starting on an idle node; in between in proportion", least=1, metavar="PODS"
    )
    unmeasured_per_node: int = setting(
        1,
        "pods of an unmeasured class that may be on one node; the limit ends with the first measurement",
        least=1,
        metavar="PODS",
    )
    preempt_for_capacity: bool = setting(False, "evict pods of lower priority when only Pod-Capacity is missing")


@dataclasses.dataclass(frozen=True)
class LedgerSettings:
    """What pods are charged, and how nodes report."""

    heartbeat: float = duration(5.0, "interval between reports of a quiet node, up to 1,500 nodes", least=0.1)
    startup_patience: float = duration(
        60.0, "time after which a pod that does not start no longer counts as starting", least=1
    )
    first_cost_cores: float = setting(
        1.0,
        "cpu demand that a pod is charged until its class has been measured, unless it requests more",
        least=0,
        metavar="CORES",
    )
    first_cost_memory: float = setting(
        2.0**30,
        "memory that a pod is charged until its class has been measured, unless it requests more",
        least=0,
        metavar="BYTES",
    )
    class_costs_max_age: float = duration(
        86400.0, "age at which measured costs of a class are forgotten; a nightly job is known the next night", least=1
    )
    validate: bool = setting(False, "re-check the ledger's sums after every step; slow, for tests")


@dataclasses.dataclass(frozen=True)
class LeaseSettings:
    """Leader election: which of several replicas binds."""

    leader_elect: bool = setting(True, "bind only while holding the Lease", common=True)
    leader_elect_resource_namespace: str = setting("kube-system", "namespace of the Lease", metavar="NAMESPACE")
    leader_elect_resource_name: str = setting("carico-scheduler", "name of the Lease", metavar="NAME")
    leader_elect_lease_duration: float = duration(
        15.0, "time without renewal after which another replica may take the Lease", least=1
    )
    leader_elect_renew_deadline: float = duration(
        10.0, "time without a successful renewal after which the leader steps down", least=0.5
    )
    leader_elect_retry_period: float = duration(2.0, "interval between attempts to take or renew the Lease", least=0.1)

    def conflicts(self) -> Iterator[tuple[tuple[str, str], str]]:
        """As in kube-scheduler: otherwise there could be two leaders, or one that steps down immediately."""
        if not self.leader_elect:
            return
        lease, renew = self.leader_elect_lease_duration, self.leader_elect_renew_deadline
        if lease <= renew:
            text = f"a lease duration of {show(lease)} must be more than the renew deadline of {show(renew)}"
            yield ("leader_elect_lease_duration", "leader_elect_renew_deadline"), text
        retry = self.leader_elect_retry_period
        if renew <= LEASE_JITTER * retry:
            least = f"{LEASE_JITTER:g} times the retry period of {show(retry)}"
            text = f"a renew deadline of {show(renew)} must be more than {least}"
            yield ("leader_elect_renew_deadline", "leader_elect_retry_period"), text


@dataclasses.dataclass(frozen=True)
class CertificateSettings:
    """Certificates that the leader makes."""

    issue_certificates: bool = setting(
        False,
        "the leader makes and renews an authority, and the certificates of the Services carico-aggregator and "
        "carico-scheduler, in Secrets of its own namespace; instead of tls_cert and tls_key",
        common=True,
    )
    certificate_lifetime: float = duration(
        30 * 86400.0, "lifetime of the servers' certificates; renewed at two thirds of it", least=60
    )
    authority_lifetime: float = duration(365 * 86400.0, "lifetime of the authority that signs them", least=600)
    authority_distribution: float = duration(
        86400.0,
        "time for which a new authority is in the ConfigMap before it signs, for all clients to have it",
        least=1,
    )
    cluster_domain: str = setting(
        "cluster.local", "domain of the cluster's DNS, for the names in the servers' certificates", metavar="DOMAIN"
    )

    def conflicts(self) -> Iterator[tuple[tuple[str, str], str]]:
        least = 3 * self.certificate_lifetime + 2 * self.authority_distribution
        if self.issue_certificates and self.authority_lifetime < least:
            text = (
                f"an authority lifetime of {show(self.authority_lifetime)} must be at least {show(least)}: three times "
                "the certificates' lifetime and twice the time of distribution"
            )
            yield ("authority_lifetime", "certificate_lifetime"), text


@dataclasses.dataclass(frozen=True)
class SchedulerSettings(
    ClientSettings, CapacitySettings, LedgerSettings, LeaseSettings, ClassSettings, CertificateSettings, ServerTlsFiles
):
    """Scheduler."""

    aggregator: str = setting(
        "",
        "address of the aggregator's gRPC, which knows what classes of pods cost; empty: by the nodes' reports alone",
        metavar="HOST:PORT",
        common=True,
    )
    listen: str = setting(
        "127.0.0.1:9467",
        "address of /metrics, /healthz, /livez and /readyz, open to every client that can reach it",
        metavar="HOST:PORT",
        common=True,
    )
    debug_listen: str = setting(
        "127.0.0.1:9469",
        "address of the web page, /debug, /explain and /simulate; beyond loopback with TLS and tokens of the cluster",
        metavar="HOST:PORT",
        common=True,
    )
    extender_listen: str = setting(
        "", "address of the extender for kube-scheduler; empty: off", metavar="HOST:PORT", common=True
    )
    extender_client_ca: Path | None = setting(
        None,
        "PEM file with the authority of kube-scheduler's client certificate; needed beyond loopback, "
        "read again at each connection",
    )
    grpc_listen: str = setting(
        "127.0.0.1:9468", "address of the gRPC service that the agents report to", metavar="HOST:PORT", common=True
    )
    identity: str = setting(
        "", "this replica's name, which no other may have; empty: host name and a random number", metavar="NAME"
    )
    profiles: dict[str, Any] = setting(
        {"carico": {}},
        "plugins, their weights and arguments by schedulerName; docs/scheduler.md has the form",
        metavar="JSON",
    )
    binders: int = setting(400, "bindings in flight at once; the API server works best with many", least=1)
    first_backoff: float = duration(1.0, "back-off of a pod after its first failure, doubled at each", least=0)
    last_backoff: float = duration(10.0, "longest back-off of a pod", least=0)
    flush_after: float = duration(
        300.0, "time after which an unschedulable pod is tried again even without an event that could help it", least=1
    )
    writers: int = setting(16, "evictions and nominations sent at once, and as many conditions", least=1)
    event_queue: int = setting(
        20_000, "Events of pods without a node that may wait to be sent; beyond that the oldest are dropped", least=1
    )
    event_workers: int = setting(400, "Events sent at once while no pod waits for its binding", least=1)
    page: bool = setting(True, "serve the web page at / of debug_listen")
    decisions: int = setting(10_000, "decisions kept for /debug/decisions", least=1)
    node_capacities: bool = setting(
        True, "write NodeCapacity objects, which `kubectl get ncap` shows; without the CRD nothing is written"
    )
    per_node_metrics: int = setting(1000, "nodes above which /metrics has no series per node", least=0, metavar="NODES")

    def conflicts(self) -> Iterator[tuple[tuple[str, str], str]]:
        yield from LeaseSettings.conflicts(self)
        yield from CertificateSettings.conflicts(self)
