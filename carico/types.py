"""The nouns that travel between the stages, in the order of the data's way.

Usage is a ratio: 0 = all free, 1 = nothing left. Vectors are ordered as the `dimensions` that stand beside them.
"Fraction" means a share of this node, "absolute" means cores and bytes: only the latter compare between nodes.
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


class PodCount(NamedTuple):
    """What the container runtime says at one tick."""

    running: int  # workload pods whose sandbox runs; DaemonSet and static pods belong to the baseline
    churn: bool  # containers are being created or deleted, or were a moment ago
    unsettled: int  # workload pods among `running` whose load cannot be in the usage yet


class ClassKey(NamedTuple):
    """Pods that are alike (pod_class.py): what a cost belongs to."""

    namespace: str
    family: str  # unique and readable, e.g. "team-a/web"
    revision: str = ""  # one template of the family; empty where nothing tells templates apart


class PodCounters(NamedTuple):
    """One pod's own accounting at one instant: what its cgroup, or the container runtime, says."""

    usage_seconds: float  # of processor time since the group was made
    some_seconds: float | None  # s in which at least one of its tasks waited for a processor; None without PSI
    throttled_seconds: float  # s in which a cpu limit held it back, summed over processors
    memory_working_set: float  # bytes, as the kubelet counts: used less inactive file cache
    swap: float  # bytes
    memory_limit: float | None  # bytes of the whole pod
    cpu_limit_cores: float | None  # of the whole pod


class MeasuredPod(NamedTuple):
    """A workload pod of this node and what its own accounting said when it was last read. All amounts are absolute.

    Absolute demand on cpu is in busy threads ("cores of demand"): a thread that always wants to run is 1.0, whether it
    runs or waits. A node of n cores holds 2·n·full of it with `cpu: mean`. Memory is in bytes.
    """

    uid: str
    key: ClassKey | None  # None: the source of pods sees no labels
    age: float  # s since its first running container started; 0 while none has
    running: bool  # whether a container runs; False before the first start and between restarts
    demand: tuple[float, ...] | None  # per resource; None before the first reading, or where there is no accounting
    use: tuple[float, ...] | None  # cores really used, and the working set
    exact: bool  # False: the node was saturated and cpu demand is a lower bound
    fresh: bool  # read within this second


@dataclass(frozen=True, slots=True)
class ClassCost:
    """What pods of one class need, absolute, per resource in the order of the `resources` beside it."""

    key: ClassKey
    pods: int  # that run now
    weight: float  # pods measured, older ones counting less: how much the figures are worth
    mean: tuple[float, ...]  # of demand, once a pod has come up to its load
    variance: tuple[float, ...]  # between pods
    high: tuple[float, ...]  # high quantile of cpu demand; highest working set
    use_high: tuple[float, ...]  # high quantile of what is used: what a request should say
    ramp: float  # s until a pod shows its load
    nodes: int = 1  # that measured it; 0: none of them is there any more


NO_PODS = PodCount(running=0, churn=False, unsettled=0)


class Mode(StrEnum):
    """Which of the two formulas made a Pod-Capacity."""

    SETTLED = "settled"  # from the usage of this second
    CHURN = "churn"  # from baseline and cost, because the runtime is busy and usage lies


@dataclass(frozen=True, slots=True)
class Estimate:
    """The node's answer for one second."""

    at: float  # s, monotonic
    usage: tuple[float, ...]  # smoothed, per dimension
    signal_k: float  # units of the cluster's recent average workload that still fit
    baseline_ratio: tuple[float, ...]  # usage with no workload pod, per dimension
    cost_ratio: tuple[float, ...]  # usage that one pod adds, per dimension
    baseline_scalar: float  # in the estimator's own unit: pods for `resource*`, k for `signal*`
    cost_scalar: float  # usage of the binding dimension for `resource*`, k for `signal*`
    pods: int  # running workload pods
    pod_capacity: float  # so many more pods fit; finite and ≥ 0
    mode: Mode
    rejecting: bool  # Pronto's signal: would reject any job now
    room: tuple[float, ...] = ()  # absolute demand that still fits, per resource; empty: the estimator knows none


@dataclass(frozen=True, slots=True)
class NodeSize:
    """What a fraction of this node is a fraction of."""

    cores: float
    memory_bytes: float

    def of(self, dimension: str) -> float:
        """The absolute size of a dimension; 1 for those that are ratios by nature (pressure).

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
    """A Gaussian per dimension: what one pod costs."""

    mean: tuple[float, ...]
    variance: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class LocalModel:
    """What a node tells the aggregator: its own evidence only, never what it heard from there."""

    node: str
    start_id: int  # differs at every start of the agent
    sequence: int  # grows with every message of one start
    size: NodeSize
    dimensions: tuple[str, ...]
    basis: Matrix  # U·Σ, m × r, fractions of this node
    baseline: tuple[float, ...]  # absolute
    cost: CostBelief | None  # absolute; None while the node has seen no pod of its own
    pods: int
    samples: int
    class_costs: tuple[ClassCost, ...] = ()  # measured here; those whose figures moved


@dataclass(frozen=True, slots=True)
class ClusterModel:
    """What the aggregator answers: the merged evidence of all live nodes, absolute."""

    version: int
    nodes: int
    dimensions: tuple[str, ...]
    gram: Matrix  # m × m, mean over nodes of S·UΣ²Uᵀ·S with S = diag(node size)
    mean_pods: float
    cost: CostBelief | None  # variance is the spread between the nodes, infinite for a dimension of which no node knows


class CostPoints(NamedTuple):
    """How the nodes' costs in one dimension are distributed, absolute."""

    cost: Vector
    variance: Vector  # of each cost
    weight: Vector  # nodes behind each point


@dataclass(frozen=True, slots=True)
class ReplicaModel:
    """What one replica of the aggregator tells the others: the aggregate of its own nodes."""

    replica: str
    start_id: int
    sequence: int
    dimensions: tuple[str, ...]
    gram: Matrix  # m × m, absolute: mean over the nodes that have both dimensions
    gram_weight: Matrix  # m × m: how many nodes that is; one that fades counts less than 1
    nodes: int
    weight: float  # nodes, one that fades counts less than 1
    mean_pods: float
    costs: tuple[CostPoints, ...]  # one per dimension
    joined: frozenset[str]  # nodes whose stream to this replica is new
    class_costs: tuple[ClassCost, ...] = ()  # of this replica's own nodes; weight 0: it has none any more


@dataclass(frozen=True, slots=True)
class NodeReport:
    """What a node tells the schedulers."""

    node: str
    start_id: int
    sequence: int
    sampled_at: float  # s since the epoch, for people to read only: clocks of two machines are never compared
    age: float  # s since the newest sample when the report was sent
    dimensions: tuple[str, ...]
    estimate: Estimate
    churn: bool  # the container runtime is busy
    cost_absolute: tuple[float, ...]
    counted: frozenset[str] | None  # UIDs of all running sandboxes; None = as in the report before
    finished: frozenset[str] | None  # UIDs whose sandbox ended in the last 60 s; None = as before
    agent_version: str
    full: tuple[float, ...] = ()  # absolute demand that the node holds in all, per resource; empty: an older agent
    class_costs: tuple[ClassCost, ...] = ()  # of classes that run here and whose figures moved
