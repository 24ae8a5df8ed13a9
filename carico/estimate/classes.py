"""All classes of pods that this node knows, and the expected demand of a pod of any class.

The cost of a class is looked up in this order: its own pods on this node, combined with the cluster's cost of the same
revision; another revision of its family; and for a class without measurements the larger of the first guess and the
mean plus two standard deviations over the classes of its namespace, or over all classes. Own evidence and the cluster's
are weighted by precision

    c = (m/p + μ/v) / (1/p + 1/v)

with p the variance of the own mean and v that of the other. Where the two are more than three standard deviations
apart the pods are taken to differ, and the own evidence is used unchanged.
"""

from __future__ import annotations

import dataclasses
import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence

from carico.estimate import class_saved
from carico.estimate.class_cost import cost_of
from carico.estimate.class_stats import ClassStats, PodTrack
from carico.types import ClassCost, ClassKey, MeasuredPod

Values = tuple[float, ...]

MOST_CLASSES = 512
IDLE_EVERY = 5.0  # s
MOST_RECEIVED = 4096
NO_LABELS = ClassKey("", "", "")  # the class of pods whose labels are not known
CONFLICT = 9.0  # distance in squared standard deviations
ELSEWHERE = 0.1  # deviation of a class's mean from node to node, as a share of it
REVISIONS = 0.3  # and from revision to revision
DEAR = 2.0  # standard deviations above the mean class that an unknown one is expected to cost
FULL_SHARE = 0.5  # maximum first guess as a share of the node: a larger one would keep all pods off a small node


class NodeClassTable:
    """Resources are numbered as in `resources`; amounts are absolute."""

    def __init__(self, resources: Sequence[str], first: Values, whole: Values) -> None:
        """`whole` is the size of the node."""
        self.resources = tuple(resources)
        self._peaks = tuple([name == "memory" for name in resources])
        self.classes: OrderedDict[ClassKey, ClassStats] = OrderedDict()  # least recently used first
        self._received: OrderedDict[ClassKey, ClassCost] = OrderedDict()
        self.tracks: dict[str, tuple[ClassStats, PodTrack]] = {}  # of every current pod, by UID
        self._postponed: dict[
            ClassKey, ClassStats
        ] = {}  # classes that are not updated: their readings have hardly changed for some seconds
        self._at = -math.inf
        self._mean_pod: Values | None = None  # None: to be computed
        self._mixed: dict[ClassKey, tuple[ClassCost, ClassCost, ClassCost]] = {}  # own, other, and the two combined
        self.set_size(first, whole)

    def set_size(self, first: Values, whole: Values) -> None:
        self._first, self._whole = first, whole
        # Plausible maximum of one pod's demand: cpu may be over-committed, memory not.
        self._most = tuple([(1.0 if peak else 4.0) * size for peak, size in zip(self._peaks, whole, strict=True)])
        self._mean_pod = None

    def observe(self, pods: Sequence[MeasuredPod], at: float) -> None:
        """Processes one second: every workload pod of the node, with its readings."""
        passed = min(max(at - self._at, 0.0), 7 * 86400.0) if math.isfinite(self._at) else 0.0
        if passed >= IDLE_EVERY or not math.isfinite(self._at):
            self._at = at
            for class_ in self.classes.values():
                class_.idle(passed)
            touched, self._postponed = self._postponed, {}
        else:
            touched = {}
        self._mean_pod = None
        tracks = self.tracks
        for measured in pods:
            known, fresh = tracks.get(measured.uid), measured.fresh
            if known is not None and not fresh and _is_as_before(known, measured):
                class_ = known[0]
            else:
                class_ = self._follow(measured, at)
            if class_.cost is None or (fresh and not tracks[measured.uid][1].quiet):
                touched[class_.key] = class_
            elif fresh:
                self._postponed[class_.key] = class_
        if len(tracks) > len(pods):
            for uid in tracks.keys() - {measured.uid for measured in pods}:
                class_, _ = tracks.pop(uid)
                class_.retire(uid)
                touched[class_.key] = class_
        for class_ in touched.values():
            class_.refresh()

    def _follow(self, measured: MeasuredPod, at: float) -> ClassStats:
        key = measured.key or NO_LABELS
        known = self.tracks.get(measured.uid)
        if known is not None and known[0].key != key:  # its labels were not known before
            known[0].pods.pop(measured.uid)
            known = None
        if known is None:
            class_ = self._class(key, at)
            known = self.tracks[measured.uid] = (class_, PodTrack(len(self.resources), at))
            class_.pods[measured.uid] = known[1]
            class_.recent += 1.0
        class_, pod = known
        pod.age = min(max(measured.age, 0.0), 1e9) if math.isfinite(measured.age) else 0.0
        if pod.running and not measured.running:
            pod.idle_since = at
        pod.restarted = pod.restarted or (measured.running and not pod.running and pod.last is not None)
        pod.running = measured.running
        if measured.fresh and measured.running:
            demand = self._believed(measured.demand)
            if demand is not None:
                self._read(class_, pod, measured, demand)
        return class_

    def _read(self, class_: ClassStats, pod: PodTrack, measured: MeasuredPod, demand: Values) -> None:
        pod.last = demand
        for i, amount in enumerate(demand):
            exact = measured.exact or self._peaks[i]
            class_.read(pod, i, amount, exact=exact)
        pod.look()
        use = self._believed(measured.use)
        if use is not None:
            for histogram, amount in zip(class_.uses, use, strict=True):
                histogram.read(amount)

    def _believed(self, amounts: Values | None) -> Values | None:
        """Clips implausibly large amounts; None if one is negative, not finite or missing."""
        if amounts is None or len(amounts) < len(self.resources):
            return None
        mine = amounts[: len(self.resources)]
        if not all(math.isfinite(x) and x >= 0.0 for x in mine):
            return None
        return tuple([min(x, most) for x, most in zip(mine, self._most, strict=True)])

    def _class(self, key: ClassKey, at: float) -> ClassStats:
        class_ = self.classes.get(key)
        if class_ is None:
            class_ = self.classes[key] = ClassStats(key, self._peaks, at)
            if len(self.classes) > MOST_CLASSES:
                self._evict()
        self.classes.move_to_end(key)
        return class_

    def _evict(self) -> None:
        """Removes the least recently used class without pods; if all have pods, the least recently used one."""
        victim = next((key for key, class_ in self.classes.items() if not class_.pods), next(iter(self.classes)))
        del self.classes[victim]
        self._mixed.pop(victim, None)

    def adopt(self, costs: Mapping[ClassKey, ClassCost]) -> None:
        """Stores the cluster's costs; implausible ones are ignored."""
        self._mean_pod = None
        for key, cost in costs.items():
            if self._makes_sense(cost):
                self._received[key] = cost
                self._received.move_to_end(key)
        while len(self._received) > MOST_RECEIVED:
            self._received.popitem(last=False)

    def _makes_sense(self, cost: ClassCost) -> bool:
        size = len(self.resources)
        rows = (cost.mean, cost.variance, cost.high)
        return all(len(row) >= size and all(math.isfinite(x) and 0.0 <= x < 1e30 for x in row[:size]) for row in rows)

    def save(self) -> list[object]:
        return class_saved.encode(list(self.classes.values()))

    def restore(self, state: object) -> None:
        found = class_saved.decode(state, self._peaks, 0.0, MOST_CLASSES)
        self.classes = OrderedDict((class_.key, class_) for class_ in found)
        self.tracks, self._postponed = {}, {}
        self._at = -math.inf
        self._mean_pod = None

    # What is expected

    def find(self, measured: MeasuredPod) -> tuple[ClassStats | None, PodTrack | None]:
        """The statistics of the pod's class, and of the pod."""
        key, known = measured.key or NO_LABELS, self.tracks.get(measured.uid)
        if known is not None and (known[0].key is key or known[0].key == key):
            return known
        return self.classes.get(key), None

    def costs(self) -> tuple[ClassCost, ...]:
        """Own evidence only, the most recently used class first."""
        return tuple([c.cost for c in reversed(self.classes.values()) if c.cost is not None])

    def belief(self, key: ClassKey) -> ClassCost | None:
        """The best available estimate of a class; None if neither it nor its family was measured."""
        class_ = self.classes.get(key)
        own = class_.cost if class_ is not None else None
        other, spread = self._received.get(key), ELSEWHERE
        if other is None and (own is None or own.weight < 3.0):
            other, spread = self._relative(key), REVISIONS
        if own is None or other is None:
            return own or (other and dataclasses.replace(other, variance=_wider(other, spread), weight=1.0))
        known = self._mixed.get(key)
        if known is None or known[0] is not own or known[1] is not other:
            known = self._mixed[key] = (own, other, mixed(own, other, spread))
        return known[2]

    def _relative(self, key: ClassKey) -> ClassCost | None:
        """Another revision of the same family, the most recently used one."""
        if not key.revision:
            return None
        mine = (c.cost for c in reversed(self.classes.values()) if _related(c.key, key))
        found = next((cost for cost in mine if cost is not None), None)
        if found is None:
            found = next((cost for other, cost in reversed(self._received.items()) if _related(other, key)), None)
        return found

    def reserved(self, key: ClassKey) -> Values:
        """What to reserve for one more pod of the class."""
        belief = self.belief(key)
        if belief is not None:
            return cost_of(belief, self.resources, self._first)
        guess, class_ = self.unknown(key.namespace), self.classes.get(key)
        return guess if class_ is None else class_.shown(guess)

    def typical(self, key: ClassKey) -> Values:
        """The mean demand of a pod of the class."""
        belief = self.belief(key)
        if belief is None:
            return self.unknown(key.namespace)
        return belief.mean

    def unknown(self, namespace: str) -> Values:
        """What to reserve for a pod of a class without measurements."""
        costs = [c.cost for c in self.classes.values() if c.cost is not None]
        near = [cost for cost in costs if cost.key.namespace == namespace] or costs
        expensive = [self._expensive(near, i) for i in range(len(self.resources))]
        return tuple([max(guess, cost) for guess, cost in zip(self._first, expensive, strict=True)])

    def _expensive(self, costs: list[ClassCost], i: int) -> float:
        if not costs:
            return 0.0
        values = [cost.mean[i] for cost in costs]
        mean = sum(values) / len(values)
        between = sum((value - mean) ** 2 for value in values) / len(values)
        return min(mean + DEAR * math.sqrt(between), FULL_SHARE * self._whole[i])

    def mean_pod(self) -> Values | None:
        """Cost of the mean recent pod: classes weighted by their starts, which decay with RECENT (ten minutes)."""
        if self._mean_pod is None:
            self._mean_pod = self._work_out_mean_pod()
        return self._mean_pod

    def _work_out_mean_pod(self) -> Values | None:
        recent = [(c.recent, self.typical(key)) for key, c in self.classes.items() if c.recent > 0.0]
        total = sum(weight for weight, _ in recent)
        if total <= 0.0:
            return None
        return tuple([sum(w * cost[i] for w, cost in recent) / total for i in range(len(self.resources))])


def _is_as_before(known: tuple[ClassStats, PodTrack], measured: MeasuredPod) -> bool:
    """Updates the age of a pod if nothing else about it changed; otherwise returns False."""
    (class_, pod), age, key = known, measured.age, measured.key or NO_LABELS
    if pod.running is not measured.running or not 0.0 <= age <= 1e9:
        return False
    if class_.key is not key and class_.key != key:
        return False
    pod.age = age
    return True


def mixed(own: ClassCost, other: ClassCost, spread: float) -> ClassCost:
    """Own evidence combined with that of others, unless the two are in conflict."""
    mean = tuple([_mix(own, other, i, spread) for i in range(len(own.mean))])
    return dataclasses.replace(own, mean=mean, weight=own.weight + min(other.weight, 1.0))


def _mix(own: ClassCost, other: ClassCost, i: int, spread: float) -> float:
    m, mu = own.mean[i], other.mean[i]
    p = own.variance[i] / max(own.weight, 0.1) + 1e-12 * (1.0 + m * m)
    v = other.variance[i] / max(other.weight, 1.0) + (spread * mu) ** 2 + 1e-12 * (1.0 + mu * mu)
    apart = (m - mu) ** 2
    if apart > CONFLICT * (p + v):
        return m
    return (m / p + mu / v) / (1.0 / p + 1.0 / v)


def _wider(cost: ClassCost, spread: float) -> Values:
    return tuple([v + (spread * m) ** 2 for m, v in zip(cost.mean, cost.variance, strict=True)])


def _related(one: ClassKey, other: ClassKey) -> bool:
    return one.namespace == other.namespace and one.family == other.family
