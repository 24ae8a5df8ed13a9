"""Messages of this node: its own evidence for the aggregator, its estimate for the schedulers.

The node sends its own evidence only. The cluster's model is used in addition to its own and never sent back, or old
data would circulate in the cluster as new evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from carico import __version__
from carico.clock import Clock
from carico.estimate.pipeline import Evidence, Pipeline
from carico.runtime import PodTable
from carico.types import (
    ClassCost,
    ClassKey,
    ClusterModel,
    CostBelief,
    Estimate,
    LocalModel,
    NodeReport,
    NodeSize,
)
from carico.wire.codec import cluster


@dataclass(frozen=True)
class ReportBuilder:
    """Constant for one run of the agent, except for the size: processors can be added and removed."""

    name: str
    start_id: int
    dimensions: tuple[str, ...]
    size: Callable[[], NodeSize]

    def model(self, evidence: Evidence, pods: int, costs: tuple[ClassCost, ...] = ()) -> LocalModel:
        """Converts fractions to cores and bytes, except the basis, which the receiver checks as fractions."""
        size = self.size()
        scale = [size.of(dimension) for dimension in self.dimensions]
        return LocalModel(
            node=self.name,
            start_id=self.start_id,
            sequence=0,  # set when it is sent
            size=size,
            dimensions=self.dimensions,
            basis=evidence.basis,
            baseline=_times(evidence.baseline, scale),
            cost=None if evidence.cost is None else _absolute(evidence.cost, scale),
            pods=pods,
            samples=evidence.samples,
            class_costs=costs,
        )

    def adopt(self, model: ClusterModel, pipeline: Pipeline) -> None:
        """Passes the cluster's model to the pipeline, as fractions of this node."""
        evidence = pipeline.evidence()
        if evidence is not None:
            view = cluster.view(model, self.size(), self.dimensions, evidence.basis @ evidence.basis.T)
            pipeline.adopt(view.gram, view.cost, view.mean_pods)

    def adopt_classes(
        self, costs: Mapping[ClassKey, ClassCost], resources: tuple[str, ...], pipeline: Pipeline
    ) -> None:
        """Passes the cluster's class costs to the pipeline, in the order of this node's resources."""
        if resources != self.dimensions:
            at = tuple(resources.index(name) if name in resources else None for name in self.dimensions)
            costs = {key: _arranged(cost, at) for key, cost in costs.items()}
        pipeline.adopt_classes(costs)

    def report(
        self,
        estimate: Estimate,
        table: PodTable,
        clock: Clock,
        full: tuple[float, ...] = (),
        costs: tuple[ClassCost, ...] = (),
    ) -> NodeReport:
        """Call it in the same step as the estimate, so that its pods are those that the estimate counted."""
        now, size = clock.monotonic(), self.size()
        return NodeReport(
            node=self.name,
            start_id=self.start_id,
            sequence=0,  # set when it is sent, as is the age
            sampled_at=clock.wall() - (now - estimate.at),
            age=now - estimate.at,
            dimensions=self.dimensions,
            estimate=estimate,
            churn=table.count(now).churn,
            cost_absolute=_times(estimate.cost_ratio, [size.of(dimension) for dimension in self.dimensions]),
            counted=table.counted(),
            finished=table.finished(now),
            agent_version=__version__,
            full=full if estimate.room else (),
            class_costs=costs,
        )


def _times(values: tuple[float, ...], scale: list[float]) -> tuple[float, ...]:
    return tuple(value * factor for value, factor in zip(values, scale, strict=True))


def _arranged(cost: ClassCost, at: tuple[int | None, ...]) -> ClassCost:
    """The cost with its figures reordered; 0 for a resource that it does not contain."""

    def arranged(values: tuple[float, ...]) -> tuple[float, ...]:
        return tuple([0.0 if i is None else values[i] for i in at])

    return replace(
        cost,
        mean=arranged(cost.mean),
        variance=arranged(cost.variance),
        high=arranged(cost.high),
        use_high=arranged(cost.use_high),
    )


def _absolute(cost: CostBelief, scale: list[float]) -> CostBelief:
    """
    >>> _absolute(CostBelief((0.5,), (0.01,)), [8.0])
    CostBelief(mean=(4.0,), variance=(0.64,))
    """
    return CostBelief(_times(cost.mean, scale), _times(cost.variance, [factor**2 for factor in scale]))
