"""Names that plugins of other packages import. Removing or renaming one needs a line in CHANGELOG.md."""

from __future__ import annotations

import ast
import inspect
from types import ModuleType

import pytest

import carico.testing
from carico.scheduler.cache import pod_indexes, trial
from carico.scheduler.framework import cluster_events, contract, needs, registrations
from carico.scheduler.plugins import registry

PUBLIC = {
    contract: """
        MAX_SCORE OK SKIP WAIT Bind Bits Code CostlyFilter Cycle DecisionFigures Explain ExplainRows Filter
        GroupPods HoldRoom MeasuredSupply Nomination Permit PermitWait Plugin PostBind PostFilter
        PostFilterAction PreBind PreEnqueue PreFilter PreFilterExtensions PreScore PricedSupply QueueSort Reason
        Reserve Reuse Score Status Supply Verdict Wait WakeUp error unresolvable unschedulable
    """,
    cluster_events: "Action ClusterEvent EventInterest Hint only_itself",
    needs: "REQUESTS Available Need Needs",
    registrations: "Registrations",
    registry: "GROUP Factory FactoryWithArgs PluginTools",
    pod_indexes: "PodIndex",
    trial: "Trial",
    carico.testing: """
        ManualClock check_estimator check_plugin embedded_api_server make_cost make_estimate make_node make_pod
        make_report
    """,
}


@pytest.mark.parametrize("module", PUBLIC, ids=lambda module: module.__name__)
def test_the_names_for_authors_of_plugins(module: ModuleType) -> None:
    assert sorted(module.__all__) == sorted(PUBLIC[module].split())
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


def test_whatever_the_contract_defines_is_public_or_begins_with_an_underscore() -> None:
    defined = {
        node.name
        for node in ast.parse(inspect.getsource(contract)).body
        if isinstance(node, ast.ClassDef | ast.FunctionDef)
    }
    assert {name for name in defined if not name.startswith("_")} <= set(contract.__all__)
