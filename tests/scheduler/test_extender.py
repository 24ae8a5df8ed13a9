"""The extender's three verbs, its reservations and its wake-ups, by the ledger alone."""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus
from typing import Any

import msgspec
import pytest

from carico.errors import ApiError
from carico.http.message import Request
from carico.kube.objects import Pod
from carico.kube.writer import ApiWriter
from carico.scheduler.assembly import Components, assemble
from carico.scheduler.extender.extender import Extender
from carico.scheduler.extender.reservations import GUESSED
from carico.scheduler.extender.wakeup import ANNOTATION
from carico.settings import SchedulerSettings
from carico.testing import ManualClock, make_node, make_pod, make_report
from harness.kube.network import Asked, client_of


class ApiServer:
    """What the extender writes; `refuse` is the status that bindings are answered with."""

    def __init__(self) -> None:
        self.bound: list[tuple[str, str]] = []
        self.annotated: list[str] = []
        self.refuse = 0

    async def answer(self, asked: Asked) -> bytes:
        if asked.path.endswith("/binding"):
            if self.refuse:
                raise ApiError(self.refuse, "", "made up by a test")
            self.bound.append((asked.path.split("/")[-2], asked.body["target"]["name"]))
        else:
            assert asked.method == "PATCH"
            assert ANNOTATION in asked.body["metadata"]["annotations"]
            self.annotated.append(asked.path.rpartition("/")[2])
        return b"{}"


class Tandem:
    def __init__(self, nodes: dict[str, float], **settings: Any) -> None:
        self.clock, self.server = ManualClock(), ApiServer()
        self.pods: dict[str, Pod] = {}  # as the watch has them
        self.leads = True
        self.settings = SchedulerSettings(validate=True, **settings)
        self.parts: Components = assemble(self.settings, self.clock, None)
        for name, capacity in nodes.items():
            self.parts.cluster.node_changed(None, make_node(name))
            self.report(name, capacity)
        self.client = client_of(self.server.answer, clock=self.clock)
        self.writer = ApiWriter(self.client, self.clock, lambda: False)
        self.extender = self.new_extender()

    def new_extender(self) -> Extender:
        return Extender(self.parts, self.clock, self.pods, self.client, self.writer, lambda: self.leads)

    def pod(self, name: str, **options: Any) -> Pod:
        """One of the stock scheduler, which the watch knows."""
        pod = self.pods[f"default/{name}"] = make_pod(name, schedulerName="default-scheduler", **options)
        return pod

    def report(self, node: str, capacity: float, counted: tuple[str, ...] = ()) -> None:
        self.parts.ledger.report(make_report(node, capacity, counted), self.clock.monotonic())
        self.parts.cluster.capacity_changed()

    def ask(self, verb: str, pod: Pod, names: list[str]) -> Any:
        body = msgspec.json.encode({"Pod": msgspec.to_builtins(pod), "NodeNames": names})
        page = getattr(self.extender, verb)(Request("POST", {}, body))
        assert page.status == HTTPStatus.OK
        return json.loads(page.body)

    def good(self, pod: Pod, *names: str) -> list[str]:
        return list(self.ask("filter", pod, list(names))["NodeNames"])

    def bind(self, pod: Pod, node: str) -> str:
        asked = {"PodName": pod.name, "PodNamespace": pod.namespace, "PodUID": pod.uid, "Node": node}
        page = asyncio.run(self.extender.bind(Request("POST", {}, msgspec.json.encode(asked))))
        return str(json.loads(page.body)["Error"])

    def wakeup(self) -> None:
        """One round, and what it wrote; by a replica that does not hold the Lease."""

        async def written() -> None:
            self.extender.wakeup.round()
            task = asyncio.create_task(self.writer.run())
            await self.writer.drain()
            task.cancel()

        asyncio.run(written())

    def free(self, node: str) -> float:
        account = self.parts.ledger.account(node)
        assert account is not None
        return float(self.parts.ledger.free[account.row])


def test_it_filters_and_scores_by_the_ledger() -> None:
    tandem = Tandem({"a": 5.0, "b": 0.4, "c": 2.5})
    answer = tandem.ask("filter", tandem.pod("p"), ["a", "b", "c", "new"])
    assert answer["NodeNames"] == ["a", "c"]
    refused = {"b": "had no free capacity", "new": "had no recent capacity report"}
    assert (answer["FailedAndUnresolvableNodes"], answer["FailedNodes"]) == (refused, {})
    scores = {entry["Host"]: entry["Score"] for entry in tandem.ask("prioritize", tandem.pod("p"), ["a", "c"])}
    assert scores == {"a": 10, "c": 5}


def test_evicting_helps_only_if_it_may() -> None:
    answer = Tandem({"a": 0.0}, preempt_for_capacity=True).ask("filter", make_pod("p"), ["a"])
    assert (answer["FailedNodes"], answer["FailedAndUnresolvableNodes"]) == ({"a": "had no free capacity"}, {})


def test_without_a_profile_that_has_capacity_the_schedulers_own_settings_apply() -> None:
    without: dict[str, Any] = {"carico": {"disable": ["Capacity"]}}
    assert Tandem({"a": 1.5}, profiles=without).ask("filter", make_pod("p"), ["a"])["NodeNames"] == ["a"]
    assert Tandem({"a": 1.5}, profiles=without, threshold=2.0).ask("filter", make_pod("p"), ["a"])["NodeNames"] == []


def test_nodes_without_a_report_follow_the_rule_for_stale_ones() -> None:
    tandem = Tandem({"a": 0.0}, on_stale="requests")
    tandem.clock.advance(60)
    assert tandem.good(tandem.pod("p"), "a", "new") == ["a", "new"]


def test_pods_of_daemon_sets_pass_or_no_agent_could_ever_start() -> None:
    tandem = Tandem({"a": 0.0})
    agent = tandem.pod("agent", owner="DaemonSet")
    assert tandem.good(agent, "a", "new") == ["a", "new"]
    assert tandem.bind(agent, "a") == ""
    assert tandem.free("a") == 0


def test_units_that_are_no_number_are_refused_with_the_reason() -> None:
    answer = Tandem({"a": 5.0}).ask("filter", make_pod("p", units="many"), ["a"])
    assert "annotation carico.dev/units is 'many'" in answer["FailedAndUnresolvableNodes"]["a"]


def test_the_likely_node_is_charged_until_the_watch_knows_better() -> None:
    tandem = Tandem({"a": 1.5, "b": 1.2})
    tandem.ask("prioritize", tandem.pod("p"), ["a", "b"])
    assert tandem.good(tandem.pod("q"), "a", "b") == ["b"]
    tandem.clock.advance(GUESSED)
    assert tandem.good(tandem.pod("q"), "a", "b") == ["a", "b"]
    tandem.ask("prioritize", tandem.pod("r"), ["a", "b"])
    tandem.parts.cluster.pod_changed(None, make_pod("r", node="b"))
    tandem.clock.advance(GUESSED)
    assert tandem.good(tandem.pod("s"), "a", "b") == ["a"]


def test_the_only_node_is_charged_at_once_because_no_prioritize_follows() -> None:
    tandem = Tandem({"a": 1.5, "b": 0.0})
    assert tandem.good(tandem.pod("p"), "a", "b") == ["a"]
    assert tandem.good(tandem.pod("q"), "a", "b") == []


def test_a_pod_does_not_stand_in_its_own_way() -> None:
    tandem = Tandem({"a": 1.5})
    for _ in range(3):
        assert tandem.good(tandem.pod("p"), "a") == ["a"]


def test_a_charge_that_ran_out_goes_without_another_request() -> None:
    tandem = Tandem({"a": 1.5})
    tandem.good(tandem.pod("p"), "a")
    tandem.clock.advance(GUESSED)
    tandem.extender.reservations.let_go()
    assert (tandem.free("a"), len(tandem.extender.reservations)) == (1.5, 0)


def test_the_binding_decides() -> None:
    """Both pods were filtered while there was room for one; kube-scheduler chose the same node for both."""
    tandem = Tandem({"a": 1.5, "b": 1.5})
    for name in ("p", "q"):
        assert tandem.good(tandem.pod(name), "a", "b") == ["a", "b"]
    assert tandem.bind(tandem.pod("p"), "a") == ""
    assert tandem.bind(tandem.pod("q"), "a") == "a had no free capacity any more"
    assert tandem.good(tandem.pod("q"), "a", "b") == ["b"]  # it comes back from kube-scheduler's queue
    assert tandem.bind(tandem.pod("q"), "b") == ""
    assert tandem.server.bound == [("p", "a"), ("q", "b")]
    tandem.clock.advance(GUESSED)  # a slow watch
    assert tandem.good(tandem.pod("r"), "a", "b") == []
    tandem.report("a", 0.5, counted=("uid-p",))
    assert tandem.free("a") == 0.5


def test_a_binding_that_failed_gives_its_charge_back() -> None:
    tandem = Tandem({"a": 1.5})
    tandem.good(tandem.pod("p"), "a")
    tandem.server.refuse = 422
    assert tandem.bind(tandem.pod("p"), "a") == "made up by a test"
    assert tandem.free("a") == 1.5


def test_a_node_that_rose_is_annotated_only_for_pods_that_wait_for_it() -> None:
    tandem = Tandem({"a": 0.0, "b": 0.0})
    tandem.report("a", 2.0)
    tandem.report("a", 0.0)
    assert tandem.good(tandem.pod("p", units=2), "a", "b") == []
    tandem.report("a", 1.5)  # not enough
    tandem.report("b", 2.5)
    tandem.wakeup()
    assert tandem.server.annotated == ["b"]
    tandem.wakeup()
    assert tandem.server.annotated == ["b"]
    assert tandem.good(tandem.pod("p", units=2), "a", "b") == ["b"]
    tandem.report("a", 5.0)
    tandem.wakeup()
    assert tandem.server.annotated == ["b"]


def test_nodes_that_travel_whole_come_back_whole() -> None:
    tandem = Tandem({"a": 5.0, "b": 0.4})
    nodes = [{"metadata": {"name": name}, "secret": name} for name in ("a", "b")]
    body = msgspec.json.encode({"Pod": msgspec.to_builtins(make_pod("p")), "Nodes": {"items": nodes}})
    answer = json.loads(tandem.extender.filter(Request("POST", {}, body)).body)
    assert answer["Nodes"]["items"] == [nodes[0]]


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"Pod": 5}'])
def test_an_undecodable_request_is_refused(body: bytes) -> None:
    extender, request = Tandem({"a": 5.0}).extender, Request("POST", {}, body)
    assert extender.filter(request).status == HTTPStatus.BAD_REQUEST
    assert extender.prioritize(request).status == HTTPStatus.BAD_REQUEST
    assert asyncio.run(extender.bind(request)).status == HTTPStatus.BAD_REQUEST


# --- forged or stale pods in requests ---


def test_of_a_callers_pod_only_its_name_counts() -> None:
    """As a pod of a DaemonSet it would pass everywhere, and its units would take every node away."""
    tandem = Tandem({"a": 0.0, "b": 5.0})
    tandem.pod("p")
    forged = make_pod("p", owner="DaemonSet", units=1_000_000)
    assert tandem.good(forged, "a", "b") == ["b"]
    tandem.ask("prioritize", forged, ["b"])
    assert tandem.free("b") == 4
    assert tandem.bind(forged, "a") == "a had no free capacity any more"
    assert tandem.server.bound == []


def test_a_pod_that_no_watch_has_brought_is_judged_but_neither_charged_nor_bound() -> None:
    tandem = Tandem({"a": 1.5})
    unknown = make_pod("p", schedulerName="default-scheduler")
    assert tandem.good(unknown, "a") == ["a"]
    tandem.ask("prioritize", unknown, ["a"])
    assert (len(tandem.extender.reservations), tandem.free("a")) == (0, 1.5)
    assert tandem.good(make_pod("q", units=5), "a") == []
    tandem.report("a", 9.0)
    tandem.wakeup()
    assert tandem.server.annotated == []  # no known pod waits for it
    assert tandem.bind(unknown, "a") == "no such pod of another scheduler is known here; try again"
    assert tandem.server.bound == []


def test_a_pod_of_our_own_and_a_re_created_one_are_not_bound() -> None:
    tandem = Tandem({"a": 5.0})
    ours = tandem.pods["default/ours"] = make_pod("ours")
    tandem.pod("p", uid="uid-of-the-next")
    for pod in (ours, make_pod("p", schedulerName="default-scheduler")):
        assert tandem.good(pod, "a") == ["a"]
        assert "known here" in tandem.bind(pod, "a")
    assert (len(tandem.extender.reservations), tandem.server.bound) == (0, [])


def test_a_replica_without_the_lease_refuses_to_bind_and_the_next_try_may_succeed() -> None:
    tandem = Tandem({"a": 5.0})
    pod = tandem.pod("p")
    tandem.good(pod, "a")
    tandem.leads = False
    assert tandem.bind(pod, "a") == "this replica does not hold the Lease; try again"
    assert tandem.server.bound == []
    tandem.leads = True
    assert tandem.bind(pod, "a") == ""


def test_after_a_restart_between_filter_and_bind_every_filter_runs() -> None:
    tandem = Tandem({"a": 5.0, "b": 5.0})
    plain, choosy = tandem.pod("p"), tandem.pod("q", nodeSelector={"kubernetes.io/hostname": "b"})
    for pod in (plain, choosy):
        tandem.good(pod, "a", "b")
    tandem.extender = tandem.new_extender()
    assert tandem.bind(plain, "a") == ""
    assert "didn't match" in tandem.bind(choosy, "a")
    assert "not known here" in tandem.bind(choosy, "elsewhere")
    assert tandem.bind(choosy, "b") == ""
    assert tandem.server.bound == [("p", "a"), ("q", "b")]
