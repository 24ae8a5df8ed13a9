"""Pictures of a comparison: usage, completion, running pods per node, and room against truth."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from carico.recording.plot import load_pyplot, save
from carico.sim.kubelet import SUCCEEDED
from carico.sim.recorder import Recorder

COLOURS = ("#3366cc", "#dc7633", "#2e8b57", "#8e44ad", "#7f8c8d", "#c0392b", "#16a085", "#b7950b")


def draw(file: Path, title: str, runs: Mapping[str, Recorder], warm_up: float) -> None:
    plt = load_pyplot()
    picture, ((use, done), (most, room)) = plt.subplots(2, 2, figsize=(12, 7.5), layout="constrained")
    picture.suptitle(title)
    for (name, recorder), colour in zip(runs.items(), COLOURS * 8, strict=False):
        times = np.array(recorder.times) - warm_up
        use.plot(times, 100 * recorder.column("usage").mean(axis=1), color=colour, label=name, linewidth=1.2)
        _completion(done, recorder, warm_up, name, colour)
        pods = recorder.column("pods")
        most.plot(times, pods.mean(axis=1), color=colour, linewidth=1.2, label=name)
        most.fill_between(times, pods.min(axis=1), pods.max(axis=1), color=colour, alpha=0.12, linewidth=0)
        _room(room, recorder, times, name, colour)
    _label(use, "cpu usage of the cluster, %")
    _label(done, "pods that have ended")
    _label(most, "running pods per node: mean, least and most")
    _label(room, "room of cpu on the first node, % of it (dashed: true)")
    use.legend(fontsize="small")
    save(picture, file)
    plt.close(picture)


def _completion(axes: Any, recorder: Recorder, warm_up: float, name: str, colour: str) -> None:
    ends = sorted(pod.ended - warm_up for pod in recorder.pods.values() if pod.outcome == SUCCEEDED)
    axes.step([0.0, *ends], range(len(ends) + 1), where="post", color=colour, label=name, linewidth=1.2)


def _room(axes: Any, recorder: Recorder, times: Any, name: str, colour: str) -> None:
    reported = recorder.column("room")
    if not np.isnan(reported).all():
        axes.plot(times, 100 * reported[:, 0], color=colour, label=name, linewidth=1.2)
        axes.plot(times, 100 * recorder.column("true_room")[:, 0], color=colour, linestyle="--", linewidth=0.8)


def _label(axes: Any, title: str) -> None:
    axes.set_title(title, fontsize="medium")
    axes.set_xlabel("s")
    axes.grid(alpha=0.25)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
