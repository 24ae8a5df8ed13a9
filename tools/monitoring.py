"""Writes scheduler/prometheus/: the dashboards, and prometheusrule.yaml from rules.yaml.

A dashboard is a list of rows of panels; a panel is a title, a unit and its queries. Grafana's JSON is made of that, so
that what a person checks (titles, units, PromQL) is in this file and nothing else. Every query is evaluated by
tests/prometheus/test_dashboards.py against a real Prometheus.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

HOME = Path(__file__).parents[1] / "scheduler/prometheus"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH, HEIGHT = 24, 8  # of Grafana's grid

SCHEDULER = 'job="carico-scheduler"'
THIS = 'node="$node"'


class Query(NamedTuple):
    expr: str
    legend: str = ""


class Panel(NamedTuple):
    title: str
    unit: str  # Grafana's name of it
    queries: tuple[Query, ...]
    about: str = ""
    kind: str = "timeseries"  # or stat


class Dashboard(NamedTuple):
    uid: str
    title: str
    rows: tuple[tuple[str, tuple[Panel, ...]], ...]
    variables: tuple[tuple[str, str], ...] = ()  # name and query


def panel(title: str, unit: str, *queries: tuple[str, str], about: str = "", kind: str = "timeseries") -> Panel:
    return Panel(title, unit, tuple(Query(*query) for query in queries), about, kind)


def stat(title: str, unit: str, expr: str, about: str = "") -> Panel:
    return panel(title, unit, (expr, ""), about=about, kind="stat")


def braces(selector: str) -> str:
    return f"{{{selector}}}" if selector else ""


def or_zero(expr: str) -> str:
    """0 instead of nothing while there is no series yet."""
    return f"{expr} or on () vector(0)"


def of_leader(name: str, selector: str = "") -> str:
    """The figures of the replica that decides: every replica has them."""
    return f"{name}{braces(selector)} and on (namespace, pod, instance) carico_scheduler_leader == 1"


def total(name: str, selector: str = "", *, by: str = "") -> str:
    return f"sum{f' by ({by}) ' if by else ''}({of_leader(name, selector)})"


def top(expr: str) -> str:
    return f"topk(10, {expr})"


def rate(name: str, by: str, selector: str = "") -> str:
    return or_zero(f"sum by ({by}) (rate({name}{braces(selector)}[$__rate_interval]))")


def quantile(share: float, name: str, selector: str, by: str = "le") -> str:
    return f"histogram_quantile({share}, sum by ({by}) (rate({name}_bucket{braces(selector)}[$__rate_interval])))"


FREE = f"sum(clamp_min({of_leader('carico_node_free_pods')}, 0))"

OVERVIEW = Dashboard(
    "carico-overview",
    "Carico / Cluster",
    (
        (
            "Now",
            (
                stat("Nodes", "short", total("scheduler_cache_size", f'{SCHEDULER}, type="nodes"')),
                stat("Nodes without a recent report", "short", total("carico_scheduler_stale_nodes")),
                stat(
                    "Free for more pods",
                    "short",
                    FREE,
                    "Pod-Capacity minus reserved, of all nodes, in pods of the usual kind.",
                ),
                stat("Pods that wait for capacity", "short", total("carico_scheduler_pods_waiting_for_capacity")),
                stat("Replicas that lead", "short", "sum(carico_scheduler_leader)", "1, or nothing is scheduled."),
                stat("Agents that report", "short", or_zero('count(carico_agent_streams{to="scheduler"} > 0)')),
            ),
        ),
        (
            "Capacity",
            (
                panel(
                    "Pod-Capacity of the cluster",
                    "short",
                    (FREE, "free"),
                    (total("carico_node_reserved_pods"), "reserved"),
                    ("sum(carico_node_workload_pods)", "running"),
                    about="Pods. Free: so many more fit. Reserved: placed, but not counted by the node's report yet.",
                ),
                panel(
                    "CPU that is left",
                    "short",
                    (total("carico_node_left_cpu_cores"), "cores of demand"),
                    about="Room that is not reserved. A thread that always wants to run is one core of demand.",
                ),
                panel("Memory that is left", "bytes", (total("carico_node_left_memory_bytes"), "bytes")),
                panel(
                    "Usage",
                    "percentunit",
                    ("avg by (resource) (carico_usage_ratio)", "{{resource}}, mean"),
                    ("max by (resource) (carico_usage_ratio)", "{{resource}}, fullest node"),
                ),
            ),
        ),
        (
            "Pods",
            (
                panel(
                    "Pods without a node",
                    "short",
                    (total("scheduler_pending_pods", SCHEDULER, by="queue"), "{{queue}}"),
                    (total("carico_scheduler_pods_waiting_for_capacity"), "wait for capacity"),
                ),
                panel(
                    "Placements",
                    "pods/s",
                    (rate("scheduler_schedule_attempts_total", "result", SCHEDULER), "{{result}}"),
                ),
                panel(
                    "Free, by node",
                    "short",
                    (top(of_leader("carico_node_free_pods")), "{{node}}"),
                    about="The ten nodes with the most room.",
                ),
                panel(
                    "Messages that were refused",
                    "cps",
                    (rate("carico_agent_messages_refused_total", "reason"), "agent, {{reason}}"),
                    (rate("carico_aggregator_messages_refused_total", "reason"), "aggregator, {{reason}}"),
                    (rate("carico_scheduler_messages_refused_total", "reason"), "scheduler, {{reason}}"),
                ),
            ),
        ),
    ),
)

NODE = Dashboard(
    "carico-node",
    "Carico / Node",
    (
        (
            "Signal of $node",
            (
                panel(
                    "Pod-Capacity",
                    "short",
                    ('carico_node_capacity_pods{node="$node"}', "capacity by the last report"),
                    (of_leader("carico_node_free_pods", THIS), "free: minus reserved"),
                    (of_leader("carico_node_reserved_pods", THIS), "reserved"),
                    ('carico_node_workload_pods{node="$node"}', "running"),
                    about="How many more pods of the usual kind fit.",
                ),
                panel(
                    "Usage and baseline",
                    "percentunit",
                    ('carico_usage_ratio{node="$node"}', "{{resource}}"),
                    ('carico_baseline_ratio{node="$node"}', "{{resource}}, without workload pods"),
                    about="0 is all free, 1 is full. For cpu the mean of utilisation and pressure.",
                ),
                panel("Cost of one more pod", "percentunit", ('carico_pod_cost_ratio{node="$node"}', "{{resource}}")),
                panel(
                    "CPU that is left",
                    "short",
                    (of_leader("carico_node_left_cpu_cores", THIS), "cores of demand"),
                ),
                panel(
                    "Memory that is left",
                    "bytes",
                    (of_leader("carico_node_left_memory_bytes", THIS), "left"),
                    ('carico_node_full_memory_bytes{node="$node"}', "pods may fill, by {{source}}"),
                ),
                panel(
                    "Signal k",
                    "short",
                    ('carico_signal_k{node="$node"}', "k"),
                    about="Units of the cluster's recent average workload that fit. For comparison; no placement "
                    "depends on it with the default estimator.",
                ),
            ),
        ),
        (
            "Agent",
            (
                panel(
                    "Churn",
                    "bool",
                    ('carico_node_churn{node="$node"}', "containers start or end"),
                    about="While containers start and end, Pod-Capacity is computed from baseline and cost.",
                ),
                panel("Sources that can be read", "bool", ('carico_agent_source_success{node="$node"}', "{{source}}")),
                panel(
                    "Streams",
                    "short",
                    (
                        "carico_agent_streams * on (namespace, pod, instance) group_left (node) "
                        'max by (namespace, pod, instance, node) (carico_node_capacity_pods{node="$node"} * 0 + 1)',
                        "to {{to}}",
                    ),
                ),
            ),
        ),
    ),
    (("node", "label_values(carico_node_capacity_pods, node)"),),
)

SCHEDULING = Dashboard(
    "carico-scheduler",
    "Carico / Scheduler",
    (
        (
            "Placing pods",
            (
                panel(
                    "Attempts",
                    "pods/s",
                    (
                        rate("scheduler_schedule_attempts_total", "result, profile", SCHEDULER),
                        "{{profile}}: {{result}}",
                    ),
                ),
                panel(
                    "Attempt, with its binding",
                    "s",
                    (quantile(0.5, "scheduler_scheduling_attempt_duration_seconds", SCHEDULER), "p50"),
                    (quantile(0.99, "scheduler_scheduling_attempt_duration_seconds", SCHEDULER), "p99"),
                ),
                panel(
                    "Scheduling cycle",
                    "s",
                    (quantile(0.5, "scheduler_scheduling_algorithm_duration_seconds", SCHEDULER), "p50"),
                    (quantile(0.99, "scheduler_scheduling_algorithm_duration_seconds", SCHEDULER), "p99"),
                ),
                panel(
                    "From the queue to the binding",
                    "s",
                    (quantile(0.5, "scheduler_pod_scheduling_sli_duration_seconds", SCHEDULER), "p50"),
                    (quantile(0.99, "scheduler_pod_scheduling_sli_duration_seconds", SCHEDULER), "p99"),
                ),
                panel(
                    "Extension points, p99",
                    "s",
                    (
                        quantile(
                            0.99,
                            "scheduler_framework_extension_point_duration_seconds",
                            SCHEDULER,
                            "le, extension_point",
                        ),
                        "{{extension_point}}",
                    ),
                ),
                panel(
                    "From the decision until the node counts the pod",
                    "s",
                    (quantile(0.5, "carico_scheduler_handover_duration_seconds", ""), "p50"),
                    (quantile(0.99, "carico_scheduler_handover_duration_seconds", ""), "p99"),
                    about="For so long a pod is reserved.",
                ),
            ),
        ),
        (
            "Waiting",
            (
                panel(
                    "Queues",
                    "short",
                    (total("scheduler_pending_pods", SCHEDULER, by="queue"), "{{queue}}"),
                ),
                panel(
                    "Waiting pods by the plugin that rejected them",
                    "short",
                    (or_zero(total("scheduler_unschedulable_pods", SCHEDULER, by="plugin")), "{{plugin}}"),
                ),
                panel(
                    "Pods with a node that are not bound yet",
                    "short",
                    (or_zero(total("carico_scheduler_pods_in_flight", by="waits_for")), "{{waits_for}}"),
                ),
            ),
        ),
        (
            "What went wrong",
            (
                panel(
                    "Bindings that did not take place",
                    "pods/s",
                    (rate("carico_scheduler_binding_failures_total", "outcome"), "{{outcome}}"),
                ),
                panel(
                    "Pods that a kubelet rejected",
                    "pods/s",
                    (rate("carico_scheduler_rejected_pods_total", "scheduler, reason"), "{{scheduler}}: {{reason}}"),
                ),
                panel(
                    "Reports",
                    "cps",
                    (rate("carico_scheduler_reports_total", "result"), "{{result}}"),
                ),
                panel(
                    "Preemption",
                    "pods/s",
                    (rate("scheduler_preemption_attempts_total", "job", SCHEDULER), "attempts"),
                    (rate("carico_evictions_total", "reason"), "evicted: {{reason}}"),
                ),
                panel(
                    "Exceptions of plugins",
                    "cps",
                    (rate("carico_scheduler_plugin_errors_total", "plugin"), "{{plugin}}"),
                ),
                panel(
                    "Events that were lost",
                    "cps",
                    (rate("carico_scheduler_events_lost_total", "pod"), "{{pod}}"),
                ),
            ),
        ),
        (
            "API server",
            (
                panel(
                    "Requests",
                    "reqps",
                    (rate("rest_client_requests_total", "method, code", SCHEDULER), "{{method}} {{code}}"),
                ),
                panel(
                    "Requests, p99",
                    "s",
                    (quantile(0.99, "rest_client_request_duration_seconds", SCHEDULER, "le, verb"), "{{verb}}"),
                ),
                panel(
                    "Writes that have not ended",
                    "short",
                    (total("carico_scheduler_writes_waiting", by="kind"), "{{kind}}"),
                ),
                panel(
                    "Since the last event or bookmark of a watch",
                    "s",
                    ("max by (kind) (time() - carico_scheduler_watch_progress_timestamp_seconds)", "{{kind}}"),
                    about="The API server sends a bookmark every minute.",
                ),
            ),
        ),
        (
            "Processes",
            (
                panel("Leader", "bool", ("carico_scheduler_leader", "{{pod}}")),
                panel(
                    "Lag of the event loop, p99",
                    "s",
                    (quantile(0.99, "carico_event_loop_lag_seconds", "", "le, component"), "{{component}}"),
                ),
                panel(
                    "CPU",
                    "short",
                    (rate("process_cpu_seconds_total", "job", 'job=~"carico-.*"'), "{{job}}"),
                    about="Cores, of all processes of a job.",
                ),
                panel(
                    "Resident memory",
                    "bytes",
                    ('max by (job) (process_resident_memory_bytes{job=~"carico-.*"})', "{{job}}, largest process"),
                ),
            ),
        ),
    ),
)

CLASSES = Dashboard(
    "carico-classes",
    "Carico / Classes",
    (
        (
            "Classes of pods",
            (
                panel(
                    "Known and measured",
                    "short",
                    (total("carico_scheduler_classes"), "known to the scheduler"),
                    (total("carico_scheduler_measured_classes"), "measured"),
                    ("max(carico_aggregator_classes)", "known to the aggregator"),
                ),
                panel("Pods", "short", (top(of_leader("carico_scheduler_class_pods")), "{{family}}")),
                panel(
                    "CPU of one pod",
                    "short",
                    (top(of_leader("carico_scheduler_class_cost_cpu_cores")), "{{family}}"),
                    about="Cores of demand that are reserved for one pod: measured, or the first guess.",
                ),
                panel(
                    "Memory of one pod",
                    "bytes",
                    (top(of_leader("carico_scheduler_class_cost_memory_bytes")), "{{family}}"),
                ),
                panel(
                    "CPU of all pods of a class",
                    "short",
                    (
                        top("carico_scheduler_class_cost_cpu_cores * " + of_leader("carico_scheduler_class_pods")),
                        "{{family}}",
                    ),
                ),
                panel(
                    "Memory of all pods of a class",
                    "bytes",
                    (
                        top("carico_scheduler_class_cost_memory_bytes * " + of_leader("carico_scheduler_class_pods")),
                        "{{family}}",
                    ),
                ),
            ),
        ),
        (
            "Aggregator",
            (
                panel(
                    "Nodes in the model",
                    "short",
                    ("max(carico_aggregator_model_nodes)", "live nodes"),
                    ("sum(carico_aggregator_streams)", "streams of nodes"),
                    ("max(carico_aggregator_peers)", "other replicas"),
                ),
                panel(
                    "Class costs",
                    "short",
                    ("sum(carico_aggregator_class_rows)", "reported by nodes"),
                    ("sum(carico_aggregator_class_listeners)", "subscribers"),
                ),
                panel("Messages of nodes", "cps", (rate("carico_aggregator_messages_total", "pod"), "{{pod}}")),
            ),
        ),
    ),
)

DASHBOARDS = (OVERVIEW, NODE, SCHEDULING, CLASSES)


def grafana(board: Dashboard) -> dict[str, Any]:
    """The dashboard in the form that Grafana 9 and newer load from a file."""
    return {
        "uid": board.uid,
        "title": board.title,
        "tags": ["carico"],
        "schemaVersion": 38,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "",
        "templating": {"list": [*_variables(board)]},
        "annotations": {"list": []},
        "links": [{"type": "dashboards", "tags": ["carico"], "title": "Carico", "asDropdown": True, "keepTime": True}],
        "panels": [*_panels(board)],
    }


def _variables(board: Dashboard) -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "hide": 0}
    for name, query in board.variables:
        yield {
            "name": name,
            "label": name.title(),
            "type": "query",
            "datasource": SOURCE,
            "query": {"query": query, "refId": name},
            "refresh": 2,
            "sort": 1,
        }


def _panels(board: Dashboard) -> Iterator[dict[str, Any]]:
    number, y = 0, 0
    for title, panels in board.rows:
        number += 1
        yield {"id": number, "type": "row", "title": title, "gridPos": _place(0, y, WIDTH, 1), "collapsed": False}
        y += 1
        across = len(panels) if panels[0].kind == "stat" else 3 if len(panels) % 3 == 0 else 2
        height = HEIGHT // 2 if panels[0].kind == "stat" else HEIGHT
        for place, each in enumerate(panels):
            number += 1
            x, line = WIDTH // across * (place % across), place // across
            yield _panel(each, number, _place(x, y + line * height, WIDTH // across, height))
        y += -(-len(panels) // across) * height


def _place(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


def _panel(one: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    made = {
        "id": number,
        "type": one.kind,
        "title": one.title,
        "description": one.about,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": one.unit, **({} if one.kind == "stat" else {"min": 0})}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": SOURCE,
                "expr": query.expr,
                "legendFormat": query.legend or "__auto",
                "instant": one.kind == "stat",
                "range": one.kind != "stat",
            }
            for number, query in enumerate(one.queries)
        ],
    }
    if one.kind == "stat":
        made["options"] = {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "none", "graphMode": "none"}
    else:
        made["options"] = {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}}
    return made


def rule_object() -> str:
    """The PrometheusRule with the groups of rules.yaml."""
    groups = yaml.safe_load((HOME / "rules.yaml").read_text())["groups"]
    made = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {
            "name": "carico",
            "namespace": "carico-system",
            "labels": {"app.kubernetes.io/part-of": "carico", "role": "alert-rules", "prometheus": "k8s"},
        },
        "spec": {"groups": groups},
    }
    head = "# Made from rules.yaml by `make monitoring`; change that file.\n"
    return head + yaml.safe_dump(made, sort_keys=False, width=10_000, allow_unicode=True)


def files() -> Iterator[tuple[Path, str]]:
    for board in DASHBOARDS:
        yield HOME / "dashboards" / f"{board.uid}.json", json.dumps(grafana(board), indent=1, ensure_ascii=False) + "\n"
    yield HOME / "prometheusrule.yaml", rule_object()


if __name__ == "__main__":
    for path, text in files():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
