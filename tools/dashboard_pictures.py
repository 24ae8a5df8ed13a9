"""Draws the dashboards into docs/pictures/ from a real Prometheus: Grafana cannot be run where this is made.

Panels are placed as in Grafana. `tests/harness/monitoring.py` runs the cluster and Prometheus, and pods come and go for
a few minutes meanwhile.
"""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

from harness.monitoring import REAL_NODE, MonitoredCluster, Prometheus, monitored_cluster

ROOT = Path(__file__).parents[1]
BOARDS = sorted((ROOT / "scheduler/prometheus/dashboards").glob("*.json"))
PICTURES = ROOT / "docs/pictures"
LONGEST_LEGEND = 8
SCALES = {"bytes": (2**30, "GiB"), "percentunit": (0.01, "%"), "s": (1.0, "s")}


def work(cluster: MonitoredCluster, seconds: float) -> None:
    end = time.monotonic() + seconds
    cluster.refuse()
    while time.monotonic() < end:
        cluster.work(6, seconds=6.0)
        time.sleep(12.0)


def draw(board: Path, prometheus: Prometheus, seconds: float) -> Path:
    panels = json.loads(board.read_text())["panels"]
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    figure = plt.figure(figsize=(16, height * 0.42), dpi=80)
    for panel in panels:
        place = panel["gridPos"]
        left, bottom = place["x"] / 24, 1 - (place["y"] + place["h"]) / height
        if panel["type"] == "row":
            figure.text(0.01, bottom + 0.3 / height, panel["title"].replace("$node", REAL_NODE), weight="bold", size=12)
            continue
        box = (left + 0.03, bottom + 1.6 / height, place["w"] / 24 - 0.045, (place["h"] - 2.6) / height)
        axes = figure.add_axes(box)
        axes.set_title(panel["title"], size=10, loc="left")
        (_stat if panel["type"] == "stat" else _lines)(axes, panel, prometheus, seconds)
    to = PICTURES / f"dashboard-{board.stem}.png"
    figure.savefig(to)
    plt.close(figure)
    return to


def _expr(target: dict[str, Any]) -> str:
    expr: str = target["expr"]
    return expr.replace("$__rate_interval", "30s").replace("$node", REAL_NODE)


def _stat(axes: Any, panel: dict[str, Any], prometheus: Prometheus, _: float) -> None:
    [target] = panel["targets"]
    values = [float(sample["value"][1]) for sample in prometheus.query(_expr(target))]
    axes.text(0.5, 0.4, f"{values[0]:.3g}" if values else "no data", ha="center", va="center", size=22)
    axes.axis("off")


def _lines(axes: Any, panel: dict[str, Any], prometheus: Prometheus, seconds: float) -> None:
    factor, unit = SCALES.get(panel["fieldConfig"]["defaults"]["unit"], (1.0, ""))
    end = time.time()
    for target in panel["targets"]:
        for series in prometheus.range(_expr(target), end - seconds, end, 2.0):
            at = [(float(when) - end) / 60 for when, _ in series["values"]]
            axes.plot(at, [float(value) / factor for _, value in series["values"]], label=_legend(target, series), lw=1)
    axes.set_xlim(-seconds / 60, 0)
    axes.set_ylim(bottom=0)
    axes.set_ylabel(unit, size=8)
    axes.tick_params(labelsize=7)
    axes.grid(alpha=0.3)
    lines, names = axes.get_legend_handles_labels()
    if names:
        few = slice(0, LONGEST_LEGEND)
        axes.legend(
            lines[few], names[few], fontsize=6, ncol=4, loc="upper left", bbox_to_anchor=(0, -0.1), frameon=False
        )


def _legend(target: dict[str, Any], series: dict[str, Any]) -> str:
    text: str = target["legendFormat"]
    for label, value in series["metric"].items():
        text = text.replace(f"{{{{{label}}}}}", str(value))
    return re.sub(r"\{\{\w+\}\}", "none", text)  # the 0 of a counter that has no series yet


def main(seconds: float) -> None:
    with monitored_cluster() as cluster:
        work(cluster, seconds)
        for board in BOARDS:
            print(draw(board, cluster.prometheus, seconds).relative_to(ROOT))


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 180.0)
