"""Each filter by its own rule. Agreement with kube-scheduler over everything is tests/conformance's affair."""

from __future__ import annotations

import msgspec
import pytest

from carico.kube.objects import DeviceClass
from carico.scheduler.cache.template import PodInfo
from carico.scheduler.framework.contract import Cycle
from carico.testing import make_node, make_pod
from harness.scheduler.worlds import World

TAINTED = {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}


def test_taints_repel_who_does_not_tolerate_them() -> None:
    world = World([make_node("plain"), make_node("tainted", spec=TAINTED)])
    assert world.feasible(make_pod("p")) == {"plain"}
    tolerant = make_pod("q", spec={"tolerations": [{"key": "gpu", "operator": "Equal", "value": "yes"}]})
    assert world.feasible(tolerant) == {"plain", "tainted"}


def test_cordoned_nodes_are_left_alone() -> None:
    world = World([make_node("open"), make_node("cordoned", spec={"unschedulable": True})])
    assert world.feasible(make_pod("p")) == {"open"}
    toleration = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}
    assert world.feasible(make_pod("q", spec={"tolerations": [toleration]})) == {"open", "cordoned"}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ({"key": "cores", "operator": "Gt", "values": ["4"]}, {"large"}),
        ({"key": "cores", "operator": "Lt", "values": ["8"]}, {"small"}),
        ({"key": "cores", "operator": "In", "values": ["4", "16"]}, {"small", "large"}),
        ({"key": "cores", "operator": "NotIn", "values": ["4"]}, {"large", "odd", "none"}),
        ({"key": "cores", "operator": "Exists"}, {"small", "large", "odd"}),
        ({"key": "cores", "operator": "DoesNotExist"}, {"none"}),
        ({"key": "kubernetes.io/hostname", "operator": "In", "values": [*"abcdef", "odd"]}, {"odd"}),
    ],
)
def test_node_affinity_knows_every_operator(expression: object, expected: set[str]) -> None:
    cores = {"small": {"cores": "4"}, "large": {"cores": "16"}, "odd": {"cores": "many"}, "none": {}}
    world = World([make_node(name, labels=labels) for name, labels in cores.items()])
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    assert world.feasible(make_pod("p", spec={"affinity": affinity})) == expected


def test_node_affinity_by_name_and_the_empty_term() -> None:
    world = World([make_node("a"), make_node("b")])

    def feasible(*terms: object) -> set[str]:
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
        return world.feasible(make_pod(f"p{len(terms)}", spec={"affinity": {"nodeAffinity": required}}))

    not_a = {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["a"]}]}
    assert feasible(not_a) == {"b"}
    assert feasible({}) == set()
    assert feasible({}, not_a) == {"b"}


def test_host_ports_conflict_by_address_and_protocol() -> None:
    def port(name: str, address: str = "", protocol: str = "TCP", node: str = "") -> object:
        ports = [{"containerPort": 80, "hostPort": 80, "hostIP": address, "protocol": protocol}]
        return make_pod(name, node=node, spec={"containers": [{"name": "c", "ports": ports}]})

    world = World([make_node("a"), make_node("b")], [port("r", "10.0.0.1", node="a")])  # type: ignore[list-item]
    assert world.feasible(port("p")) == {"b"}  # type: ignore[arg-type]
    assert world.feasible(port("q", "10.0.0.2")) == {"a", "b"}  # type: ignore[arg-type]
    assert world.feasible(port("s", protocol="UDP")) == {"a", "b"}  # type: ignore[arg-type]


def test_requests_count_what_is_there_and_say_what_is_lacking() -> None:
    world = World([make_node("a", cpu="2"), make_node("b", cpu="1")], [make_pod("r", node="a", cpu="1500m")])
    assert world.feasible(make_pod("p", requests={"cpu": "1"})) == {"b"}
    found = world.judge(make_pod("q", requests={"cpu": "2"}))
    assert found.message() == "0/2 nodes are available: 2 Insufficient cpu."
    # `a` could be emptied, `b` is too small whatever is on it
    assert [world.snapshot.name(int(row)) for row in found.resolvable().nonzero()[0]] == ["a"]


def test_a_node_takes_no_more_pods_than_it_says() -> None:
    world = World([make_node("a", pods="1")], [make_pod("r", node="a")])
    assert world.judge(make_pod("p")).message() == "0/1 nodes are available: 1 Too many pods."


def test_extended_resources() -> None:
    world = World([make_node("a"), make_node("b", **{"example.com/gpu": "2"})])
    assert world.feasible(make_pod("p", requests={"example.com/gpu": "1"})) == {"b"}


def spread(**more: object) -> dict[str, object]:
    base = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    return {"topologySpreadConstraints": [base | {"labelSelector": {"matchLabels": {"app": "web"}}} | more]}


def test_spreading_fills_the_emptiest_zone_first() -> None:
    nodes = [make_node("a", labels={"zone": "1"}), make_node("b", labels={"zone": "2"}), make_node("lost")]
    world = World(nodes, [make_pod("r", node="a", labels={"app": "web"})])
    assert world.feasible(make_pod("p", labels={"app": "web"}, spec=spread())) == {"b"}
    # it does not count itself: one more than nothing is within the skew everywhere
    assert world.feasible(make_pod("q", spec=spread())) == {"a", "b"}
    # three zones are wanted and only two are there: the missing one counts as empty
    assert world.feasible(make_pod("s", labels={"app": "web"}, spec=spread(minDomains=3))) == {"b"}


def test_spreading_forgets_pods_that_leave() -> None:
    nodes = [make_node("a", labels={"zone": "1"}), make_node("b", labels={"zone": "2"})]
    leaving = make_pod("r", node="a", labels={"app": "web"}, metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    world = World(nodes, [leaving])
    assert world.feasible(make_pod("p", labels={"app": "web"}, spec=spread())) == {"a", "b"}


def term(**more: object) -> dict[str, object]:
    return {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}} | more


def required(kind: str, *terms: object) -> dict[str, object]:
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}}


ZONES = [make_node("a", labels={"zone": "1"}), make_node("b", labels={"zone": "2"}), make_node("lost")]


def test_affinity_follows_company() -> None:
    world = World(ZONES, [make_pod("r", node="a", labels={"app": "web"})])
    assert world.feasible(make_pod("p", spec=required("podAffinity", term()))) == {"a"}


def test_the_first_of_its_kind_may_go_where_the_labels_are() -> None:
    world = World(ZONES)
    assert world.feasible(make_pod("p", labels={"app": "web"}, spec=required("podAffinity", term()))) == {"a", "b"}
    assert world.feasible(make_pod("q", spec=required("podAffinity", term()))) == set()


def test_anti_affinity_binds_both_sides() -> None:
    world = World(ZONES, [make_pod("r", node="a", labels={"app": "db"}, spec=required("podAntiAffinity", term()))])
    assert world.feasible(make_pod("p", labels={"app": "web"})) == {"b", "lost"}
    world.add(make_pod("s", node="b", labels={"app": "web"}))
    assert world.feasible(make_pod("q", spec=required("podAntiAffinity", term()))) == {"a", "lost"}


def test_terms_reach_into_other_namespaces_only_when_told() -> None:
    world = World(ZONES, [make_pod("r", namespace="other", node="a", labels={"app": "web"})])
    assert world.feasible(make_pod("p", spec=required("podAntiAffinity", term()))) == {"a", "b", "lost"}
    assert world.feasible(make_pod("q", spec=required("podAntiAffinity", term(namespaces=["other"])))) == {"b", "lost"}
    everywhere = required("podAntiAffinity", term(namespaceSelector={}))
    assert world.feasible(make_pod("s", spec=everywhere)) == {"b", "lost"}


def test_two_affinity_terms_must_be_met_by_the_same_pod() -> None:
    one, other = {"app": "web"}, {"tier": "gold"}
    both = required("podAffinity", term(), term(labelSelector={"matchLabels": other}))
    apart = World(ZONES, [make_pod("r", node="a", labels=one), make_pod("s", node="a", labels=other)])
    assert apart.feasible(make_pod("p", spec=both)) == set()
    apart.add(make_pod("t", node="b", labels=one | other))
    assert apart.feasible(make_pod("q", spec=both)) == {"b"}


def test_declared_features() -> None:
    world = World([make_node("a"), make_node("b")])
    needy = make_pod("p", spec={"hostNetwork": True, "hostUsers": False})
    assert world.judge(needy).message() == "0/2 nodes are available: 2 node(s) didn't match Pod's required features."


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        ({"resourceClaims": [{"name": "gpu"}]}, "resourceClaims"),
        ({"schedulingGroup": {"podGroupName": "g"}}, "pod groups"),
        ({"workloadRef": {"name": "w", "podGroup": "g"}}, "pod groups (spec.workloadRef)"),
    ],
)
def test_what_is_not_supported_is_refused_loudly(spec: object, word: str) -> None:
    found = World([make_node("a")]).judge(make_pod("p", spec=spec))
    assert word in found.message()
    assert "use another schedulerName" in found.message()
    assert found.refusing == {"Unsupported"}


def device_class(name: str, resource: str) -> DeviceClass:
    return msgspec.convert({"metadata": {"name": name}, "spec": {"extendedResourceName": resource}}, DeviceClass)


def test_devices_that_only_a_class_serves_are_refused_by_name() -> None:
    """Not as "Insufficient …": no node will ever offer them, and kube-scheduler would allocate them."""
    world = World([make_node("a")], things=[device_class("gpus", "example.com/gpu")])
    for resource in ("example.com/gpu", "deviceclass.resource.kubernetes.io/gpus"):
        found = world.judge(make_pod("p", requests={"cpu": "1", resource: "1"}))
        assert f"(an extended resource of a DeviceClass): {resource}; use another schedulerName" in found.message()
        assert found.refusing == {"Unsupported"}
    assert world.feasible(make_pod("q", requests={"example.com/gpu": "0"})) == {"a"}
    other = world.judge(make_pod("r", requests={"example.com/fpga": "1"}))
    assert other.message() == "0/1 nodes are available: 1 Insufficient example.com/fpga."


def test_devices_of_a_device_plugin_are_taken_although_a_class_serves_them_elsewhere() -> None:
    plugged = make_node("plugged", **{"example.com/gpu": "2"})
    world = World([make_node("a"), plugged], things=[device_class("gpus", "example.com/gpu")])
    assert world.feasible(make_pod("p", requests={"example.com/gpu": "1"})) == {"plugged"}


def test_more_resources_than_a_verdict_has_bits() -> None:
    """40 kinds of devices: each that a node lacks keeps the pod off, and is resolvable or not by its own measure."""
    wanted = {f"example.com/r{i:02d}": "2" for i in range(40)}
    enough, lacks_last = dict.fromkeys(wanted, "4"), dict.fromkeys(list(wanted)[:-1], "4")
    nodes = [
        make_node("enough", **enough),
        make_node("lacks", **lacks_last),
        make_node("used", **enough),
        make_node("bare"),
    ]
    last = {"example.com/r39": "3"}
    world = World(nodes, [make_pod("user", requests=last, node="used")])
    pod = make_pod("p", requests=wanted | {"cpu": "100m"})
    found = world.judge(pod)
    names = {name: world.snapshot.rows.number[name] for name in ("enough", "lacks", "used", "bare")}
    assert {name for name, row in names.items() if found.mask[row]} == {"enough"}
    assert {name for name, row in names.items() if found.resolvable()[row]} == {"used"}
    shared = "Insufficient example.com/r29 or another of 11 resources"
    assert [reason.text for reason in found.why(names["lacks"])["NodeResourcesFit"]] == [shared]
    assert len(found.why(names["bare"])["NodeResourcesFit"]) == 31 - 1  # all but cpu
    world.add(make_pod("more", requests=last, node="enough"))  # the kept answer is corrected in the same bits
    assert world.feasible(pod) == set()
    assert f"4 {shared}" in world.judge(pod).message()


def test_spreading_counts_hypothetical_pods_like_real_ones() -> None:
    """Pods that are being deleted are not counted, and neither are any by an empty selector."""
    leaving = make_pod("l", node="x", labels={"app": "web"}, metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    nodes = [make_node(zone, labels={"zone": zone}) for zone in "xy"]
    world = World(nodes, [leaving, make_pod("w", node="x", labels={"app": "web"})])
    row = world.snapshot.rows.number["x"]
    for name, selector, feasible in (("p", {"matchLabels": {"app": "web"}}, {"y"}), ("q", {}, {"x", "y"})):
        pod = make_pod(name, labels={"app": "web"}, spec=spread(labelSelector=selector))
        assert world.feasible(pod) == feasible
        cycle = Cycle(PodInfo(pod), world.snapshot)
        world.filters.run(cycle)
        with world.filters.pretending(cycle, row, remove=[PodInfo(leaving)]):
            assert world.filters.fits(cycle, row) == ("x" in feasible)
        with world.filters.pretending(cycle, row, add=[PodInfo(make_pod("n", labels={"app": "web"}))]):
            assert world.filters.fits(cycle, row) == ("x" in feasible)
