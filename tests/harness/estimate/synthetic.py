"""A synthetic node, whose truth is known: usage, pods and runtime events of ten minutes.

Base usage (0.05, 0.12), noise 0.02 at 10 Hz, and +0.3 cpu for 300 ms at every start and stop. Pods start and stop on
random ticks. The runtime flags churn from 200 ms before a start until 100 ms after it and for 300 ms after a stop, so
200 ms of every start's spike are not flagged. A pod is unsettled for 2 s. Each pod is measured, once a second while it
is young and in turn with the others later, from a second after its start: cpu with an error of 10 % of the pod's demand
and 0.001 of the node, memory with 2 %; on a saturated node cpu is a lower bound. The truth is
R = max(0, minᵢ (1 − xᵢ)/cᵢ) with xᵢ the usage, free of noise, once every running pod has reached its load.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from carico.types import ClassKey, MeasuredPod, PodCount, Sample

RATE_HZ = 10
SECONDS = 600
TICKS = SECONDS * RATE_HZ
SPIKE, SPIKE_TICKS = 0.3, 3
CREATING_TICKS, AFTER_START_TICKS, AFTER_STOP_TICKS = 2, 1, 3
SETTLE_TICKS = 20
READ_ERROR = (0.1, 0.02)  # of a reading of cpu and of memory, as a share of the pod's demand
LEAST_ERROR = 0.001  # of cpu, as a share of the node
YOUNG_SECONDS, READ_PER_SECOND = 20.0, 30  # older pods are read in turn
KEY = ClassKey("bench", "bench/pods")

Array = NDArray[np.float64]
Counts = NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class Case:
    """One kind of workload on the synthetic node."""

    name: str
    cost: tuple[float, ...]
    base: tuple[float, ...] = (0.05, 0.12)
    dimensions: tuple[str, ...] = ("cpu", "memory")
    shape: str = "walk"  # how the pod count changes: walk or bursts
    most: float = 1.0  # highest pod count, in shares of what fits
    heavy: bool = False  # Student's t with 3 degrees of freedom instead of a Gaussian
    doubles: bool = False  # the cost doubles at half time
    ramp_seconds: float = 0.0  # time that a pod takes to reach its load
    unlike: float = 0.0  # standard deviation of a pod's cost, in shares of the mean
    gap_seconds: float = 4.0  # mean time between two changes of a walk


CASES = (
    Case(".08/.03", (0.08, 0.03)),
    Case(".02/.005", (0.02, 0.005)),
    Case(".2/.05", (0.2, 0.05)),
    Case(".03/.08", (0.03, 0.08)),
    Case(".45/.30", (0.45, 0.30)),
    Case("bursts", (0.08, 0.03), shape="bursts"),
    Case("overload", (0.08, 0.03), most=1.5),
    Case("heavy noise", (0.08, 0.03), heavy=True),
    Case("cost doubles", (0.08, 0.03), doubles=True),
)
HARDER = (
    Case("ramp 10 s", (0.08, 0.03), ramp_seconds=10.0, gap_seconds=8.0),
    Case("unlike costs", (0.08, 0.03), unlike=0.4),
    Case("three resources", (0.08, 0.03, 0.05), (0.05, 0.12, 0.02), ("cpu", "memory", "disk")),
)


@dataclasses.dataclass(frozen=True)
class Recording:
    """What the node's agent sees, and the truth."""

    dimensions: tuple[str, ...]
    samples: list[Sample]
    pods: list[PodCount]
    truth: Array  # R at every tick
    measured: list[list[MeasuredPod] | None]  # at the last tick of every second, all pods; cpu and memory only
    best_guess: Array  # R with exact knowledge of the base and of every pod's cost; the next pod has their mean cost


def record(case: Case, seed: int) -> Recording:
    rng = np.random.default_rng([seed, *case.name.encode()])
    moves = _moves(case, rng)
    count = np.cumsum(moves)
    cost = _cost_over_time(case)
    lives, load, settled, mean = _load(case, cost, moves, rng)
    clean = np.array(case.base) + load
    final = np.array(case.base) + settled
    truth = np.maximum(((1.0 - final) / cost).min(axis=1), 0.0)
    best_guess = truth / mean
    usage = np.clip(clean + _noise(case, rng) + _spikes(case, moves), 0.0, 1.0)
    samples = [Sample((i + 1) / RATE_HZ, tuple(row)) for i, row in enumerate(usage.tolist())]
    measured = _measured(case, cost, lives, clean[:, 0] >= 1.0, np.random.default_rng([seed, 7, *case.name.encode()]))
    return Recording(case.dimensions, samples, _pod_counts(moves, count), truth, measured, best_guess)


def fitting(case: Case, factor: float = 1.0) -> int:
    """Pods that fit on the empty node."""
    return int(min((1.0 - b) / (c * factor) for b, c in zip(case.base, case.cost, strict=True)) + 1e-9)


def _cost_over_time(case: Case) -> Array:
    factor = np.ones(TICKS)
    if case.doubles:
        factor[TICKS // 2 :] = 2.0
    return np.outer(factor, case.cost)


def _moves(case: Case, rng: np.random.Generator) -> Counts:
    """Change of the pod count at every tick: −1, 0 or 1."""
    return _bursts(case, rng) if case.shape == "bursts" else _walk(case, rng)


def _walk(case: Case, rng: np.random.Generator) -> Counts:
    """One pod at a time towards a random count, then towards another."""
    moves = np.zeros(TICKS, dtype=np.int64)
    now, tick = 0, 5
    top = _top(case, tick)
    target = int(rng.integers(0, top + 1))
    while tick < TICKS:
        top = _top(case, tick)
        while target == now or target > top:
            target = int(rng.integers(0, top + 1))
        step = 1 if target > now else -1
        moves[tick] = step
        now += step
        tick += 1 + int(rng.exponential(case.gap_seconds) * RATE_HZ)
    return moves


def _top(case: Case, tick: int) -> int:
    """The highest count: what fits, and after the cost has doubled what fits then."""
    return int(fitting(case, 2.0 if case.doubles and tick >= TICKS // 2 else 1.0) * case.most)


def _bursts(case: Case, rng: np.random.Generator) -> Counts:
    """0 → 0.4 → 0 → 1 → 0 → 0.7 of what fits, a change every 100–300 ms, repeated."""
    moves = np.zeros(TICKS, dtype=np.int64)
    now, tick = 0, 50
    shares = [0.4, 0.0, 1.0, 0.0, 0.7, 0.0]
    at = 0
    while tick < TICKS:
        target = round(shares[at % len(shares)] * fitting(case))
        if target == now:
            at += 1
            tick += int(rng.uniform(15, 45) * RATE_HZ)
            continue
        moves[tick] = 1 if target > now else -1
        now += int(moves[tick])
        tick += int(rng.integers(1, 4))
    return moves


@dataclasses.dataclass
class Life:
    """One pod."""

    began: int  # tick
    weight: float  # its cost in shares of the mean cost
    ended: int = TICKS


def _load(case: Case, cost: Array, moves: Counts, rng: np.random.Generator) -> tuple[list[Life], Array, Array, Array]:
    """The pods, their visible load at every tick, the load once all have ramped up, and their mean weight so far."""
    shows, settles = np.zeros(TICKS), np.zeros(TICKS)
    mean, seen = np.ones(TICKS), 0
    lives: list[Life] = []
    living: list[Life] = []
    rise = max(1, round(case.ramp_seconds * RATE_HZ))
    for tick in np.flatnonzero(moves).tolist():
        if moves[tick] > 0:
            weight = max(0.2, 1.0 + case.unlike * rng.standard_normal())
            living.append(Life(tick, weight))
            lives.append(living[-1])
            shows[tick:] += weight * np.minimum(1.0, np.arange(1, TICKS - tick + 1) / rise)
            settles[tick:] += weight
            seen += 1
            mean[tick:] = (mean[tick] * (seen - 1) + weight) / seen
        else:
            life = living.pop(int(rng.integers(len(living))))
            began, weight, life.ended = life.began, life.weight, tick
            shows[tick:] -= weight * np.minimum(1.0, np.arange(tick - began + 1, TICKS - began + 1) / rise)
            settles[tick:] -= weight
    return lives, shows[:, np.newaxis] * cost, settles[:, np.newaxis] * cost, mean


def _measured(
    case: Case, cost: Array, lives: list[Life], saturated: NDArray[np.bool_], rng: np.random.Generator
) -> list[list[MeasuredPod] | None]:
    """The pods' measurements at the end of every second; None at the ticks in between."""
    found: list[list[MeasuredPod] | None] = [None] * TICKS
    rise = max(1, round(case.ramp_seconds * RATE_HZ))
    last: dict[int, tuple[float, ...]] = {}
    for second in range(SECONDS):
        tick = (second + 1) * RATE_HZ - 1
        living = [(i, life) for i, life in enumerate(lives) if life.began <= tick < life.ended]
        turns = max(1, -(-len(living) // READ_PER_SECOND))
        pods = []
        for place, (i, life) in enumerate(living):
            age = (tick + 1 - life.began) / RATE_HZ
            fresh = age >= 1.0 and (age <= YOUNG_SECONDS or (place + second) % turns == 0)
            if fresh:
                shown = life.weight * min(1.0, (tick + 1 - life.began) / rise)
                error = rng.standard_normal(2) * READ_ERROR
                demand = shown * cost[tick, :2] * (1.0 + error) + (LEAST_ERROR * rng.standard_normal(), 0.0)
                last[i] = tuple(np.maximum(demand, 0.0).tolist())
            read = last.get(i)
            pods.append(MeasuredPod(str(i), KEY, age, True, read, read, not saturated[tick], fresh))
        found[tick] = pods
    return found


def _noise(case: Case, rng: np.random.Generator) -> Array:
    size = (TICKS, len(case.cost))
    return 0.02 * (rng.standard_t(3, size) if case.heavy else rng.standard_normal(size))


def _spikes(case: Case, moves: Counts) -> Array:
    """The load of the container runtime: cpu only."""
    spikes = np.zeros((TICKS, len(case.cost)))
    for tick in np.flatnonzero(moves).tolist():
        spikes[tick : tick + SPIKE_TICKS, 0] += SPIKE
    return spikes


def _pod_counts(moves: Counts, count: Counts) -> list[PodCount]:
    churn = np.zeros(TICKS, dtype=bool)
    for tick in np.flatnonzero(moves).tolist():
        if moves[tick] > 0:
            churn[max(0, tick - CREATING_TICKS) : tick + AFTER_START_TICKS] = True
        else:
            churn[tick : tick + AFTER_STOP_TICKS] = True
    started = np.cumsum(np.maximum(moves, 0))
    young = started - np.concatenate((np.zeros(SETTLE_TICKS, dtype=np.int64), started[:-SETTLE_TICKS]))
    return [PodCount(int(n), bool(c), min(int(y), int(n))) for n, c, y in zip(count, churn, young, strict=True)]
