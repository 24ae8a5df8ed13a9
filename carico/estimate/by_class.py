"""The estimator `class`: the demand of every pod is measured, costs are learned per class, room is what is left.

    Lᵢ = bᵢ + γᵢ·Σₚ max(demand of p, expected demand of p)
    roomᵢ = fullᵢ − Lᵢ
    Pod-Capacity = minᵢ roomᵢ / c̄ᵢ,  c̄ the cost of the mean recent pod

The expected demand of a pod is what its class reserves until the pod has reached its load, and its own measured level
after that. Where pods are not measured (no accounting at all, or none for a resource) the inner `resource-joint`
provides the answer.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from carico.estimate.baseline import Baseline
from carico.estimate.class_stats import FEW, ClassStats, PodTrack
from carico.estimate.classes import NO_LABELS, NodeClassTable
from carico.estimate.estimator import Observation, Prediction, Values
from carico.estimate.pod_capacity import bounded
from carico.estimate.pooling import SwingPool
from carico.estimate.prior import Prior
from carico.estimate.resource import JUMP, ResourceFit
from carico.estimate.saved import section
from carico.estimate.scale import Scale
from carico.types import ClassCost, ClassKey, CostBelief, MeasuredPod

MEASURED = ("cpu", "memory")  # resources that are accounted per pod
READING_NOISE = 0.1  # deviation of one reading of a pod's demand, as a share of it
UNREAD = 10.0  # s; an older running pod without any reading means that there is no accounting
SWINGING_READINGS = 30.0
STUCK = 20.0  # s without a running container after which a pod that never ran is stuck
STUCK_SHARE = 0.01  # share of the node that is reserved for all stuck pods together
ENDING = 8.0  # s for which a pod whose containers have ended is expected to be removed rather than restarted
QUEUE_ERROR = 0.15  # of cpu usage beyond one busy thread per core: threads that sleep queue more than they demand
BUSY = 0.5  # share of the node, in cpu, at which one thread per processor is busy
SLACK = 0.015  # share of the node by which usage may exceed the sum of the pods' levels before it counts
LEAST_COST = 1e-4  # share of the node


class ByClass:
    """Learns from the accounting of each pod."""

    trace = False

    def __init__(self, dimensions: Sequence[str], scale: Scale, limit: float, joint: ResourceFit) -> None:
        self._dimensions = tuple(dimensions)
        self._mine = [i for i, name in enumerate(dimensions) if name in MEASURED]
        self._limit = limit
        self.joint = joint
        self._baselines = [Baseline() for _ in self._mine]
        self._pools = [SwingPool() for _ in self._mine]
        self._take(scale)
        self.table = NodeClassTable([dimensions[i] for i in self._mine], self._first, self._wholes())
        self._at = -math.inf

    def _take(self, scale: Scale) -> None:
        self._full, self._whole = scale.full, scale.whole
        self._first = tuple([scale.first[i] for i in self._mine])

    def _wholes(self) -> Values:
        return tuple([self._whole[i] for i in self._mine])

    def resize(self, scale: Scale) -> None:
        """The amount that the node can hold changed."""
        self.joint.resize(scale)
        self._take(scale)
        self.table.set_size(self._first, self._wholes())

    def rescale(self, factors: Values) -> None:
        """The node's size changed: multiplies all shares of the node by `factors`, one per resource."""
        self.joint.rescale(factors)
        for baseline, i in zip(self._baselines, self._mine, strict=True):
            baseline.rescale(factors[i])

    def count(self, at: float, pods: int) -> None:
        self.joint.count(at, pods)

    def learn(self, second: Observation) -> None:
        self.joint.learn(second)
        passed = min(max(second.at - self._at, 0.0), 60.0) if math.isfinite(self._at) else 1.0
        self._at = second.at
        if second.measured is None:
            return
        self.table.observe(self._mapped(second.measured), second.at)
        if not self._accounted(second):
            return
        sums, unread = self._sums()
        for j in range(len(self._mine)):
            self._learn_baseline(second, j, sums[j], passed, unread=unread)

    def _mapped(self, pods: Sequence[MeasuredPod]) -> Sequence[MeasuredPod]:
        """The pods with the demand of the measured resources only."""
        if len(self._mine) == len(self._dimensions):
            return pods
        return [pod._replace(demand=self._pick(pod.demand), use=self._pick(pod.use)) for pod in pods]

    def _pick(self, amounts: Values | None) -> Values | None:
        if amounts is None or len(amounts) != len(self._dimensions):
            return amounts
        return tuple([amounts[i] for i in self._mine])

    def _accounted(self, second: Observation) -> bool:
        """Whether there is accounting per pod: at least one was read, or none is old enough to decide."""
        pods = second.measured or ()
        # The second condition is looked at first, as the first pod mostly meets it.
        return any(pod.demand is not None for pod in pods) or not any(pod.running and pod.age > UNREAD for pod in pods)

    def _sums(self) -> tuple[list[tuple[float, float]], bool]:
        """Per resource the demand of the running pods and its variance, and whether one of them was not read yet.

        Such a pod counts with half of what is reserved for it.
        """
        size = len(self._mine)
        totals, squares, unread = [0.0] * size, [0.0] * size, [0.0] * size
        any_unread, each = False, range(size)
        for class_, pod in self.table.tracks.values():
            if not pod.running:
                continue
            if pod.last is not None:
                for j in each:
                    amount = pod.last[j]
                    totals[j] += amount
                    squares[j] += amount * amount
                continue
            any_unread = True
            for j, amount in enumerate(self.table.reserved(class_.key)):
                totals[j] += 0.5 * amount
                unread[j] += (0.5 * amount) ** 2
        found = [(t, READING_NOISE**2 * s + u) for t, s, u in zip(totals, squares, unread, strict=True)]
        return found, any_unread

    def _learn_baseline(
        self, second: Observation, j: int, pods: tuple[float, float], passed: float, *, unread: bool
    ) -> None:
        """The observation of the baseline is usage minus the demand of the pods."""
        i, (total, noise) = self._mine[j], pods
        whole = self._whole[i]
        self._pools[j].learn(self._swings(j), passed)
        if not second.clean:
            return
        usage = second.mean[i]
        queued = QUEUE_ERROR * max(usage - 0.5, 0.0) if self._dimensions[i] == "cpu" else 0.0
        variance = second.noise[i] / second.clean + noise / whole**2 + queued * queued
        queues = self._dimensions[i] == "cpu" and total / whole > BUSY
        baseline, saturated = self._baselines[j], second.saturated[i]
        baseline.learn(usage, total / whole, variance, passed, saturated=saturated, may_miss=queues, unread=unread)

    def _running(self) -> list[tuple[ClassStats, PodTrack]]:
        return [(class_, pod) for class_, pod in self.table.tracks.values() if pod.running]

    def _swings(self, j: int) -> list[tuple[float, float, float]]:
        """Of each pod that swings: its deviation from its mean, the standard deviation, and the maximum deviation."""
        found: list[tuple[float, float, float]] = []
        if not any(class_.swings[j] for class_ in self.table.classes.values()):
            return found
        for class_, pod in self._running():
            if class_.swings[j] and pod.last is not None and pod.settled[j]:
                mean, top = _swinging_mean(class_, pod, j), class_.top[j]
                deviation = math.sqrt(max(mean * (top - mean), 0.0))
                found.append((pod.last[j] - mean, deviation, max(top - mean, 0.0)))
        return found

    # The answer

    def answer(self, second: Observation, prior: Prior) -> Prediction:
        joint = self.joint.answer(second, prior)
        if second.measured is None or not self._mine or not self._accounted(second):
            return joint
        costs = self._costs(joint, prior)
        expected = self._expected(second)
        load = list(self.joint.load(second, prior))
        baseline = list(joint.baseline)
        for j, i in enumerate(self._mine):
            load[i] = self._load(second, j, expected[j])
            baseline[i] = self._baselines[j].b
        room = tuple([
            max(full - x * whole, 0.0) for full, x, whole in zip(self._full, load, self._whole, strict=True)
        ])  # fmt: skip
        fits = [space / (cost * whole) for space, cost, whole in zip(room, costs, self._whole, strict=True)]
        binding = fits.index(min(fits))
        empty = min(
            (full / whole - b) / cost
            for full, whole, b, cost in zip(self._full, self._whole, baseline, costs, strict=True)
        )
        return Prediction(
            bounded(fits[binding], self._limit),
            tuple(baseline),
            costs,
            bounded(empty, self._limit),
            costs[binding],
            room,
        )

    def _costs(self, joint: Prediction, prior: Prior) -> Values:
        """Cost of the mean recent pod, as shares of the node; before any pod the cluster's, else the first guess."""
        costs = list(joint.cost)
        mean = self.table.mean_pod()
        for j, i in enumerate(self._mine):
            cost = self._first[j] / self._whole[i] if mean is None else mean[j] / self._whole[i]
            if mean is None and (received := prior.mix(i, None)) is not None:
                cost = received
            costs[i] = max(cost, LEAST_COST, self._full[i] / self._whole[i] / self._limit)
        return tuple(costs)

    def _load(self, second: Observation, j: int, expected: tuple[float, float]) -> float:
        """Usage once every pod has reached its load. `expected`: by the pods' levels, and by their current demand."""
        i = self._mine[j]
        baseline, whole = self._baselines[j], self._whole[i]
        planned, present = (max(baseline.at(amount / whole), 0.0) for amount in expected)
        load = max(planned, present - SLACK)
        if self._dimensions[i] == "memory" and second.latest[i] > load + JUMP * second.noise[i] ** 0.5:
            return second.latest[i]
        return load

    def _expected(self, second: Observation) -> list[tuple[float, float]]:
        """Σ of the levels that pods settle at, and Σ of their current demand plus what young pods do not show yet."""
        planned, present, stuck = ([0.0] * len(self._mine) for _ in range(3))
        reserved: dict[ClassKey, Values] = {}
        pods, find = second.measured or (), self.table.find
        each = range(len(self._mine))
        for measured in pods:
            class_, pod = find(measured)
            if pod is None or class_ is None:
                pass
            elif pod.plain and pod.running and measured.running and pod.age >= class_.grown:
                levels = pod.levels
                for j in each:
                    level = levels[j]
                    planned[j] += level.mean
                    present[j] += level.present
                continue
            key = measured.key or NO_LABELS
            if key not in reserved:
                reserved[key] = self.table.reserved(key)
            for j in range(len(self._mine)):
                if class_ is None or pod is None:
                    settled, now, held = reserved[key][j], reserved[key][j], 0.0
                elif pod.running and not measured.running and not pod.restarted:
                    settled, now, held = 0.0, 0.0, 0.0  # it ended since the last tick
                else:
                    settled, now, held = _to_come(class_, pod, j, reserved[key][j], second.at)
                planned[j] += settled
                present[j] += now
                stuck[j] += held
        for _ in range(second.pods - len(pods)):  # counted, but not measured yet
            for j, amount in enumerate(self.table.mean_pod() or self._first):
                planned[j] += amount
                present[j] += amount
        found = []
        for j, i in enumerate(self._mine):
            held = min(stuck[j], STUCK_SHARE * self._full[i])
            swinging = self._swings(j)
            swings = [deviation for _, deviation, _ in swinging]
            most = sum([top for _, _, top in swinging])
            found.append((planned[j] + held + self._pools[j].margin(swings, most), present[j] + held))
        return found

    def class_costs(self) -> tuple[ClassCost, ...]:
        """Own evidence, with 0 for resources that are not accounted per pod."""
        costs = self.table.costs()
        if len(self._mine) == len(self._dimensions):
            return costs
        return tuple([self._padded(cost) for cost in costs])

    def _padded(self, cost: ClassCost) -> ClassCost:
        def pad(row: Values) -> Values:
            wide = [0.0] * len(self._dimensions)
            for j, i in enumerate(self._mine):
                wide[i] = row[j]
            return tuple(wide)

        return dataclasses.replace(
            cost,
            mean=pad(cost.mean),
            variance=pad(cost.variance),
            high=pad(cost.high),
            use_high=pad(cost.use_high),
        )

    def adopt_classes(self, costs: Mapping[ClassKey, ClassCost]) -> None:
        self.table.adopt(costs)

    def cost(self) -> CostBelief | None:
        """Cost of the mean recent pod, as shares of the node."""
        mean = self.table.mean_pod()
        known = [cost for cost in self.table.costs() if cost.pods or cost.weight >= 1.0]
        if mean is None or not known or len(self._mine) < len(self._dimensions):
            return self.joint.cost()
        weight = sum(cost.weight for cost in known)
        values = [max(mean[j] / self._whole[i], 0.0) for j, i in enumerate(self._mine)]
        return CostBelief(tuple(values), tuple([(0.15 * value) ** 2 / weight + 1e-8 for value in values]))

    def save(self) -> dict[str, object]:
        return {
            "joint": self.joint.save(),
            "baselines": {str(j): baseline.save() for j, baseline in enumerate(self._baselines)},
            "classes": self.table.save(),
        }

    def restore(self, state: Mapping[str, object]) -> None:
        self.joint.restore(section(state, "joint"))
        baselines = section(state, "baselines")
        for j, baseline in enumerate(self._baselines):
            baseline.restore(section(baselines, str(j)))
        self.table.restore(state.get("classes"))


def _swinging_mean(class_: ClassStats, pod: PodTrack, j: int) -> float:
    """The mean of a swinging pod converges slowly, so its class's mean counts as half a minute of readings."""
    level, spread = pod.levels[j], class_.spreads[j]
    return (level.readings * level.mean + SWINGING_READINGS * spread.mean) / (level.readings + SWINGING_READINGS)


def _to_come(class_: ClassStats, pod: PodTrack, j: int, reserved: float, at: float) -> tuple[float, float, float]:
    """The level the pod settles at, its current demand plus what is expected, and what is reserved if it is stuck."""
    level = pod.levels[j]
    if not pod.running:
        return _waiting(pod, j, reserved, at)
    if pod.last is None:
        return reserved, reserved, 0.0
    spread = class_.spreads[j]
    if pod.started_up[j] and level.readings < FEW and not class_.swings[j]:
        return spread.mean, spread.mean, 0.0
    if class_.is_starting(pod, j) or not pod.settled[j] or pod.age < class_.ramps[j]:
        # For a class without measurements the pod's own first readings are better than a guess.
        amount = max(level.recent)[0] if class_.is_shown(pod, j) else max(level.now, reserved)
        return amount, amount, 0.0
    if pod.provisional[j]:
        amount = level.mean / class_.queueing[j]
        return amount, amount, 0.0
    if class_.swings[j]:
        return _swinging_mean(class_, pod, j), level.now, 0.0
    return level.mean, level.present, 0.0


def _waiting(pod: PodTrack, j: int, reserved: float, at: float) -> tuple[float, float, float]:
    """No container runs: the pod has not started yet, is stuck, is about to be removed, or waits for a restart."""
    idle = at - pod.idle_since
    if pod.last is None:
        return (0.0, 0.0, reserved) if idle > STUCK else (reserved, reserved, 0.0)
    if idle <= ENDING and not pod.restarted:
        return 0.0, 0.0, 0.0
    return pod.level(j), pod.level(j), 0.0
