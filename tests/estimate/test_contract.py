"""What every estimator promises, whatever it is fed: the same list of checks for all of them."""

from __future__ import annotations

import copy
import json
import math
import pickle
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carico.estimate.pipeline import Pipeline
from carico.settings import ESTIMATORS, EstimateSettings
from carico.types import CostBelief, Estimate, Mode, PodCount, Sample

DIMENSIONS = ("cpu", "memory")
CHOICES = [
    EstimateSettings(estimator=name, smoothing=smoothing)
    for name in ESTIMATORS
    for smoothing in ("change-aware", "ema")
]
every_choice = pytest.mark.parametrize("choice", CHOICES, ids=lambda s: f"{s.estimator}/{s.smoothing}")

Tick = tuple[Sample, PodCount]


def life(ticks: int, seed: int = 1) -> list[Tick]:
    """A node on which pods come and go."""
    rng = random.Random(seed)
    pods, churn, found = 0, 0, []
    for tick in range(ticks):
        if rng.random() < 0.03:
            pods, churn = max(0, min(8, pods + rng.choice((-1, 1)))), 3
        churn = max(0, churn - 1)
        values = (0.05 + 0.1 * pods + rng.gauss(0, 0.02), 0.2 + 0.04 * pods + rng.gauss(0, 0.001))
        clipped = tuple(min(max(x, 0.0), 1.0) for x in values)
        found.append((Sample(tick / 10, clipped), PodCount(pods, churn > 0, int(churn > 0 and pods > 0))))
    return found


def estimates(pipeline: Pipeline, ticks: list[Tick]) -> list[Estimate]:
    return [estimate for sample, pods in ticks if (estimate := pipeline.update(sample, pods))]


def sane(estimate: Estimate, limit: float = 1000.0) -> None:
    numbers = (
        *estimate.usage,
        *estimate.baseline_ratio,
        *estimate.cost_ratio,
        estimate.signal_k,
        estimate.baseline_scalar,
        estimate.cost_scalar,
        estimate.pod_capacity,
    )
    assert all(math.isfinite(number) for number in numbers), estimate
    assert 0 <= estimate.pod_capacity <= limit
    assert 0 <= estimate.signal_k <= limit
    assert all(0 <= x <= 1 for x in (*estimate.usage, *estimate.baseline_ratio))
    assert all(c >= 0 for c in estimate.cost_ratio)


@every_choice
def test_one_estimate_per_batch_and_all_sane(choice: EstimateSettings) -> None:
    found = estimates(Pipeline(choice, DIMENSIONS), life(2000))
    assert len(found) == 200
    for estimate in found:
        sane(estimate)


@every_choice
def test_same_input_same_answer_and_the_input_is_left_alone(choice: EstimateSettings) -> None:
    ticks = life(600)
    kept = copy.deepcopy(ticks)
    assert estimates(Pipeline(choice, DIMENSIONS), ticks) == estimates(Pipeline(choice, DIMENSIONS), ticks)
    assert ticks == kept


@every_choice
def test_a_pickled_and_a_saved_pipeline_go_on_alike(choice: EstimateSettings) -> None:
    ticks = life(1500)
    pipeline = Pipeline(choice, DIMENSIONS)
    estimates(pipeline, ticks[:777])
    pickled = pickle.loads(pickle.dumps(pipeline))
    restored = Pipeline(choice, DIMENSIONS)
    restored.restore(json.loads(json.dumps(pipeline.save())))
    rest = estimates(pipeline, ticks[777:])
    assert estimates(pickled, ticks[777:]) == rest
    assert estimates(restored, ticks[777:]) == rest
    assert json.dumps(restored.save()) == json.dumps(pipeline.save())


@every_choice
def test_memory_does_not_grow_with_the_run_time(choice: EstimateSettings) -> None:
    pipeline = Pipeline(choice, DIMENSIONS)
    ticks = life(3000)
    sizes = []
    for start in range(0, 3000, 500):
        estimates(pipeline, ticks[start : start + 500])
        sizes.append(len(pickle.dumps(pipeline)))
    assert max(sizes[1:]) < 1.2 * sizes[1]


values = st.one_of(st.sampled_from([0.0, 1.0, 0.99, 5e-324]), st.floats(0, 1))
wild = st.lists(
    st.tuples(values, values, st.integers(0, 300), st.booleans(), st.integers(0, 300), st.integers(1, 25)),
    min_size=1,
    max_size=15,
)


@every_choice
@settings(max_examples=15)
@given(wild)
def test_whatever_comes_the_answer_is_sane(
    choice: EstimateSettings, stretches: list[tuple[float, float, int, bool, int, int]]
) -> None:
    pipeline, at = Pipeline(choice, DIMENSIONS), 0.0
    for cpu, memory, running, churn, unsettled, ticks in stretches:
        for _ in range(ticks):
            at += 0.1
            estimate = pipeline.update(Sample(at, (cpu, memory)), PodCount(running, churn, unsettled))
            if estimate:
                sane(estimate)
    restored = Pipeline(choice, DIMENSIONS)
    restored.restore(json.loads(json.dumps(pipeline.save())))


@every_choice
def test_without_a_runtime_usage_alone_counts(choice: EstimateSettings) -> None:
    pipeline = Pipeline(choice, DIMENSIONS)
    no_pods = PodCount(0, False, 0)
    quiet = estimates(pipeline, [(Sample(i / 10, (0.1, 0.1)), no_pods) for i in range(600)])
    busy = estimates(pipeline, [(Sample(i / 10, (0.9, 0.1)), no_pods) for i in range(600, 660)])
    for estimate in (*quiet, *busy):
        sane(estimate)
        assert estimate.mode is Mode.SETTLED
    assert busy[-1].pod_capacity < quiet[-1].pod_capacity


@every_choice
def test_a_full_node_takes_no_pods(choice: EstimateSettings) -> None:
    pipeline = Pipeline(choice, DIMENSIONS)
    estimates(pipeline, life(1200))
    full = [(Sample(120 + i / 10, (1.0, 0.5)), PodCount(9, False, 0)) for i in range(50)]
    assert estimates(pipeline, full)[-1].pod_capacity < 0.5


@pytest.mark.parametrize("dimensions", [("cpu",), ("cpu", "memory", "io_pressure"), ("cpu",) * 6])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_any_number_of_dimensions(name: str, dimensions: tuple[str, ...]) -> None:
    pipeline = Pipeline(EstimateSettings(estimator=name), dimensions)
    for sample, pods in life(300):
        wide = Sample(sample.at, (sample.values * 3)[: len(dimensions)])
        estimate = pipeline.update(wide, pods)
        if estimate:
            sane(estimate)


@pytest.mark.parametrize(("rate_hz", "batch"), [(1.0, 1), (10.0, 100), (100.0, 3), (0.1, 2)])
def test_any_rate_and_any_batch(rate_hz: float, batch: int) -> None:
    pipeline = Pipeline(EstimateSettings(batch=batch), DIMENSIONS, rate_hz)
    found = estimates(pipeline, [(Sample(tick / rate_hz, s.values), pods) for tick, (s, pods) in enumerate(life(600))])
    assert len(found) == 600 // batch
    for estimate in found:
        sane(estimate)


def saved(**changes: object) -> dict[str, object]:
    pipeline = Pipeline(EstimateSettings(), DIMENSIONS)
    estimates(pipeline, life(300))
    plain: dict[str, object] = json.loads(json.dumps(pipeline.save()))
    return plain | changes


@pytest.mark.parametrize(
    ("state", "named"),
    [
        ({}, "version"),
        (saved(version=1), "version"),
        (saved(whole=[0.0, 1.0]), "whole"),
        (saved(estimator="signal"), "estimator"),
        (saved(dimensions=["cpu"]), "dimensions"),
        (saved(prior=None), "prior"),
        (saved(baseline=[0.1, float("nan")]), "baseline"),
        (saved(baseline=[0.1, 7]), "baseline"),
        (saved(baseline="0.1"), "baseline"),
        (saved(counters=[1, 2]), "counters"),
        (saved(counters=[10**400, 2, 3]), "counters"),
        (saved(local=[[1.0, 1.0, 0.0], [0.5, 1.0, 0.0]]), "local"),
        (saved(local=[[9e9, 1.0, 0.0]]), "local"),
        (saved(batch=[[0.1, 0.1]] * 10), "batch"),
        (saved(estimator_state={"joint": {"starts": {"pods": 1, "young": []}}}), "'0'"),
        (saved(smoother={"usage": ["a", 1]}), "usage"),
    ],
)
def test_state_that_does_not_fit_is_refused_by_name_and_leaves_no_poison(state: dict[str, object], named: str) -> None:
    fresh, hurt = Pipeline(EstimateSettings(), DIMENSIONS), Pipeline(EstimateSettings(), DIMENSIONS)
    with pytest.raises(ValueError, match=named):
        hurt.restore(state)
    assert estimates(hurt, life(300)) == estimates(fresh, life(300))


@pytest.mark.parametrize(
    ("name", "filters"),
    [
        ("signal", [1.0, -0.1, 0.3, 0.1]),
        ("signal-trace", [1.0, 0.1, 0.3, -2.2e-3]),
        ("signal-difference", [0.1, -0.19]),
        ("signal-joint", [1.4, -0.1, -0.1, 0.0, 0.1]),
        ("signal-joint", [1.4, -0.1, 0.1, 0.5, 0.1]),
        ("resource", None),
    ],
)
def test_variances_that_no_filter_can_have_are_refused(name: str, filters: list[float] | None) -> None:
    pipeline = Pipeline(EstimateSettings(estimator=name), DIMENSIONS)
    state = json.loads(json.dumps(pipeline.save()))
    if filters is None:
        state["estimator_state"]["0"]["filters"][1] = -1.0
    else:
        state["estimator_state"]["slope"]["filters"] = filters
    with pytest.raises(ValueError, match=r"'filters' holds (a negative variance|impossible variances)"):
        pipeline.restore(state)


def shaken(value: object, rng: random.Random) -> object:
    """Saved state with one value in it replaced by an invalid one."""
    if isinstance(value, dict) and value:
        key = rng.choice(sorted(value))
        return value | {key: shaken(value[key], rng)}
    if isinstance(value, list) and value:
        place = rng.randrange(len(value))
        return [*value[:place], shaken(value[place], rng), *value[place + 1 :]]
    return rng.choice([None, "x", -1e300, 1e300, float("nan"), 10**400, [], {}, -1, 3])


@every_choice
def test_shaken_state_is_refused_or_harmless(choice: EstimateSettings) -> None:
    pipeline = Pipeline(choice, DIMENSIONS)
    estimates(pipeline, life(300))
    pipeline.adopt(*_cluster())
    state = json.loads(json.dumps(pipeline.save()))
    rng = random.Random(5)
    for _ in range(60):
        other = Pipeline(choice, DIMENSIONS)
        try:
            other.restore(shaken(state, rng))  # type: ignore[arg-type]
        except ValueError:
            continue
        for estimate in estimates(other, life(30)):
            sane(estimate)


def _cluster() -> tuple[np.ndarray, CostBelief, float]:
    return np.diag([0.2, 0.1]), CostBelief((0.1, 0.05), (0.001, 0.001)), 3.0
