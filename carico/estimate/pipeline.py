"""A node's way from samples to Pod-Capacity, one stage after the other.

Call `update` with every sample and what the container runtime says at that moment; once per batch (a second) it
answers with an Estimate. The node's own model stays pure: what the cluster says is kept beside it, mixed in where it is
used and never sent back.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from carico.estimate import subspace
from carico.estimate.batch import Batch, Clean
from carico.estimate.capacity import signal, trace_workload, workload
from carico.estimate.estimator import Answer, Second
from carico.estimate.estimators import make_estimator, make_smoother
from carico.estimate.prior import Prior
from carico.estimate.pronto import Pronto
from carico.estimate.saved import numbers, rows, section
from carico.estimate.subspace import Subspace, damp, decompose, from_gram, merge
from carico.settings import FULL, EstimateSettings
from carico.types import CostBelief, Estimate, Matrix, Mode, PodCount, Sample

SAVED_VERSION = 1
LONGEST_CLUSTER = 1e6  # the cluster's model in fractions of this node, which may be a very small one


@dataclass(frozen=True, slots=True)
class Evidence:
    """What this node alone has seen, in fractions of it: what the cluster's model is made of."""

    basis: Matrix  # U·Σ, m × r
    baseline: tuple[float, ...]
    cost: CostBelief | None  # None while it has seen no pod come or go
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

    def __init__(self, settings: EstimateSettings, dimensions: tuple[str, ...], rate_hz: float = 10.0) -> None:
        size = len(dimensions)
        self._settings = settings
        self._dimensions = dimensions
        self._rate_hz = rate_hz
        self._full = tuple(settings.full.get(dimension, FULL) for dimension in dimensions)
        self._smoother = make_smoother(settings, size, rate_hz)
        self._batch = Batch(settings.batch)
        self._clean = Clean(self._full)
        self._local: Subspace | None = None
        self._cluster: Subspace | None = None
        self._estimator = make_estimator(settings, dimensions, self._full)
        self._prior = Prior(size)
        self._pronto = Pronto(size, settings.pronto_window, settings.pronto_threshold)
        self._baseline: tuple[float, ...] = (0.0,) * size
        self._pods = -1  # at the last tick; -1 before the first
        self._learned_pods = -1  # at the last second that was learned from
        self._samples = 0

    @property
    def wanted(self) -> int:
        """Samples until the next Estimate; whoever calls `update` may hold them back until there are so many."""
        return self._batch.length - len(self._batch.rows)

    def update(self, sample: Sample, pods: PodCount) -> Estimate | None:
        """Take in one sample; an Estimate once per batch."""
        if pods.running != self._pods:
            self._pods = pods.running
            self._estimator.count(sample.at, pods.running)
            self._clean.restart()
        self._samples += 1
        smoother = self._smoother
        smoother.update(sample.values, pods)
        if smoother.clean:
            self._clean.take(sample.values)
        matrix = self._batch.add(smoother.usage)
        if matrix is None:
            return None
        self._local = decompose(matrix) if self._local is None else damp(self._local, matrix, self._settings.damping)
        return self._second(sample, pods)

    def between(self, sample: Sample, pods: PodCount) -> Estimate | None:
        """An estimate out of turn, right after `update` with the same words; None before the first second.

        Nothing is learned. It is for the moment in which pods came or went: who waits for room should not have to
        wait for the end of the second as well.
        """
        if self._local is None:
            return None
        second, k = self._look(sample, pods)
        answer = self._estimator.answer(second, self._prior)
        return self._estimate(second, answer, k, rejecting=self._pronto.rejecting)

    def _second(self, sample: Sample, pods: PodCount) -> Estimate:
        second, k = self._look(sample, pods)
        self._clean.restart()
        self._estimator.learn(second)
        self._close_prior(second)
        answer = self._estimator.answer(second, self._prior)
        self._baseline = answer.baseline
        return self._estimate(second, answer, k, rejecting=self._pronto.update(second.usage))

    def _look(self, sample: Sample, pods: PodCount) -> tuple[Second, float]:
        """Everything that an estimator may use, and the signal k as it is exported."""
        usage, model = self._smoother.usage, self._model()
        unit = workload(model)
        k = signal(usage, unit, self._full, self._settings.capacity_limit)
        own_unit, own_k = unit, k
        if self._estimator.trace:
            own_unit = trace_workload(model)
            own_k = signal(usage, own_unit, self._full, self._settings.capacity_limit)
        second = Second(
            at=sample.at,
            pods=pods.running,
            unsettled=min(max(pods.unsettled, 0), pods.running),
            churn=pods.churn or not self._smoother.fresh,
            usage=usage,
            latest=sample.values,
            noise=self._smoother.noise,
            clean=self._clean.count,
            mean=self._clean.mean,
            saturated=self._clean.saturated,
            unit=own_unit,
            k=own_k,
        )
        return second, k

    def _model(self) -> Subspace:
        """The subspace that k is made with: the cluster's and the node's own."""
        assert self._local is not None
        if self._cluster is None:
            return self._local
        return merge(self._cluster, self._local, self._settings.cluster_weight)

    def _close_prior(self, second: Second) -> None:
        """Own pods that came or went are evidence against an opened prior."""
        if not second.clean:
            return
        changed = second.pods - self._learned_pods if self._learned_pods >= 0 else 0
        self._learned_pods = second.pods
        if changed:
            for i, noise in enumerate(second.noise):
                self._prior.seen(i, changed, noise / second.clean)

    def _estimate(self, second: Second, answer: Answer, k: float, *, rejecting: bool) -> Estimate:
        return Estimate(
            at=second.at,
            usage=second.usage,
            capacity=k,
            baseline=answer.baseline,
            cost=answer.cost,
            baseline_scalar=answer.baseline_scalar,
            cost_scalar=answer.cost_scalar,
            pods=second.pods,
            pod_capacity=answer.pod_capacity,
            mode=Mode.CHURN if second.churn else Mode.SETTLED,
            rejecting=rejecting,
        )

    def evidence(self) -> Evidence | None:
        """The node's own, pure model; None before the first batch."""
        if self._local is None:
            return None
        return Evidence(self._local.basis, self._baseline, self._estimator.cost(), self._samples)

    def adopt(self, gram: Matrix, cost: CostBelief | None, mean_pods: float) -> None:  # noqa: ARG002
        """Hear the cluster's model, in fractions of this node.

        The Gram matrix joins the node's own in the signal k, the cost is the prior of c (prior.py). No estimator
        here uses the mean pod count; it travels for people.
        """
        size = len(self._dimensions)
        if gram.shape != (size, size) or not (np.abs(gram) <= LONGEST_CLUSTER).all():
            raise ValueError(f"a Gram matrix that is not {size} × {size} sensible numbers: {gram.tolist()}")
        self._prior.adopt(cost)
        self._cluster = from_gram(gram)

    def save(self) -> dict[str, object]:
        """Everything learned, fit for JSON."""
        return {
            **self._identity(),
            "counters": [self._pods, self._learned_pods, self._samples],
            "baseline": self._baseline,
            "smoother": self._smoother.save(),
            "batch": [list(row) for row in self._batch.rows],
            "clean": self._clean.save(),
            "local": subspace.save(self._local),
            "cluster": subspace.save(self._cluster),
            "estimator_state": self._estimator.save(),
            "prior": self._prior.save(),
            "pronto": self._pronto.save(),
        }

    def restore(self, state: Mapping[str, object]) -> None:
        """Go on where `save` was called. State that does not fit raises ValueError and changes nothing."""
        for key, mine in self._identity().items():
            if state.get(key) != mine:
                raise ValueError(f"saved state: {key} is {state.get(key)!r}, here it is {mine!r}; starting fresh")
        other = Pipeline(self._settings, self._dimensions, self._rate_hz)
        other._load(state)
        self.__dict__.update(other.__dict__)

    def _identity(self) -> dict[str, object]:
        """What must be equal for saved state to mean the same."""
        return {
            "version": SAVED_VERSION,
            "estimator": self._settings.estimator,
            "smoothing": self._settings.smoothing,
            "dimensions": list(self._dimensions),
        }

    def _load(self, state: Mapping[str, object]) -> None:
        size = len(self._dimensions)
        pods, learned, samples = numbers(state, "counters", 3, least=-1.0)
        self._pods, self._learned_pods, self._samples = int(pods), int(learned), int(samples)
        self._baseline = numbers(state, "baseline", size, least=0.0, most=1.0)
        self._smoother.restore(section(state, "smoother"))
        self._batch.rows = rows(state, "batch", size, self._settings.batch - 1)
        self._clean.restore(section(state, "clean"))
        self._local = subspace.restore(state, "local", size, longest=math.sqrt(size) + 1e-6)
        self._cluster = subspace.restore(state, "cluster", size, longest=LONGEST_CLUSTER)
        self._estimator.restore(section(state, "estimator_state"))
        self._prior.restore(section(state, "prior"))
        self._pronto.restore(section(state, "pronto"))
