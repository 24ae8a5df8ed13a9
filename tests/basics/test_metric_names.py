"""Names, labels and meanings of the metrics: people build alerts on them, so they follow rules and do not change."""

from __future__ import annotations

import importlib.util
import re
from collections import defaultdict
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
COMPONENTS = ("carico_agent_", "carico_aggregator_", "carico_scheduler_", "carico_extender_", "carico_node_")
BORROWED = ("scheduler_", "rest_client_", "leader_election_", "grpc_server_", "process_", "python_")
EXCEPTIONS = {"carico_undecodable_objects_total", "carico_evictions_total"}  # the latter: of every part that evicts
NAME = re.compile(r"`(carico_[a-z_]*[a-z])(?:\{|`| )")


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    spec = importlib.util.spec_from_file_location("metric_tables", ROOT / "tools/metric_tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def found(tables: ModuleType) -> dict[str, list[Any]]:
    return {process: tables.families(registry) for process, registry in tables.registries().items()}


def test_every_metric_says_what_it_means(found: dict[str, list[Any]]) -> None:
    every = [family for families in found.values() for family in families]
    assert [family.name for family in every if not family.about.strip()] == []
    own = [family for family in every if family.name.startswith("carico_")]
    assert [family.name for family in own if not family.about.endswith(".")] == []


def test_every_metric_says_whose_it_is(found: dict[str, list[Any]]) -> None:
    """By its name, or by a label where several processes have it; a node's own figures by the node."""

    def tells(family: Any) -> bool:
        named = family.name.startswith((*COMPONENTS, *BORROWED)) or family.name in EXCEPTIONS
        return named or "component" in family.labels or "node" in family.labels

    assert [family.name for families in found.values() for family in families if not tells(family)] == []
    for process, families in found.items():
        others = tuple(f"carico_{other}_" for other in found if other != process)
        assert [family.name for family in families if family.name.startswith(others)] == []


def test_one_name_has_one_meaning_and_one_meaning_one_name(found: dict[str, list[Any]]) -> None:
    by_name, by_meaning = defaultdict(set), defaultdict(set)
    for families in found.values():
        names = [family.name for family in families]
        assert len(names) == len(set(names))
        for family in families:
            by_name[family.name].add(family)
            by_meaning[family.about].add(family.name)
    assert {name: meanings for name, meanings in by_name.items() if len(meanings) > 1} == {}
    assert {about: names for about, names in by_meaning.items() if len(names) > 1} == {}


def test_units_and_kinds_end_the_names(found: dict[str, list[Any]]) -> None:
    for family in (family for families in found.values() for family in families):
        base = family.name.removesuffix("_total")
        assert (base != family.name) == (family.kind == "counter"), family
        assert not base.endswith(("_count", "_sum", "_bucket", "_ms", "_milliseconds", "_percent")), family
        assert base.endswith("_ratio") or "Usage" not in family.about, family
        # A metric per resource has one unit for all of them.
        assert "resource" not in family.labels or base.endswith(("_ratio", "_nodes")), family


def test_metrics_that_must_exist(found: dict[str, list[Any]]) -> None:
    names = {process: {family.name for family in families} for process, families in found.items()}
    assert names["agent"] >= {
        "carico_usage_ratio",
        "carico_baseline_ratio",
        "carico_pod_cost_ratio",
        "carico_signal_k",
        "carico_node_capacity_pods",
        "carico_agent_messages_refused_total",
    }
    assert names["aggregator"] >= {"carico_aggregator_messages_refused_total", "carico_aggregator_streams"}
    assert names["scheduler"] >= {
        "carico_node_free_pods",
        "carico_node_reserved_pods",
        "carico_scheduler_messages_refused_total",
        "carico_evictions_total",
        "carico_extender_requests_total",
        "carico_undecodable_objects_total",
        "leader_election_master_status",
        "rest_client_requests_total",
        "rest_client_request_duration_seconds",
        "scheduler_plugin_execution_duration_seconds",
    }
    everywhere = set.intersection(*names.values())
    assert everywhere >= {
        "carico_build_info",
        "carico_event_loop_lag_seconds",
        "carico_http_requests_total",
        "carico_certificate_not_after_timestamp_seconds",
    }


def test_documents_name_only_metrics_that_exist(found: dict[str, list[Any]]) -> None:
    known = {family.name for families in found.values() for family in families}
    documents = [file for file in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")] if file.name != "CHANGELOG.md"]
    named = {(str(file.relative_to(ROOT)), name) for file in documents for name in NAME.findall(file.read_text())}
    assert len(named) > 50
    assert sorted((file, name) for file, name in named if name not in known) == []
