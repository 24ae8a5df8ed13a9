"""Every estimator against the truth of a synthetic node: what bench/estimator.py measures and tests check.

For each second after the first minute: is the estimate within max(1, 15 %) of the truth R, and would "does one more pod
fit" be answered correctly? Over-estimates overload nodes: the figures are the worst one, and the longest run of seconds
over R by more than max(2, 25 %). When the cost doubles, no estimator can know at once: the first 30 s after it are left
out of the shares, the first 60 s out of the over-estimates.

If pods differ, a node cannot know the mean of future pods from the few that it has seen. The last row assumes exact
knowledge of the base and of every pod's cost, and takes their mean for the next pod: only errors beyond that row are
the estimator's.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from carico.estimate.estimator import Estimator
from carico.estimate.estimators import make_estimator
from carico.estimate.pipeline import Pipeline
from carico.settings import ESTIMATORS, EstimateSettings
from carico.types import MeasuredPod, PodCount, Sample
from harness.estimate.synthetic import CASES, RATE_HZ, SECONDS, Array, Case, record

DEFAULT = EstimateSettings().estimator
# The plain moving average, compared with the smoothing that uses the runtime's events: shows what the events gain.
VARIANTS = {"change-aware": ESTIMATORS, "ema": ("resource-joint",)}
# In the case .03/.08 R is exactly 1 in every 25th second; rounding must not decide whether one more pod fits.
ROUNDING = 1e-9

Figures = dict[str, float]


class EstimatorGroup(Pipeline):
    """One front end and several estimators: their input is the same, so it is computed once."""

    def __init__(self, smoothing: str, dimensions: tuple[str, ...], names: tuple[str, ...]) -> None:
        settings = EstimateSettings(smoothing=smoothing)
        super().__init__(settings, dimensions)
        each = [dataclasses.replace(settings, estimator=name) for name in names]
        self._voices = [make_estimator(one, dimensions, self._full) for one in each]
        self.answers: list[list[float]] = []  # Pod-Capacity per second and estimator

    def update(self, sample: Sample, pods: PodCount, measured: Sequence[MeasuredPod] | None = None) -> None:
        if pods.running != self._pods:
            for voice in self._voices:
                voice.count(sample.at, pods.running)
        super().update(sample, pods, measured)

    def _second(self, sample: Sample, pods: PodCount) -> None:  # type: ignore[override]
        self.answers.append([self._answer_of(voice, sample, pods) for voice in self._voices])
        self._clean.restart()
        self._is_new = False

    def _answer_of(self, voice: Estimator, sample: Sample, pods: PodCount) -> float:
        self._estimator = voice
        second, _ = self._look(sample, pods)
        voice.learn(second)
        return voice.answer(second, self._prior).pod_capacity


def headline(default: dict[str, Figures]) -> Figures:
    """The default estimator over the cases that have targets: all but the harder ones."""
    steady = [default[case.name]["within"] for case in CASES if not case.doubles and case.name in default]
    switch = [default[case.name]["within"] for case in CASES if case.doubles and case.name in default]
    one_more = [default[case.name]["one_more"] for case in CASES if case.name in default]
    return {
        "default_within_min": min(steady),
        "default_within_switch": min(switch),
        "default_one_more_min": min(one_more),
    }


def measure(case: Case, smoothing: str, seeds: range, names: tuple[str, ...] = ()) -> dict[str, Figures]:
    """Figures of the estimators on one case; shares in per cent over all seeds."""
    names = names or VARIANTS[smoothing]
    runs = [follow(case, smoothing, seed, names) for seed in seeds]
    estimates = np.array([estimate for estimate, _ in runs])  # seed, second, estimator
    truth = np.array([truth for _, truth in runs])
    return {name: judge(estimates[:, :, i], truth, case.doubles) for i, name in enumerate(names)}


def measure_best(case: Case, seeds: range) -> Figures:
    recordings = [record(case, seed) for seed in seeds]
    each_second = slice(RATE_HZ - 1, None, RATE_HZ)
    best = np.array([recording.best_guess[each_second] for recording in recordings])
    truth = np.array([recording.truth[each_second] for recording in recordings])
    return judge(best, truth, case.doubles)


def follow(case: Case, smoothing: str, seed: int, names: tuple[str, ...]) -> tuple[list[list[float]], Array]:
    """Pod-Capacity per second and estimator, and the truth of every second."""
    recording = record(case, seed)
    group = EstimatorGroup(smoothing, recording.dimensions, names)
    for tick in zip(recording.samples, recording.pods, recording.measured, strict=True):
        group.update(*tick)
    return group.answers, recording.truth[RATE_HZ - 1 :: RATE_HZ]


def judge(estimate: Array, truth: Array, doubles: bool) -> Figures:
    """Rows are seeds, columns seconds."""
    second = np.arange(1, truth.shape[1] + 1)
    learned = second > 60
    switch = SECONDS // 2 if doubles else -math.inf
    counted = learned & ~((second > switch) & (second <= switch + 30))
    safe = learned & ~((second > switch) & (second <= switch + 60))
    error = estimate - truth
    within = np.abs(error) <= np.maximum(1.0, 0.15 * truth)
    fits = truth >= 1.0 - ROUNDING
    some_fit = counted & fits
    return {
        "within": _percent(within[:, counted]),
        "within_if_some_fit": _percent(within[some_fit]),
        "within_worst_seed": round(float(100 * within[:, counted].mean(axis=1).min()), 2),
        "one_more": _percent(((estimate >= 1.0) == fits)[:, counted]),
        "rmse_pods": round(float(np.sqrt((error[:, counted] ** 2).mean())), 3),
        "worst_over_pods": round(float(error[:, safe].max()), 2),
        "longest_over_seconds": float(longest_run((error > np.maximum(2.0, 0.25 * truth)) & safe)),
        "always_sane": float(np.isfinite(estimate).all() and (estimate >= 0.0).all()),
    }


def longest_run(flags: np.ndarray) -> int:
    """Longest run of true values along the second axis.

    >>> longest_run(np.array([[True, True, False, True], [False, True, False, False]]))
    2
    """
    longest, current = 0, np.zeros(len(flags), dtype=int)
    for column in flags.T:
        current = (current + 1) * column
        longest = max(longest, int(current.max()))
    return longest


def _percent(flags: np.ndarray) -> float:
    return round(float(100 * flags.mean()), 2)
