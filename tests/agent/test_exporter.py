"""What Prometheus sees, judged by Prometheus' own tool."""

from __future__ import annotations

import subprocess

import pytest
from prometheus_client.parser import text_string_to_metric_families

from carico import metrics
from carico.agent.exporter import Beat, LinkCollector, NodeCollector, refusal_counter
from carico.types import Estimate, Mode

ESTIMATE = Estimate(
    at=10.0,
    usage=(0.5, 0.25),
    capacity=1.5,
    baseline=(0.1, 0.2),
    cost=(0.05, 0.01),
    baseline_scalar=17.0,
    cost_scalar=0.05,
    pods=8,
    pod_capacity=9.8,
    mode=Mode.CHURN,
    rejecting=False,
)


def page(estimate: Estimate | None) -> str:
    registry = metrics.new_registry("agent")
    beat = Beat(registry)
    beat.ticked([0.003, 0.001], 0)
    beat.ticked([0.4], 3)
    sources = {"stat": None, "pressure": "no PSI in this kernel"}
    registry.register(NodeCollector("node-1", ("cpu", "memory"), lambda: estimate, lambda: sources))
    registry.register(LinkCollector(lambda: {"aggregator": 1, "scheduler": 2}))
    refusal_counter(registry)("identity")
    return metrics.page(registry)[1].decode()


def values(text: str) -> dict[tuple[str, tuple[str, ...]], float]:
    families = text_string_to_metric_families(text)
    return {(s.name, tuple(s.labels.values())): s.value for family in families for s in family.samples}


def test_every_figure_of_the_estimate_is_there() -> None:
    seen = values(page(ESTIMATE))
    assert seen["carico_usage_ratio", ("node-1", "cpu")] == 0.5
    assert seen["carico_usage_ratio", ("node-1", "memory")] == 0.25
    assert seen["carico_capacity", ("node-1",)] == 1.5
    assert seen["carico_baseline", ("node-1", "memory")] == 0.2
    assert seen["carico_pod_cost", ("node-1", "cpu")] == 0.05
    assert seen["carico_pod_capacity", ("node-1",)] == 9.8
    assert seen["carico_pods", ("node-1",)] == 8
    assert seen["carico_churn", ("node-1",)] == 1
    assert seen["carico_rejecting", ("node-1",)] == 0
    assert seen["carico_source_success", ("node-1", "stat")] == 1
    assert seen["carico_source_success", ("node-1", "pressure")] == 0
    assert seen["carico_ticks_missed_total", ()] == 3
    assert seen["carico_connections", ("scheduler",)] == 2
    assert seen["carico_refused_total", ("identity",)] == 1


def test_before_the_first_estimate_there_is_no_made_up_figure() -> None:
    assert not [name for name, _ in values(page(None)) if name.startswith("carico_pod")]


@pytest.mark.needs("promtool")
@pytest.mark.parametrize("estimate", [ESTIMATE, None])
def test_promtool_finds_nothing_to_complain_about(estimate: Estimate | None) -> None:
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=page(estimate), capture_output=True, text=True, timeout=30
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
