"""The dashboards: every query of every panel, evaluated by a real Prometheus that scrapes an embedded cluster."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.monitoring import REAL_NODE, MonitoredCluster, monitored_cluster, until

HOME = Path(__file__).parents[2] / "scheduler/prometheus"
BOARDS = sorted((HOME / "dashboards").glob("*.json"))


def board(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def queries(path: Path) -> list[tuple[str, str]]:
    """Title and query, as Grafana would send it."""
    return [
        (panel["title"], target["expr"].replace("$__rate_interval", "1m").replace("$node", REAL_NODE))
        for panel in board(path)["panels"]
        for target in panel.get("targets", ())
    ]


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
def test_a_dashboard_loads_without_edits(path: Path) -> None:
    """What Grafana's sidecar and kube-prometheus expect of a file."""
    one = board(path)
    assert one["uid"] == path.stem
    assert "id" not in one, "it is Grafana's"
    assert "__inputs" not in one, "they are asked for at an import by hand only"
    [source] = [v for v in one["templating"]["list"] if v["type"] == "datasource"]
    assert (source["name"], source["query"]) == ("datasource", "prometheus")
    numbers = [panel["id"] for panel in one["panels"]]
    assert len(numbers) == len(set(numbers))
    taken: set[tuple[int, int]] = set()
    for panel in one["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells
        for target in panel.get("targets", ()):
            assert target["datasource"]["uid"] == "${datasource}"


@pytest.fixture(scope="module")
def cluster() -> Iterator[MonitoredCluster]:
    with monitored_cluster() as made:
        made.refuse()
        made.work(4, seconds=15)
        yield made


@pytest.mark.slow
@pytest.mark.needs("promtool")
def test_every_panel_has_data(cluster: MonitoredCluster) -> None:
    prometheus = cluster.prometheus
    prometheus.until('scheduler_schedule_attempts_total{result="scheduled"} > 0')
    prometheus.until("carico_scheduler_handover_duration_seconds_count > 0")
    prometheus.until("carico_aggregator_classes > 0")
    missing: list[tuple[str, str, str]] = []

    def none_is_empty() -> bool:
        """Pods come all the time: a rate needs a change after the first sample of its series."""
        nonlocal missing
        cluster.work(2, seconds=1.0)
        missing = [
            (path.stem, title, expr) for path in BOARDS for title, expr in queries(path) if not _has_data(cluster, expr)
        ]
        return not missing

    try:
        until("every panel has data", none_is_empty, 90.0)
    except AssertionError:
        pytest.fail("\n".join(map(str, missing)))


def _has_data(cluster: MonitoredCluster, expr: str) -> bool:
    """In the last minutes: a quantile of a rate is NaN while nothing happens."""
    now = time.time()
    series = cluster.prometheus.range(expr, now - 120, now, 5)
    return any(value != "NaN" for one in series for _, value in one["values"])


@pytest.mark.slow
@pytest.mark.needs("promtool")
def test_the_variable_node_lists_the_nodes(cluster: MonitoredCluster) -> None:
    [variable] = [v for v in board(HOME / "dashboards/carico-node.json")["templating"]["list"] if v["type"] == "query"]
    assert variable["query"]["query"] == "label_values(carico_node_capacity_pods, node)"
    assert {sample["metric"]["node"] for sample in cluster.prometheus.until("carico_node_capacity_pods")} == {REAL_NODE}
