"""Data types that are passed between stages and processes, in the order of the data flow.

Usage is a ratio: 0 = all free, 1 = nothing left. Vectors are in the order of the `dimensions` in the same object.
"Fraction" means a share of this node, "absolute" means cores and bytes: only the latter are comparable between nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]


class Sample(NamedTuple):
    """One reading of the kernel's counters."""

    at: float  # s, monotonic, end of the interval that the sample covers
    values: tuple[float, ...]  # usage per dimension, each in [0, 1]


class ReviewedToken(NamedTuple):
    """The API server's review of a ServiceAccount's token."""

    user: str  # system:serviceaccount:NAMESPACE:NAME
    node: str  # the node of the pod that the token was made for; empty where the API server does not name it
    ends_at: float  # s, Unix time


class PodCount(NamedTuple):
    """Pods of the container runtime at one tick."""

    running: int  # workload pods whose sandbox runs; DaemonSet and static pods belong to the baseline
    churn: bool  # containers are being created or deleted, or recently were
    unsettled: int  # workload pods among `running` whose load cannot be in the usage yet


class ClassKey(NamedTuple):
    """A class of pods (pod_class.py). Costs are learned per class."""

    namespace: str
    family: str  # unique and readable, e.g. "team-a/web"
    revision: str = ""  # one template of the family; empty where templates cannot be distinguished


class PodCounters(NamedTuple):
    """Counters of one pod at one time, from its cgroup or the container runtime."""

    usage_seconds: float  # of processor time since the cgroup was created
    some_seconds: float | None  # s in which at least one of its tasks waited for a processor; None without PSI
    throttled_seconds: float  # s in which it was throttled by a cpu limit, summed over processors
    memory_working_set: float  # bytes, as in the kubelet: used without inactive file cache
    swap: float  # bytes
    memory_limit: float | None  # bytes of the whole pod
    cpu_limit_cores: float | None  # of the whole pod


class MeasuredPod(NamedTuple):
    """A workload pod of this node and the last reading of its counters. All amounts are absolute.

    Absolute demand for cpu is in busy threads ("cores of demand"): a thread that is always runnable is 1.0, whether it
    runs or waits. A node of n cores can hold 2·n·full of it with `cpu: mean`. Memory is in bytes.
    """

    uid: str
    key: ClassKey | None  # None: the source of pods has no labels
    age: float  # s since its first running container started; 0 while none has
    running: bool  # whether a container runs; False before the first start and between restarts
    demand: tuple[float, ...] | None  # per resource; None before the first reading, or where there is no accounting
    use: tuple[float, ...] | None  # cores used, and the working set
    exact: bool  # False: the node was saturated and cpu demand is a lower bound
    fresh: bool  # read within this second


@dataclass(frozen=True, slots=True)
class ClassCost:
    """Demand of pods of one class, absolute, per resource in the order of the `resources` sent with it."""

    key: ClassKey
    pods: int  # that run now
    weight: float  # pods measured, decayed: the weight of the figures
    mean: tuple[float, ...]  # of demand, after a pod has reached its load
    variance: tuple[float, ...]  # between pods
    high: tuple[float, ...]  # high quantile of cpu demand; highest working set
    use_high: tuple[float, ...]  # high quantile of use: a recommended request
    ramp: float  # s until a pod has reached its load
    nodes: int = 1  # that measured it; 0: none of them exists any more


NO_PODS = PodCount(running=0, churn=False, unsettled=0)


class Mode(StrEnum):
    """Which of the two formulas Pod-Capacity was computed with."""

    SETTLED = "settled"  # from the usage of this second
    CHURN = "churn"  # from baseline and cost, because the runtime is busy and usage is not representative


@dataclass(frozen=True, slots=True)
class Estimate:
    """The result of the estimation for one second."""

    at: float  # s, monotonic
    usage: tuple[float, ...]  # smoothed, per dimension
    signal_k: float  # units of the cluster's recent average workload that still fit
    baseline_ratio: tuple[float, ...]  # usage with no workload pod, per dimension
    cost_ratio: tuple[float, ...]  # usage that one pod adds, per dimension
    baseline_scalar: float  # in the estimator's own unit: pods for `resource*`, k for `signal*`
    cost_scalar: float  # usage of the binding dimension for `resource*`, k for `signal*`
    pods: int  # running workload pods
    pod_capacity: float  # how many more pods fit; finite and ≥ 0
    mode: Mode
    rejecting: bool  # Pronto's signal: would reject any job now
    room: tuple[float, ...] = ()  # absolute demand that still fits, per resource; empty: the estimator has none


@dataclass(frozen=True, slots=True)
class NodeSize:
    """The absolute size that fractions of this node refer to."""

    cores: float
    memory_bytes: float

    def of(self, dimension: str) -> float:
        """The absolute size of a dimension; 1 for those that are ratios (pressure).

        >>> NodeSize(cores=8, memory_bytes=2**34).of("cpu")
        8
        >>> NodeSize(cores=8, memory_bytes=2**34).of("io_pressure")
        1.0
        """
        return {"cpu": self.cores, "memory": self.memory_bytes}.get(dimension, 1.0)

    def vector(self, dimensions: tuple[str, ...]) -> Vector:
        return np.array([self.of(d) for d in dimensions], dtype=np.float64)


@dataclass(frozen=True, slots=True)
class CostBelief:
    """The cost of one pod: a Gaussian per dimension."""

    mean: tuple[float, ...]
    variance: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class LocalModel:
    """Message of a node to the aggregator: its own evidence only, without the cluster's model."""

    node: str
    start_id: int  # differs at every start of the agent
    sequence: int  # increases with every message of one start
    size: NodeSize
    dimensions: tuple[str, ...]
    basis: Matrix  # U·Σ, m × r, fractions of this node
    baseline: tuple[float, ...]  # absolute
    cost: CostBelief | None  # absolute; None while the node has no evidence of its own pods
    pods: int
    samples: int
    class_costs: tuple[ClassCost, ...] = ()  # measured on this node; those whose figures changed


@dataclass(frozen=True, slots=True)
class ClusterModel:
    """Response of the aggregator: the merged evidence of all live nodes, absolute."""

    version: int
    nodes: int
    dimensions: tuple[str, ...]
    gram: Matrix  # m × m, mean over nodes of S·UΣ²Uᵀ·S with S = diag(node size)
    mean_pods: float
    cost: CostBelief | None  # variance is between the nodes, infinite for a dimension without evidence


class CostPoints(NamedTuple):
    """The distribution of the nodes' costs in one dimension, absolute."""

    cost: Vector
    variance: Vector  # of each cost
    weight: Vector  # nodes per point


@dataclass(frozen=True, slots=True)
class ReplicaModel:
    """Message of one replica of the aggregator to the others: the aggregate of its own nodes."""

    replica: str
    start_id: int
    sequence: int
    dimensions: tuple[str, ...]
    gram: Matrix  # m × m, absolute: mean over the nodes that have both dimensions
    gram_weight: Matrix  # m × m: the number of these nodes; one that fades counts less than 1
    nodes: int
    weight: float  # nodes; one that fades counts less than 1
    mean_pods: float
    costs: tuple[CostPoints, ...]  # one per dimension
    joined: frozenset[str]  # nodes whose stream to this replica is new
    class_costs: tuple[ClassCost, ...] = ()  # of this replica's own nodes; weight 0: it no longer has any


@dataclass(frozen=True, slots=True)
class NodeReport:
    """Report of a node to the schedulers."""

    node: str
    start_id: int
    sequence: int
    sampled_at: float  # s since the epoch, for display only: clocks of two machines are never compared
    age: float  # s since the newest sample when the report was sent
    dimensions: tuple[str, ...]
    estimate: Estimate
    churn: bool  # the container runtime is busy
    cost_absolute: tuple[float, ...]
    counted: frozenset[str] | None  # UIDs of all running sandboxes; None = as in the previous report
    finished: frozenset[str] | None  # UIDs whose sandbox ended in the last 60 s; None = as before
    agent_version: str
    full: tuple[float, ...] = ()  # absolute demand that the node can hold, per resource; empty: an older agent
    class_costs: tuple[ClassCost, ...] = ()  # of classes that run on the node and whose figures changed
