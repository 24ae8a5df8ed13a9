"""Writes docs/metrics.md and tests/fixtures/metrics/ from the metric registries of the three processes."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry

from carico import metrics
from carico.agent.process import AgentProcess
from carico.aggregator.process import Aggregator
from carico.clock import SystemClock
from carico.kube.client import Client
from carico.kube.credentials import fixed
from carico.scheduler.process import Scheduler
from carico.settings import AgentSettings, AggregatorSettings, SchedulerSettings
from carico.testing import make_estimate, make_node, make_report

HEAD = """# Metrics

<!-- Made by `make docs`; change the help texts in carico/, not this file. -->

Each process has them at `/metrics` of its `--listen`, as Prometheus' text or OpenMetrics by `Accept`, and with gzip by
`Accept-Encoding`. These names, labels and meanings stay.

A name begins with its component: `carico_agent_`, `carico_aggregator_`, `carico_scheduler_` and `carico_extender_` are
about a process, `carico_node_` about a node. A metric that several processes have has the label `component`.
`carico_usage_ratio`, `carico_baseline_ratio`, `carico_pod_cost_ratio` and `carico_signal_k` are the signal of a node,
`carico_undecodable_objects_total` is the scheduler's, and `carico_evictions_total` counts the evictions of every part
that evicts pods. Other beginnings are those of the projects whose names are used:
kube-scheduler (`scheduler_`), client-go (`rest_client_`, `leader_election_`), go-grpc-prometheus (`grpc_server_`),
prometheus_client (`process_`, `python_`).

**Filter by `job`.** `sum(scheduler_pending_pods)` counts the pods of kube-scheduler and of Carico together, where both
are scraped: use `scheduler_pending_pods{job="carico-scheduler"}`, and add the same to dashboards that were made for
kube-scheduler. The same goes for `rest_client_*`, `leader_election_*`, `grpc_server_*`, `process_*` and `python_*`.

**The label `node`** is set by the process: of the agent it is the node's name in Kubernetes (`--node-name`), of the
scheduler each node's. If the scrape configuration adds a label `node` itself, as many do for pods, Prometheus renames
this one to `exported_node`. Set `honor_labels: true` for these jobs (`honorLabels: true` in a PodMonitor or
ServiceMonitor) to keep it.

**Series per node** of the scheduler are left out where there are more nodes than `--per-node-metrics`.

**Sampled.** `scheduler_plugin_execution_duration_seconds` is measured in a tenth of the cycles, as in kube-scheduler.
A filter or score is timed on all nodes in question at once, where kube-scheduler times each node; verdicts that are
reused from an earlier pod of the same template take no time. `carico_event_loop_lag_seconds` is measured by a timer:
in the agent by that of the samples (10 Hz by default), in the aggregator by that of the model (`--merge-every`), in the
scheduler four times a second.

**Certificates** have their expiry as Unix time:
`carico_certificate_not_after_timestamp_seconds - time() < 7 * 86400` finds those that expire within a week. The label
`certificate` is `tls_cert` for the file of that setting, and `kubeconfig` for the client certificate that the API
server sees.
"""
ABOUT = {
    "agent": "`carico agent`, one per node.",
    "aggregator": "`carico aggregator`.",
    "scheduler": "`carico scheduler`.",
}
KERNEL = Path(__file__).parents[1] / "tests/fixtures/cgroup-v2-host/after"  # the same on every machine
FOREIGN = ("process_", "python_")  # of prometheus_client, and different on every machine
UNITS = {
    "_timestamp_seconds": "Unix time, s",
    "_start_time_seconds": "Unix time, s",
    "_seconds": "s",
    "_bytes": "bytes",
    "_cores": "cores",
    "_ratio": "ratio",
    "_pods": "pods",
    "_nodes": "nodes",
}


class Family(NamedTuple):
    """A metric with all its series."""

    name: str  # as it is queried
    kind: str  # Prometheus' type
    labels: tuple[str, ...]
    about: str


def registries(*, working: bool = False) -> dict[str, CollectorRegistry]:
    """The registries of processes that are constructed but not started; `working`: with one node and its estimate."""
    logging.disable(logging.WARNING)  # warnings about plaintext: nothing is sent here
    clock = SystemClock()
    agent = AgentProcess(
        AgentSettings(
            plaintext=True, runtime="none", aggregator="a:1", schedulers=("s:1",), node_name="node-1",
            proc_root=KERNEL / "proc", cgroup_root=KERNEL / "sys/fs/cgroup",
        ),
        clock,
    )  # fmt: skip
    aggregator = Aggregator(AggregatorSettings(plaintext=True), clock)
    client = Client(fixed("http://127.0.0.1:1"), clock=clock)
    scheduler = Scheduler(SchedulerSettings(plaintext=True), clock, client)
    logging.disable(logging.NOTSET)
    if working:
        agent._loop.estimate = make_estimate()
        scheduler.parts.cluster.node_changed(None, make_node("node-1"))
        scheduler.parts.cluster.apply_report(make_report("node-1", 5.0, room=(4.0, 2.0**33)))
    return {"agent": agent.registry, "aggregator": aggregator.registry, "scheduler": scheduler.parts.registry}


def families(registry: CollectorRegistry) -> list[Family]:
    return sorted(family for collector in registry._collector_to_names for family in _families(collector))


def _families(collector: Any) -> Iterator[Family]:
    for metric in collector.collect():
        labels: Any = getattr(collector, "_labelnames", None) or getattr(metric, "_labelnames", ())
        if not labels and metric.samples:
            labels = tuple(metric.samples[0].labels)
        name = f"{metric.name}_total" if metric.type == "counter" else metric.name
        yield Family(name, metric.type, tuple(label for label in labels if label != "le"), metric.documentation)


def write_pages(folder: Path) -> None:
    """The /metrics page of each process, compared by tests/basics/test_metrics_page.py."""
    for process, registry in registries(working=True).items():
        (folder / f"{process}.txt").write_text("\n".join(series(registry)) + "\n")


def series(registry: CollectorRegistry) -> Iterator[str]:
    """The /metrics page without values and without what depends on the machine: every series with its labels."""
    for line in metrics.page(registry)[1].decode().splitlines():
        if not line.split()[2 if line.startswith("#") else 0].startswith(FOREIGN):
            text = line if line.startswith("#") else line.rpartition(" ")[0]
            yield re.sub(r'(python|version)="[^"]*"', r'\1="…"', text)


def page() -> Iterator[str]:
    found = {process: families(registry) for process, registry in registries().items()}
    shared = set.intersection(*map(set, found.values()))
    yield from (HEAD, "## All processes", "", *_table(sorted(shared)))
    for process, own in found.items():
        rest = [family for family in own if family not in shared]
        yield from ("", f"## {process.title()}", "", ABOUT[process], "", *_table(rest))


def _table(rows: list[Family]) -> Iterator[str]:
    yield from ("| metric | type | labels | unit | |", "| --- | --- | --- | --- | --- |")
    for family in rows:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        about = family.about.replace("<", "&lt;").replace("|", "\\|")
        yield f"| `{family.name}` | {family.kind} | {labels} | {unit(family.name)} | {about} |"


def unit(name: str) -> str:
    name = name.removesuffix("_total")
    found = next((unit for suffix, unit in UNITS.items() if name.endswith(suffix)), "")
    return found or ("pods" if "_pods_" in name else "")


if __name__ == "__main__":
    write_pages(Path(__file__).parents[1] / "tests/fixtures/metrics")
