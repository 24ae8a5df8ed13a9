"""The demo as a picture: each pod is a bar, pale while waiting and dark while running, with one panel per way."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from carico.embedded.demo.figures import Summary, spread
from carico.embedded.demo.job import DemoRun
from carico.errors import UsageError
from carico.recording.plot import load_pyplot, save

COLOURS = {"100m": "#b4532a", "500m": "#8a8f98", "carico": "#1f6f8b"}
WAITING = "#e4e2dd"


def check(file: Path) -> None:
    """Fail before the work for reasons that would otherwise fail after it."""
    load_pyplot()
    folder = file.absolute().parent
    if not folder.is_dir():
        raise UsageError(f"--png {file}: there is no folder {folder}; make it, or choose another")
    try:
        was_there = file.exists()
        file.open("ab").close()
    except OSError as error:
        raise UsageError(
            f"--png {file}: cannot be written ({error.strerror}); choose another with --png FILE"
        ) from error
    if not was_there:
        file.unlink()


def draw(runs: Sequence[DemoRun], summaries: Sequence[Summary], file: Path) -> None:
    pyplot = load_pyplot()
    figure, axes = pyplot.subplots(
        len(runs), 2, figsize=(12, 2.9 * len(runs)), width_ratios=(4, 1), sharex="col", layout="constrained"
    )
    slowest = max(max(run.latencies, default=0.0) for run in runs)
    for run, summary, (bars, answers) in zip(runs, summaries, axes, strict=True):
        _bars(bars, run, summary)
        _answers(answers, run, slowest)
    pods = max(len(run.pods) for run in runs)
    figure.suptitle(
        f"The same {pods} pods, placed in three ways on this machine. A bar is a pod: pale waits, dark runs."
    )
    axes[-1][0].set_xlabel("seconds after the pods were created")
    axes[-1][1].set_xlabel("ms")
    axes[0][1].set_title("a web server beside:\nanswered within", fontsize=10)
    save(figure, file)
    pyplot.close(figure)


def _bars(axis: Any, run: DemoRun, summary: Summary) -> None:
    pods = sorted(
        ((p.created, p.started, p.done) for p in run.pods.values() if p.started is not None and p.done is not None),
        key=lambda times: times[1],
    )
    zero = run.published
    for row, (created, started, done) in enumerate(pods):
        axis.barh(row, started - created, left=created - zero, color=WAITING, height=0.8)
        axis.barh(row, done - started, left=started - zero, color=COLOURS[run.way.name], height=0.8)
    completion = summary.pod_completion
    axis.set_title(
        f"{run.way.label}: a pod runs {completion.mean:.1f} s, the job {summary.job_completion:.1f} s",
        loc="left",
        fontsize=11,
    )
    axis.invert_yaxis()
    axis.set_xlim(left=0)
    axis.set_yticks([])
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)


def _answers(axis: Any, run: DemoRun, slowest: float) -> None:
    """Cumulative distribution of response times; the logarithmic scale also shows the slow ones."""
    milliseconds = sorted(1000 * seconds for seconds in run.latencies)
    if milliseconds:
        shares = [(i + 1) / len(milliseconds) for i in range(len(milliseconds))]
        axis.step(milliseconds, shares, where="post", color=COLOURS[run.way.name])
        axis.annotate(
            f"p99 {1000 * spread(run.latencies).p99:.0f} ms", (0.95, 0.08), xycoords="axes fraction", ha="right"
        )
    axis.set(xscale="log", xlim=(0.5, max(10.0, 2000 * slowest)), ylim=(0, 1.02))
    axis.xaxis.set_major_formatter("{x:,.0f}")
    axis.set_yticks([0, 0.5, 1], ["0%", "50%", "100%"])
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
