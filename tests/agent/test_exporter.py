"""What Prometheus sees, judged by Prometheus' own tool."""

from __future__ import annotations

import itertools
import logging

import pytest
from prometheus_client.parser import text_string_to_metric_families

from carico import metrics
from carico.agent.exporter import LinkCollector, NodeCollector, TickMetrics, refusal_counter
from carico.errors import InvalidMessage
from carico.testing import make_estimate
from carico.types import Estimate, Mode
from carico.wire.codec import cluster, report
from carico.wire.codec.cluster import RejectedMessage
from carico.wire.exchange import ExchangeStreamPolicy
from carico.wire.exchange_policy import ExchangePolicy
from carico.wire.rejection_log import RejectionLog
from carico.wire.report_client import ReportStreamPolicy
from carico.wire.v1 import aggregation_pb2
from harness.promtool import complaints

ESTIMATE = make_estimate(
    at=10.0,
    usage=(0.5, 0.25),
    signal_k=1.5,
    baseline_ratio=(0.1, 0.2),
    cost_ratio=(0.05, 0.01),
    baseline_scalar=17.0,
    cost_scalar=0.05,
    pods=8,
    pod_capacity=9.8,
    mode=Mode.CHURN,
)


def page(estimate: Estimate | None) -> str:
    registry = metrics.new_registry("agent")
    tick_metrics = TickMetrics(registry)
    tick_metrics.ticked([0.003, 0.001], 0)
    tick_metrics.ticked([0.4], 3)
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
    assert seen["carico_signal_k", ("node-1",)] == 1.5
    assert seen["carico_baseline_ratio", ("node-1", "memory")] == 0.2
    assert seen["carico_pod_cost_ratio", ("node-1", "cpu")] == 0.05
    assert seen["carico_node_capacity_pods", ("node-1",)] == 9.8
    assert seen["carico_node_workload_pods", ("node-1",)] == 8
    assert seen["carico_node_churn", ("node-1",)] == 1
    assert seen["carico_node_rejecting", ("node-1",)] == 0
    assert seen["carico_agent_source_success", ("node-1", "stat")] == 1
    assert seen["carico_agent_source_success", ("node-1", "pressure")] == 0
    assert seen["carico_event_loop_lag_seconds_count", ("agent",)] == 3
    assert seen["carico_agent_ticks_missed_total", ()] == 3
    assert seen["carico_agent_streams", ("scheduler",)] == 2
    assert seen["carico_agent_messages_refused_total", ("identity",)] == 1


def test_before_the_first_estimate_there_is_no_made_up_figure() -> None:
    assert not [name for name, _ in values(page(None)) if name.startswith(("carico_node", "carico_pod"))]


def test_what_the_other_side_calls_its_reasons_makes_no_new_series() -> None:
    registry = metrics.new_registry("agent")
    refusals = RejectionLog(logging.getLogger("test"), refusal_counter(registry))
    policy = ReportStreamPolicy(itertools.count(1), refusals)
    asking = ExchangeStreamPolicy(ExchangePolicy(10.0, 0.1), lambda _: None, refusals)
    question = aggregation_pb2.LocalSubspace(sequence=1)
    for i in range(100):
        error = InvalidMessage(f"reason-{i}", f"line one\nline two {i}")
        policy.on_message(report.encode_ack(report.Ack(5.0, True, RejectedMessage(1, error.reason, error.detail))), 0.0)
        asking.on_message(cluster.encode_refusal(question, error), 0.0)
    policy.on_message(report.encode_ack(report.Ack(5.0, True, RejectedMessage(1, "order", "late"))), 0.0)
    seen = values(metrics.page(registry)[1].decode())
    refused = "carico_agent_messages_refused_total"
    assert {labels: value for (name, labels), value in seen.items() if name == refused} == {
        ("other",): 200,
        ("order",): 1,
    }


@pytest.mark.needs("promtool")
@pytest.mark.parametrize("estimate", [ESTIMATE, None])
def test_promtool_finds_nothing_to_complain_about(estimate: Estimate | None) -> None:
    assert complaints(page(estimate)) == ""
