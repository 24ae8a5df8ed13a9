"""What this node says of itself: its own evidence for the aggregator, its estimate for the schedulers.

The node sends its own evidence only. What it hears from the cluster is used beside its own model and never sent back,
or old news would echo round the cluster as new evidence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from carico import __version__
from carico.clock import Clock
from carico.estimate.pipeline import Evidence, Pipeline
from carico.runtime import PodTable
from carico.types import ClusterModel, CostBelief, Estimate, LocalModel, NodeReport, NodeSize
from carico.wire.codec import cluster


@dataclass(frozen=True)
class Node:
    """Constant for one run of the agent, but for its size: processors come and go."""

    name: str
    start_id: int
    dimensions: tuple[str, ...]
    size: Callable[[], NodeSize]

    def model(self, evidence: Evidence, pods: int) -> LocalModel:
        """Fractions become cores and bytes, except the basis, which is checked as fractions at the other side."""
        size = self.size()
        scale = [size.of(dimension) for dimension in self.dimensions]
        return LocalModel(
            node=self.name,
            start_id=self.start_id,
            sequence=0,  # given when it is sent
            size=size,
            dimensions=self.dimensions,
            basis=evidence.basis,
            baseline=_times(evidence.baseline, scale),
            cost=None if evidence.cost is None else _absolute(evidence.cost, scale),
            pods=pods,
            samples=evidence.samples,
        )

    def adopt(self, model: ClusterModel, pipeline: Pipeline) -> None:
        """Gives the cluster's model to the pipeline, as fractions of this node."""
        evidence = pipeline.evidence()
        if evidence is not None:
            view = cluster.view(model, self.size(), self.dimensions, evidence.basis @ evidence.basis.T)
            pipeline.adopt(view.gram, view.cost, view.mean_pods)

    def report(self, estimate: Estimate, table: PodTable, clock: Clock) -> NodeReport:
        """To be made in the same step as the estimate, so that the pods in it are those that the estimate counted."""
        now, size = clock.monotonic(), self.size()
        return NodeReport(
            node=self.name,
            start_id=self.start_id,
            sequence=0,  # given when it is sent, as is the age
            sampled_at=clock.wall() - (now - estimate.at),
            age=now - estimate.at,
            dimensions=self.dimensions,
            estimate=estimate,
            churn=table.count(now).churn,
            cost=_times(estimate.cost, [size.of(dimension) for dimension in self.dimensions]),
            counted=table.counted(),
            finished=table.finished(now),
            agent_version=__version__,
        )


def _times(values: tuple[float, ...], scale: list[float]) -> tuple[float, ...]:
    return tuple(value * factor for value, factor in zip(values, scale, strict=True))


def _absolute(cost: CostBelief, scale: list[float]) -> CostBelief:
    """
    >>> _absolute(CostBelief((0.5,), (0.01,)), [8.0])
    CostBelief(mean=(4.0,), variance=(0.64,))
    """
    return CostBelief(_times(cost.mean, scale), _times(cost.variance, [factor**2 for factor in scale]))
