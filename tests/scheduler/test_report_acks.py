"""What the leader sends agents about their own node: its allocatable, and the classes of the pods there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prometheus_client import CollectorRegistry

from carico.scheduler.assembly import assemble
from carico.scheduler.metrics import SchedulerMetrics
from carico.scheduler.reports import ReportListener
from carico.settings import SchedulerSettings
from carico.testing import ManualClock, make_node, make_pod, make_report
from carico.types import ClassKey, NodeReport, NodeSize

GIB = 2.0**30


class Stage:
    def __init__(self, *, leads: bool = True) -> None:
        clock = ManualClock()
        self.cluster = assemble(SchedulerSettings(), clock, None).cluster
        self.listener = ReportListener(self.cluster, SchedulerMetrics(CollectorRegistry()), clock, 5.0, lambda: leads)
        self.listener.send, self.cluster.on_node = self._send, self.listener.node_changed
        self.told: list[tuple[NodeSize | None, dict[str, str]]] = []
        self.connected = True

    def _send(
        self, node: str, *, allocatable: NodeSize | None = None, classes: Mapping[str, ClassKey] | None = None
    ) -> bool:
        assert node == "a"
        if self.connected:
            self.told.append((allocatable, {uid: key.family for uid, key in (classes or {}).items()}))
        return self.connected

    def report(self, *counted: str, **changes: Any) -> list[tuple[NodeSize | None, dict[str, str]]]:
        """What is told to the agent in return."""
        self.listener.on_report(report(*counted, **changes))
        told, self.told = self.told, []
        return told


def report(*counted: str, **changes: Any) -> NodeReport:
    return make_report("a", 5.0, counted, **({"room": (4.0, 8e9), "full": (8.0, 16e9)} | changes))


def test_a_node_is_sent_its_allocatable_and_the_classes_of_its_pods_once() -> None:
    stage = Stage()
    stage.cluster.node_changed(None, make_node("a", cpu="8"))
    stage.cluster.pod_changed(None, make_pod("p", labels={"app": "web"}, node="a"))
    assert stage.report("uid-p", "uid-of-a-daemon") == [(NodeSize(8.0, 16 * GIB), {"uid-p": "default/web"})]
    assert stage.report("uid-p") == []
    stage.cluster.pod_changed(None, make_pod("q", labels={"app": "db"}, node="a"))
    assert stage.report("uid-p", "uid-q")[0][1] == {"uid-q": "default/db"}


def test_they_are_sent_again_when_the_node_object_changes_and_on_a_new_stream() -> None:
    stage = Stage()
    old, new = make_node("a", cpu="8"), make_node("a", cpu="6")
    stage.cluster.node_changed(None, old)
    stage.report()
    stage.cluster.node_changed(old, new)
    assert stage.told == [(NodeSize(6.0, 16 * GIB), {})]
    stage.told.clear()
    stage.listener.on_disconnect("a")
    assert stage.report() == [(NodeSize(6.0, 16 * GIB), {})]


def test_a_node_object_that_comes_after_the_first_report_is_sent() -> None:
    stage = Stage()
    assert stage.report() == []
    stage.cluster.node_changed(None, make_node("a", cpu="8"))
    assert stage.told == [(NodeSize(8.0, 16 * GIB), {})]


def test_what_could_not_be_sent_is_sent_later() -> None:
    stage = Stage()
    stage.cluster.node_changed(None, make_node("a", cpu="8"))
    stage.connected = False
    assert stage.report() == []
    stage.connected = True
    assert stage.report() == [(NodeSize(8.0, 16 * GIB), {})]


def test_old_agents_and_those_of_another_leader_are_sent_nothing() -> None:
    for stage, changes in ((Stage(), {"room": (), "full": ()}), (Stage(leads=False), {})):
        stage.cluster.node_changed(None, make_node("a", cpu="8"))
        assert stage.report(**changes) == []
