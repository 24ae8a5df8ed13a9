"""The contract of estimators (carico.estimate.estimator), checked over the seconds of nodes on which pods come and go.

    from carico.testing import check_estimator

    def test_contract() -> None:
        check_estimator(lambda: MyEstimator(("cpu", "memory")))

`make` returns a new estimator of two resources. A failure names the check and the seed: `check_estimator(make,
seeds=[7])` repeats it. Whether the figures are right is another question: `make bench NAME=estimator` answers it.
"""

from __future__ import annotations

import copy
import json
import math
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from carico.estimate.estimator import Estimator, Observation, Prediction
from carico.estimate.prior import Prior
from carico.types import ClassKey, CostBelief, MeasuredPod

Make = Callable[[], Estimator]
SIZE = 2  # resources
SECONDS = 240
COST, BASE, NOISE = (0.1, 0.04), (0.05, 0.2), 0.01
CLASS = ClassKey("default", "default/checked")
NONSENSE: tuple[Any, ...] = (None, "x", -1e300, 1e300, float("nan"), 10**400, [], {}, -1, 3)


def check_estimator(make: Make, *, seeds: Iterable[int] = range(4)) -> None:
    """Runs every check; raises AssertionError with what is wrong."""
    for seed in seeds:
        seconds = life(seed)
        for name, check in CHECKS.items():
            try:
                check(make, seconds)
            except AssertionError as error:
                raise AssertionError(f"{name}, seed {seed}: {error}") from error


def life(seed: int, count: int = SECONDS) -> list[Observation]:
    """A node's seconds; with an odd seed its pods are measured, too."""
    rng = random.Random(seed)
    running, churn, found = 0, 0, []
    for second in range(count):
        if rng.random() < 0.1:
            running, churn = min(max(running + rng.choice((-1, 1)), 0), 12), 2
        churn = max(0, churn - 1)
        found.append(_observation(float(second), running, churn > 0, rng, measured=seed % 2 == 1))
    return found


def _observation(at: float, pods: int, churn: bool, rng: random.Random, *, measured: bool) -> Observation:
    def reading() -> tuple[float, ...]:
        load = (base + cost * pods + rng.gauss(0, NOISE) for base, cost in zip(BASE, COST, strict=True))
        return tuple(min(max(value, 0.0), 1.0) for value in load)

    usage = reading()
    length = math.hypot(*usage) or 1.0
    return Observation(
        at=at,
        pods=pods,
        unsettled=1 if churn and pods else 0,
        unreliable=churn,
        usage=usage,
        latest=reading(),
        noise=(NOISE**2,) * SIZE,
        clean=0 if churn else 10,
        mean=usage,
        saturated=tuple(value >= 0.99 for value in usage),
        lowest=tuple(max(value - NOISE, 0.0) for value in usage),
        most=pods,
        unit=tuple(value / length for value in usage),
        k=rng.uniform(0.0, 20.0),
        measured=[_pod(number, at) for number in range(pods)] if measured else None,
    )


def _pod(number: int, age: float) -> MeasuredPod:
    return MeasuredPod(f"uid-{number}", CLASS, age, True, COST, COST, True, True)


def follow(estimator: Estimator, seconds: Sequence[Observation]) -> list[Prediction]:
    """As the pipeline calls it: a new count first, then the second, then what fits."""
    prior, pods, found = Prior(SIZE), -1, []
    for second in seconds:
        if second.pods != pods:
            pods = second.pods
            estimator.count(second.at, pods)
        estimator.learn(second)
        found.append(estimator.answer(second, prior))
    return found


def _saved(estimator: Estimator) -> str:
    return json.dumps(estimator.save(), allow_nan=False, sort_keys=True)


def _sane(prediction: Prediction) -> None:
    figures = (prediction.pod_capacity, prediction.baseline_scalar, prediction.cost_scalar)
    assert all(map(math.isfinite, (*figures, *prediction.baseline, *prediction.cost, *prediction.room))), prediction
    assert prediction.pod_capacity >= 0, prediction
    assert len(prediction.baseline) == len(prediction.cost) == SIZE, "one baseline and one cost per resource"
    assert len(prediction.room) in (0, SIZE), "room of every resource, or none"
    assert all(amount >= 0 for amount in (*prediction.cost, *prediction.room)), prediction


def _answers_are_sane(make: Make, seconds: list[Observation]) -> None:
    for prediction in follow(make(), seconds):
        _sane(prediction)


def _cost_is_a_belief_of_every_resource(make: Make, seconds: list[Observation]) -> None:
    estimator = make()
    follow(estimator, seconds)
    cost = estimator.cost()
    if cost is not None:
        assert len(cost.mean) == len(cost.variance) == SIZE, "one mean and one variance per resource"
        assert all(math.isfinite(value) and value >= 0 for value in (*cost.mean, *cost.variance)), cost


def _same_input_same_answers(make: Make, seconds: list[Observation]) -> None:
    kept = copy.deepcopy(seconds)
    assert follow(make(), seconds) == follow(make(), seconds), "two estimators differ"
    assert seconds == kept, "the input was changed"


def _answer_changes_nothing(make: Make, seconds: list[Observation]) -> None:
    estimator, other = make(), Prior(SIZE)
    other.adopt(CostBelief(mean=(0.3, 0.3), variance=(0.01, 0.01)))
    follow(estimator, seconds[:60])
    before = _saved(estimator)
    for _ in range(3):
        _sane(estimator.answer(seconds[59], other))
    assert _saved(estimator) == before, "answer() changed the state"


def _restored_goes_on_alike(make: Make, seconds: list[Observation]) -> None:
    half = len(seconds) // 2
    first, second = make(), make()
    follow(first, seconds[:half])
    second.restore(json.loads(_saved(first)))
    assert _saved(second) == _saved(first), "restore() did not take everything that save() gave"
    restored, original = follow(second, seconds[half:]), follow(first, seconds[half:])
    if seconds[0].measured is None:
        assert restored == original, "the restored one answers differently"
    else:  # readings of single pods need not be saved: they are taken again
        one, other = restored[-1].pod_capacity, original[-1].pod_capacity
        assert math.isclose(one, other, rel_tol=0.1, abs_tol=0.5), f"the restored one ends with {one}, not {other}"


def _invalid_state_is_refused_or_harmless(make: Make, seconds: list[Observation]) -> None:
    original = make()
    follow(original, seconds)
    state, rng = json.loads(_saved(original)), random.Random(len(seconds))
    for _ in range(30):
        other = make()
        try:
            other.restore(_shaken(state, rng))
        except ValueError:
            continue
        for prediction in follow(other, seconds[:20]):
            _sane(prediction)


def _shaken(state: dict[str, object], rng: random.Random) -> dict[str, object]:
    """The state with one value in it replaced by an invalid one."""
    changed = copy.deepcopy(state)
    place: Any = changed
    while True:
        keys: list[Any] = sorted(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return changed
        key = rng.choice(keys)
        if not isinstance(place[key], dict | list) or not place[key] or rng.random() < 0.2:
            place[key] = rng.choice(NONSENSE)
            return changed
        place = place[key]


def _state_is_bounded(make: Make, seconds: list[Observation]) -> None:
    estimator = make()
    follow(estimator, seconds)
    size = len(_saved(estimator))
    later = [second._replace(at=second.at + len(seconds)) for second in seconds]
    follow(estimator, [*later, *(second._replace(at=second.at + len(seconds)) for second in later)])
    assert len(_saved(estimator)) <= 1.2 * size + 200, "the state grows with the run time"


CHECKS: dict[str, Callable[[Make, list[Observation]], None]] = {
    "answers are sane": _answers_are_sane,
    "cost is a belief of every resource": _cost_is_a_belief_of_every_resource,
    "same input, same answers": _same_input_same_answers,
    "answer changes nothing": _answer_changes_nothing,
    "restored, it goes on alike": _restored_goes_on_alike,
    "an invalid state is refused or harmless": _invalid_state_is_refused_or_harmless,
    "state is bounded": _state_is_bounded,
}
