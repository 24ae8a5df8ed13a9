"""The stages from samples to Pod-Capacity on one node, in order.

Call `update` with every sample and the pod count of the container runtime at that moment; once per batch (a second) it
returns an Estimate. The node's own model contains only its own evidence: the cluster's model is stored separately,
combined with it where it is used, and never sent back.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from carico.errors import InvalidMessage
from carico.estimate.by_class import ByClass
from carico.estimate.estimator import Observation, Prediction
from carico.estimate.estimators import make_estimator, make_smoother
from carico.estimate.paper import subspace
from carico.estimate.paper.batch import Batch, CleanMean
from carico.estimate.paper.capacity_signal import signal, trace_workload, workload
from carico.estimate.paper.pronto import Pronto
from carico.estimate.paper.subspace import Subspace, damp, decompose, from_gram, merge
from carico.estimate.prior import Prior
from carico.estimate.resource import ResourceFit
from carico.estimate.saved import numbers, rows, section
from carico.estimate.scale import Scale, scale_of
from carico.estimate.stage import Stage
from carico.settings import FULL, EstimateSettings
from carico.types import (
    ClassCost,
    ClassKey,
    CostBelief,
    Estimate,
    Matrix,
    MeasuredPod,
    Mode,
    NodeSize,
    PodCount,
    Sample,
)

SAVED_VERSION = 3
LOWEST_OF = 3  # batches: the runtime's spikes seldom continue for this long without a gap
MEASURED_FOR = 5.0  # s after which measured pods are stale
LONGEST_CLUSTER = 1e6  # the cluster's model in fractions of this node, which may be a very small one


@dataclass(frozen=True, slots=True)
class Evidence:
    """This node's own evidence, in fractions of the node. The cluster's model is built from it."""

    basis: Matrix  # U·Σ, m × r
    baseline: tuple[float, ...]
    cost: CostBelief | None  # None until pods started or stopped here
    samples: int


class Pipeline:
    """
    >>> pipeline = Pipeline(EstimateSettings(), ("cpu", "memory"))
    >>> ticks = [pipeline.update(Sample(i / 10, (0.25, 0.5)), PodCount(0, False, 0)) for i in range(20)]
    >>> [i for i, estimate in enumerate(ticks) if estimate]
    [9, 19]
    >>> ticks[19].usage, ticks[19].mode.value
    ((0.25, 0.5), 'settled')
    """

    def __init__(
        self,
        settings: EstimateSettings,
        dimensions: tuple[str, ...],
        rate_hz: float = 10.0,
        node_size: NodeSize | None = None,
    ) -> None:
        """Without a size, the demands of measured pods are shares of the node."""
        size = len(dimensions)
        self._settings = settings
        self._dimensions = dimensions
        self._rate_hz = rate_hz
        self._full = tuple(settings.full.get(dimension, FULL) for dimension in dimensions)
        self._smoother = make_smoother(settings, size, rate_hz)
        self._batch = Batch(settings.batch)
        self._clean = CleanMean(self._full)
        self._local: Subspace | None = None
        self._cluster: Subspace | None = None
        self._node_size = node_size
        self._full_absolute: tuple[float, ...] | None = None
        self._estimator = make_estimator(settings, dimensions, self._full, self._scale())
        self._prior = Prior(size)
        self._pronto = Pronto(size, settings.pronto_window, settings.pronto_threshold)
        self._baseline: tuple[float, ...] = (0.0,) * size
        self._pods = -1  # at the last tick; -1 before the first
        self._learned_pods = -1  # at the last second that was learned from
        self._samples = 0
        self._recent: list[tuple[float, ...]] = []  # raw samples, of the last LOWEST_OF batches
        self._recent_pods: list[int] = []  # pod counts at the same times
        self._measured: Sequence[MeasuredPod] | None = None
        self._measured_at = -math.inf
        self._is_new = False  # nothing has been learned from `_measured` yet

    def _scale(self) -> Scale:
        if self._node_size is None:
            return Scale.of_shares(self._full)
        return scale_of(self._settings, self._dimensions, self._node_size, self._full, self._full_absolute)

    def set_full(self, full: tuple[float, ...], node_size: NodeSize | None = None) -> None:
        """Sets the absolute demand that the node can hold per resource, and its size if that changed or was not known.

        State in shares of the node is rescaled.
        """
        before = self._scale().whole
        self._full_absolute = full
        self._node_size = node_size or self._node_size
        self._resize(before)

    def _resize(self, before: tuple[float, ...]) -> None:
        """Converts state learned at the size `before` to the current size."""
        scale = self._scale()
        if isinstance(self._estimator, ByClass | ResourceFit):
            if before != scale.whole:
                factors = tuple([old / new for old, new in zip(before, scale.whole, strict=True)])
                self._estimator.rescale(factors)
                self._prior.rescale(factors)
            self._estimator.resize(scale)

    @property
    def wanted(self) -> int:
        """Samples until the next Estimate; the caller of `update` may buffer them up to this number."""
        return self._batch.length - len(self._batch.rows)

    def update(self, sample: Sample, pods: PodCount, measured: Sequence[MeasuredPod] | None = None) -> Estimate | None:
        """Processes one sample; returns an Estimate once per batch.

        `measured`: all workload pods with the last reading of each; pass it once per batch, with its last sample. None
        where there is no accounting.
        """
        self._take_measured(measured, sample.at)
        if pods.running != self._pods:
            self._pods = pods.running
            self._estimator.count(sample.at, pods.running)
            self._clean.restart()
        self._samples += 1
        kept = 1 - LOWEST_OF * self._batch.length
        self._recent = [*self._recent[kept:], sample.values]
        self._recent_pods = [*self._recent_pods[kept:], pods.running]
        smoother = self._smoother
        smoother.update(sample.values, pods)
        if smoother.clean:
            self._clean.take(sample.values)
        matrix = self._batch.add(smoother.usage)
        if matrix is None:
            return None
        self._local = decompose(matrix) if self._local is None else damp(self._local, matrix, self._settings.damping)
        return self._second(sample, pods)

    def _take_measured(self, measured: Sequence[MeasuredPod] | None, at: float) -> None:
        if measured is not None:
            self._measured, self._measured_at, self._is_new = measured, at, True
        elif at - self._measured_at > MEASURED_FOR:
            self._measured = None

    def between(self, sample: Sample, pods: PodCount, measured: Sequence[MeasuredPod] | None = None) -> Estimate | None:
        """An estimate between batches, right after `update` with the same arguments; None before the first second.

        Nothing is learned. It is for the moment in which pods started or stopped, so that a pod that waits for room
        does not wait for the end of the second as well.
        """
        if self._local is None:
            return None
        if measured is not None:
            self._measured, self._measured_at, self._is_new = measured, sample.at, False
        second, k = self._look(sample, pods)
        answer = self._estimator.answer(second, self._prior)
        return self._estimate(second, answer, k, rejecting=self._pronto.rejecting)

    def _second(self, sample: Sample, pods: PodCount) -> Estimate:
        second, k = self._look(sample, pods)
        self._clean.restart()
        self._estimator.learn(second)
        self._is_new = False
        self._close_prior(second)
        answer = self._estimator.answer(second, self._prior)
        self._baseline = answer.baseline
        return self._estimate(second, answer, k, rejecting=self._pronto.update(second.usage))

    def _look(self, sample: Sample, pods: PodCount) -> tuple[Observation, float]:
        """The input of the estimator, and the signal k as it is exported."""
        usage, model = self._smoother.usage, self._model()
        unit = workload(model)
        k = signal(usage, unit, self._full, self._settings.capacity_limit)
        own_unit, own_k = unit, k
        if self._estimator.trace:
            own_unit = trace_workload(model)
            own_k = signal(usage, own_unit, self._full, self._settings.capacity_limit)
        second = Observation(
            at=sample.at,
            pods=pods.running,
            unsettled=min(max(pods.unsettled, 0), pods.running),
            unreliable=pods.churn or not self._smoother.fresh,
            usage=usage,
            latest=sample.values,
            noise=self._smoother.noise,
            clean=self._clean.count,
            mean=self._clean.mean,
            saturated=self._clean.saturated,
            lowest=tuple([min(values) for values in zip(*self._recent, strict=True)]),
            most=max(self._recent_pods),
            unit=own_unit,
            k=own_k,
            measured=self._measured if self._is_new else _known(self._measured),
        )
        return second, k

    def _model(self) -> Subspace:
        """The subspace that k is computed with: the cluster's merged with the node's own."""
        assert self._local is not None
        if self._cluster is None:
            return self._local
        return merge(self._cluster, self._local, self._settings.cluster_weight)

    def _close_prior(self, second: Observation) -> None:
        """Own pods that started or stopped reduce the variance added for a moved prior (`Prior.seen`)."""
        if not second.clean:
            return
        changed = second.pods - self._learned_pods if self._learned_pods >= 0 else 0
        self._learned_pods = second.pods
        if changed:
            for i, noise in enumerate(second.noise):
                self._prior.seen(i, changed, noise / second.clean)

    def _estimate(self, second: Observation, answer: Prediction, k: float, *, rejecting: bool) -> Estimate:
        return Estimate(
            at=second.at,
            usage=second.usage,
            signal_k=k,
            baseline_ratio=answer.baseline,
            cost_ratio=answer.cost,
            baseline_scalar=answer.baseline_scalar,
            cost_scalar=answer.cost_scalar,
            pods=second.pods,
            pod_capacity=answer.pod_capacity,
            mode=Mode.CHURN if second.unreliable else Mode.SETTLED,
            rejecting=rejecting,
            room=answer.room,
        )

    def evidence(self) -> Evidence | None:
        """The model from the node's own evidence only; None before the first batch."""
        if self._local is None:
            return None
        return Evidence(self._local.basis, self._baseline, self._estimator.cost(), self._samples)

    def class_costs(self) -> tuple[ClassCost, ...]:
        """Class costs from this node's own evidence, absolute; the most recently used class first."""
        return self._estimator.class_costs() if isinstance(self._estimator, ByClass) else ()

    def adopt_classes(self, costs: Mapping[ClassKey, ClassCost]) -> None:
        """Stores the cluster's class costs, absolute, per resource in the order of this node's dimensions."""
        if isinstance(self._estimator, ByClass):
            self._estimator.adopt_classes(costs)

    def adopt(self, gram: Matrix, cost: CostBelief | None, mean_pods: float) -> None:  # noqa: ARG002
        """Stores the cluster's model, in fractions of this node.

        The Gram matrix is merged with the node's own in the signal k, the cost is the prior of c (prior.py). No
        estimator here uses the mean pod count; it is sent for display. Implausible values raise InvalidMessage; a valid
        cost is stored even if the Gram matrix is rejected.
        """
        self._prior.adopt(cost)
        size = len(self._dimensions)
        if gram.shape != (size, size) or not (np.abs(gram) <= LONGEST_CLUSTER).all():
            detail = f"a Gram matrix that is not {size} × {size} numbers of plausible size: {gram.tolist()}"
            raise InvalidMessage("range", detail[:200])
        self._cluster = from_gram(gram)

    def save(self) -> dict[str, object]:
        """The complete state, serialisable as JSON."""
        return {
            **self._identity(),
            "whole": list(self._scale().whole),
            "counters": [self._pods, self._learned_pods, self._samples],
            "baseline": self._baseline,
            "batch": [list(row) for row in self._batch.rows],
            "recent": [list(row) for row in self._recent],
            "recent_pods": list(self._recent_pods),
            "local": subspace.save(self._local),
            "cluster": subspace.save(self._cluster),
            **{name: stage.save() for name, stage in self._stages().items()},
        }

    def _stages(self) -> dict[str, Stage]:
        """By their names in the saved state."""
        return {
            "smoother": self._smoother,
            "clean": self._clean,
            "estimator_state": self._estimator,
            "prior": self._prior,
            "pronto": self._pronto,
        }

    def restore(self, state: Mapping[str, object]) -> None:
        """Loads the state that `save` returned. State that does not fit raises ValueError and changes nothing."""
        if (version := state.get("version")) != SAVED_VERSION:
            written = f"it has format version {version!r}; this version of Carico reads {SAVED_VERSION}"
            raise ValueError(f"saved state: {written}")
        for key, mine in self._identity().items():
            if state.get(key) != mine:
                raise ValueError(f"saved state: {key} is {state.get(key)!r}, here it is {mine!r}")
        other = Pipeline(self._settings, self._dimensions, self._rate_hz, self._node_size)
        other._full_absolute = self._full_absolute
        whole = numbers(state, "whole", len(self._dimensions), least=1e-9, most=1e24)
        if whole == other._scale().whole:
            other._load(state)
        else:
            other._load_resized(state)
        other._resize(whole)
        self.__dict__.update(other.__dict__)

    def _identity(self) -> dict[str, object]:
        """The values that must be equal for saved state to be usable."""
        return {
            "version": SAVED_VERSION,
            "estimator": self._settings.estimator,
            "smoothing": self._settings.smoothing,
            "dimensions": list(self._dimensions),
        }

    def _load_resized(self, state: Mapping[str, object]) -> None:
        """Loads state of a node of another size: costs and baseline, but not the recent usage."""
        self._estimator.restore(section(state, "estimator_state"))
        self._prior.restore(section(state, "prior"))

    def _load(self, state: Mapping[str, object]) -> None:
        size = len(self._dimensions)
        pods, learned, samples = numbers(state, "counters", 3, least=-1.0)
        self._pods, self._learned_pods, self._samples = int(pods), int(learned), int(samples)
        self._baseline = numbers(state, "baseline", size, least=0.0, most=1.0)
        self._batch.rows = rows(state, "batch", size, self._settings.batch - 1)
        self._recent = rows(state, "recent", size, LOWEST_OF * self._settings.batch)
        self._recent_pods = [int(pods) for pods in numbers(state, "recent_pods", len(self._recent), least=0.0)]
        self._local = subspace.restore(state, "local", size, longest=math.sqrt(size) + 1e-6)
        self._cluster = subspace.restore(state, "cluster", size, longest=LONGEST_CLUSTER)
        for name, stage in self._stages().items():
            stage.restore(section(state, name))


def _known(measured: Sequence[MeasuredPod] | None) -> Sequence[MeasuredPod] | None:
    """The same pods, marked as not fresh."""
    return None if measured is None else [pod._replace(fresh=False) for pod in measured]
