"""What each stage does to docs/recordings/pods.rec: draws the pictures of docs/signal.md.

Figures: the share of seconds in which an estimator's Pod-Capacity is within max(1, 15 %) of a linear fit to the
samples; both without the first third, in which the load does not come from pods.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from carico.commands.replay import replay
from carico.estimate.estimators import make_smoother
from carico.recording.format import load
from carico.recording.playback import Playback
from carico.recording.plot import load_pyplot, save
from carico.settings import ESTIMATORS, FULL, ViewSettings
from carico.types import Estimate

ROOT = Path(__file__).parents[1]
RECORDING = ROOT / "docs" / "recordings" / "pods.rec"
PICTURES = ROOT / "docs" / "pictures"
SETTINGS = ViewSettings()


def run() -> dict[str, float]:
    playback = Playback(RECORDING, load(RECORDING), SETTINGS)
    estimates = {name: replay(playback, dataclasses.replace(SETTINGS, estimator=name)) for name in ESTIMATORS}
    PICTURES.mkdir(parents=True, exist_ok=True)
    _draw_sample(playback)
    _draw_smooth(playback)
    _draw_model(estimates["resource-joint"], playback.dimensions)
    _draw_capacity(playback, estimates)
    figures = {name: round(_within(playback, answers), 3) for name, answers in estimates.items()}
    for name, share in figures.items():
        print(f"{name:<20}{share:>7.1%}")
    return figures


def _fitted(playback: Playback) -> tuple[Any, Any]:
    """Baseline and cost per dimension: a linear fit to the samples in which the runtime was quiet."""
    later = list(playback)[len(playback) // 3 :]
    rows = [(pods.running, *sample.values) for sample, pods in later if not pods.churn and not pods.unsettled]
    table = np.array(rows)
    design = np.column_stack([np.ones(len(table)), table[:, 0]])
    solution = np.linalg.lstsq(design, table[:, 1:], rcond=None)[0]
    return solution[0], np.maximum(solution[1], 1e-4)


def _truth(playback: Playback, answers: list[Estimate]) -> Any:
    baseline, cost = _fitted(playback)
    counts = np.array([answer.pods for answer in answers])
    room = (FULL - baseline - np.outer(counts, cost)) / cost
    return np.maximum(0.0, room.min(axis=1))


def _within(playback: Playback, answers: list[Estimate]) -> float:
    truth = _truth(playback, answers)
    told = np.array([answer.pod_capacity for answer in answers])
    good = np.abs(told - truth) <= np.maximum(1.0, 0.15 * truth)
    return float(good[len(good) // 3 :].mean())


def _axes(rows: int, height: float) -> tuple[Any, Any]:
    figure, axes = load_pyplot().subplots(rows, 1, sharex=True, figsize=(9, height), layout="constrained")
    (axes if rows == 1 else axes[-1]).set_xlabel("s")
    return figure, axes


def _draw_sample(playback: Playback) -> None:
    figure, axes = _axes(3, 5.5)
    times = playback.raw("t")
    axes[0].step(times, playback.raw("n"), where="post", color="black", linewidth=1)
    axes[0].fill_between(times, 0, playback.raw("n").max(), where=playback.raw("churn") > 0, alpha=0.3, color="orange")
    axes[0].set_ylabel("pods; busy runtime")
    axes[1].plot(times, playback.raw("util"), linewidth=0.6, label="utilisation")
    axes[1].plot(times, playback.raw("psi"), linewidth=0.6, label="pressure")
    samples = np.array([sample.values for sample, _ in playback])
    axes[2].plot(times, samples[:, 0], linewidth=0.6, label="cpu", color="black")
    axes[2].plot(times, samples[:, 1], linewidth=1, label="memory", color="tab:green")
    for axis in axes[1:]:
        axis.set_ylim(0, 1.02)
        axis.legend(loc="upper right", fontsize="small")
    save(figure, PICTURES / "signal-sample.png")


def _draw_smooth(playback: Playback) -> None:
    figure, axis = _axes(1, 3)
    times = playback.raw("t")
    half = slice(0, len(times) // 2)
    raw = [sample.values[0] for sample, _ in playback]
    axis.plot(times[half], raw[half], linewidth=0.5, color="lightgrey", label="cpu as sampled")
    for name in ("ema", "change-aware"):
        smoother = make_smoother(dataclasses.replace(SETTINGS, smoothing=name), len(playback.dimensions), 10.0)
        values = []
        for sample, pods in playback:
            smoother.update(sample.values, pods)
            values.append(smoother.usage[0])
        axis.plot(times[half], values[half], linewidth=1, label=name)
    axis.set_ylim(0, 1.02)
    axis.legend(loc="upper right", fontsize="small")
    save(figure, PICTURES / "signal-smooth.png")


def _draw_model(answers: list[Estimate], dimensions: tuple[str, ...]) -> None:
    figure, axes = _axes(3, 5.5)
    times = [answer.at for answer in answers]
    axes[0].plot(times, [answer.signal_k for answer in answers], color="black")
    axes[0].set(ylabel="signal k", ylim=(0, 10))
    for i, name in enumerate(dimensions):
        axes[1].plot(times, [answer.baseline_ratio[i] for answer in answers], label=name)
        axes[2].plot(times, [answer.cost_ratio[i] for answer in answers], label=name)
    axes[1].set_ylabel("baseline")
    axes[2].set_ylabel("cost of a pod")
    for axis in axes[1:]:
        axis.set_ylim(bottom=0)
        axis.legend(loc="upper right", fontsize="small")
    save(figure, PICTURES / "signal-model.png")


def _draw_capacity(playback: Playback, estimates: dict[str, list[Estimate]]) -> None:
    figure, axis = _axes(1, 3.4)
    for name in ("resource-joint", "resource", "signal-trace"):
        answers = estimates[name]
        axis.plot([a.at for a in answers], [a.pod_capacity for a in answers], label=name, linewidth=1)
    answers = estimates["resource-joint"]
    truth = _truth(playback, answers)
    axis.plot([a.at for a in answers], truth, "--", color="black", linewidth=1, label="straight line")
    axis.set(ylabel="Pod-Capacity", ylim=(0, max(1.0, 2 * truth.max())))
    axis.legend(loc="upper right", fontsize="small")
    save(figure, PICTURES / "signal-capacity.png")
