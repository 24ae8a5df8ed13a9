"""Agents of v0.1.0: what they sent then is understood, and goes by Pod-Capacity alone.

The two reports in tests/fixtures/reports-v0.1.0 were encoded by that version: the first of a stream, and one after it
that leaves out the sets of pods.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from carico.scheduler.assembly import Components, assemble
from carico.scheduler.cache.template import PodInfo
from carico.scheduler.cycle.scheduling_cycle import decide
from carico.scheduler.http.explain import explain
from carico.settings import SchedulerSettings
from carico.testing import ManualClock, make_cost, make_node, make_pod, make_report
from carico.types import NodeReport
from carico.wire.identity import Caller
from carico.wire.report_server import ReportService

RECORDED = Path(__file__).parents[1] / "fixtures" / "reports-v0.1.0"


class Listener:
    def __init__(self, parts: Components) -> None:
        self._parts = parts

    def on_report(self, report: NodeReport) -> None:
        self._parts.cluster.apply_report(report)

    def on_disconnect(self, node: str) -> None:
        self._parts.ledger.mark_disconnected(node)

    def heartbeat(self) -> float:
        return 5.0

    def leads(self) -> bool:
        return True


def received(*names: str) -> tuple[Components, ManualClock]:
    """A scheduler that got these reports over the wire, beside a node of a new agent that is full."""
    clock = ManualClock(now=100.0)
    parts = assemble(SchedulerSettings(validate=True), clock, None)
    for node in ("node-7", "new"):
        parts.cluster.node_changed(None, make_node(node))
    refused: list[str] = []
    service = ReportService(Listener(parts), clock, refused.append)
    session = service.method._sessions(Caller(names=None, is_replica=False))
    for name in names:
        assert session.answer((RECORDED / f"{name}.bin").read_bytes()) is None
    assert refused == []
    parts.cluster.apply_report(make_report("new", 0.0, room=(0.0, 0.0), full=(8.0, 16e9)))
    costs = [make_cost("default/web", 50.0, 1e12)]  # on a node with room it would fit nowhere
    parts.cluster.aggregated({cost.key: cost for cost in costs}, ("cpu", "memory"))
    return parts, clock


def place(parts: Components, name: str) -> str:
    pod = PodInfo(make_pod(name, labels={"app": "web"}))
    return decide(parts.profiles["carico"], parts.cluster, pod, np.random.default_rng(0)).node


def test_a_node_that_reports_pod_capacity_3_takes_three_pods_whatever_their_class() -> None:
    parts, _ = received("first", "second")
    assert [place(parts, f"p{i}") for i in range(4)] == ["node-7"] * 3 + [""]


def test_pods_that_it_counted_are_handed_over() -> None:
    parts, _ = received("first")
    parts.cluster.pod_changed(None, make_pod("a", uid="5f2c1a54-0001", node="node-7", phase="Running"))
    account = parts.ledger.account("node-7")
    assert account is not None
    assert (parts.ledger.reserved[account.row], parts.ledger.free[account.row]) == (0.0, 3.25)


def test_explain_says_no_room_of_it() -> None:
    parts, clock = received("first")
    found = {verdict.node: verdict for verdict in explain(parts, make_pod("p"), clock.monotonic()).nodes}
    assert (found["node-7"].room, found["node-7"].left, found["node-7"].free) == ("", {}, 3.25)
