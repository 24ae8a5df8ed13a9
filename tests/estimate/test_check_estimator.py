"""Every estimator fulfils the contract that `carico.testing.check_estimator` checks, and each check can fail."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from carico.estimate.dual import Dual
from carico.estimate.estimator import Estimator, Observation, Prediction
from carico.estimate.estimators import make_estimator
from carico.estimate.prior import Prior
from carico.estimate.resource import ResourceFit
from carico.settings import ESTIMATORS, EstimateSettings
from carico.testing import check_estimator

DIMENSIONS, FULL = ("cpu", "memory"), (0.99, 0.95)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_estimators_of_this_repository(name: str) -> None:
    check_estimator(lambda: make_estimator(EstimateSettings(estimator=name), DIMENSIONS, FULL))


class Right(ResourceFit):
    def __init__(self) -> None:
        super().__init__([Dual() for _ in DIMENSIONS], DIMENSIONS, FULL, 1000.0)


class Infinite(Right):
    def answer(self, second: Observation, prior: Prior) -> Prediction:
        return super().answer(second, prior)._replace(pod_capacity=float("inf"))


class OfOneResource(Right):
    def answer(self, second: Observation, prior: Prior) -> Prediction:
        return super().answer(second, prior)._replace(cost=(0.1,))


class LearnsWhenAsked(Right):
    def answer(self, second: Observation, prior: Prior) -> Prediction:
        self.learn(second)
        return super().answer(second, prior)


class Forgets(Right):
    def restore(self, state: Mapping[str, object]) -> None:
        pass


class Hoards(Right):
    def __init__(self) -> None:
        super().__init__()
        self._seen: list[float] = []

    def learn(self, second: Observation) -> None:
        super().learn(second)
        self._seen.append(second.at)

    def save(self) -> dict[str, object]:
        return super().save() | {"seen": self._seen}

    def restore(self, state: Mapping[str, object]) -> None:
        super().restore(state)
        seen = state.get("seen")
        if not isinstance(seen, list):
            raise ValueError("'seen' is no list")
        self._seen = list(seen)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (Infinite, "answers are sane, seed 2"),
        (OfOneResource, "one baseline and one cost per resource"),
        (LearnsWhenAsked, "answer\\(\\) changed the state"),
        (Forgets, "restore\\(\\) did not take everything"),
        (Hoards, "the state grows with the run time"),
    ],
)
def test_what_breaks_the_contract_is_named(wrong: type[Right], why: str) -> None:
    make: type[Estimator] = wrong
    with pytest.raises(AssertionError, match=why):
        check_estimator(make, seeds=[2])
