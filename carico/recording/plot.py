"""A plot of a replayed recording: usage, cost of a pod, Pod-Capacity."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from carico.errors import CaricoError, UsageError
from carico.recording.playback import Playback
from carico.settings import NodeSettings
from carico.types import Estimate


def draw(playback: Playback, estimates: Sequence[Estimate], settings: NodeSettings, file: Path) -> None:
    pyplot = load_pyplot()
    figure, axes = pyplot.subplots(4, 1, sharex=True, figsize=(9, 8), layout="constrained")
    _usage(axes[0], playback, estimates)
    times = [estimate.at for estimate in estimates]
    _lines(axes[1], times, [e.cost_ratio for e in estimates], playback.dimensions, "cost of a pod")
    axes[2].step(playback.raw("t"), playback.raw("n"), where="post", color="black")
    axes[2].set(ylabel="pods", ylim=(0, None))
    axes[3].plot(times, [e.pod_capacity for e in estimates], label=f"Pod-Capacity ({settings.estimator})")
    axes[3].plot(times, [e.signal_k for e in estimates], label="signal k", linewidth=0.8)
    top = sorted(e.pod_capacity for e in estimates)[int(0.98 * (len(estimates) - 1))] if estimates else 1.0
    axes[3].set(ylabel="more pods", xlabel="s", ylim=(0, max(1.0, 1.2 * top)))
    axes[3].legend(loc="upper right", fontsize="small")
    save(figure, file)


def load_pyplot() -> Any:
    try:
        import matplotlib
    except ImportError:
        raise UsageError("pictures need matplotlib: pip install 'carico[demo]'") from None
    logging.getLogger("matplotlib").setLevel(logging.WARNING)  # it logs every font it finds
    matplotlib.use("Agg")  # writes files; needs no window system
    import matplotlib.pyplot

    return matplotlib.pyplot


def save(figure: Any, file: Path) -> None:
    try:
        figure.savefig(file, dpi=80, format="png")
    except OSError as error:
        raise CaricoError(f"{file} cannot be written: {error.strerror}") from error


def _usage(axis: Any, playback: Playback, estimates: Sequence[Estimate]) -> None:
    rows = [sample.values for sample, _ in playback]
    for i, name in enumerate(playback.dimensions):
        (raw,) = axis.plot(playback.raw("t"), [row[i] for row in rows], linewidth=0.5, alpha=0.4)
        axis.plot([e.at for e in estimates], [e.usage[i] for e in estimates], label=name, color=raw.get_color())
    axis.set(ylabel="usage, raw and smooth", ylim=(0, 1.02))
    axis.legend(loc="upper right", fontsize="small")


def _lines(axis: Any, times: list[float], rows: list[tuple[float, ...]], names: tuple[str, ...], label: str) -> None:
    for i, name in enumerate(names):
        axis.plot(times, [row[i] for row in rows], label=name)
    axis.set_ylabel(label)
    axis.set_ylim(bottom=0)
    axis.legend(loc="upper right", fontsize="small")
