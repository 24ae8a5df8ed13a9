"""Months of coming and going leave nothing behind: every table is as long as what lives, whatever has been before."""

from __future__ import annotations

import gc
from types import FunctionType, MethodType, ModuleType
from typing import Any

import msgspec
import numpy as np
import pytest

from carico.kube.objects import Namespace, Node, Pod, Service
from carico.kube.selectors import NOTHING, from_labels
from carico.kube.storage import VolumeAttachment
from carico.scheduler.cache import affinity_terms
from carico.scheduler.cache.affinity_terms import PodSet
from carico.scheduler.cache.pod_match_counts import PodMatchCounts
from carico.scheduler.cache.rows import RowJournal
from carico.scheduler.cache.template import PodInfo, PodTemplates
from carico.scheduler.framework.contract import Cycle
from carico.scheduler.plugins import taints
from carico.scheduler.plugins.topology import spread_constraints
from carico.testing import make_node, make_pod
from harness.scheduler.worlds import World

TEMPLATES = PodTemplates()


SLACK = 400  # entries: values and columns kept in case that they come back, arrays that grew by half
# Kubernetes' objects, which others hold as well; a ring of fixed length; what is no data.
NOT_COUNTED = (msgspec.Struct, RowJournal, type, FunctionType, ModuleType, str)
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"


def entries(root: Any) -> int:
    """Entries of all containers and arrays that can be reached, in whatever table they are."""
    seen: set[int] = set()
    ahead, count = [root], 0
    while ahead:
        obj = ahead.pop()
        if id(obj) in seen or isinstance(obj, NOT_COUNTED):
            continue
        seen.add(id(obj))
        if isinstance(obj, np.ndarray):
            count += obj.size
            continue
        if isinstance(obj, dict | list | set | frozenset | tuple):
            count += len(obj)
        if isinstance(obj, MethodType):
            ahead.append(obj.__self__)
        else:
            ahead += gc.get_referents(obj)
    return count


def judged(world: World, pod: Pod) -> None:
    """A whole cycle: filters and scores, with all that they keep."""
    cycle = Cycle(world.snapshot.templates.info(pod), world.snapshot)
    rows = world.filters.run(cycle).rows
    for plugin in world.plugins:
        if len(rows) and hasattr(plugin, "pre_score"):
            plugin.pre_score(cycle, rows)


def choosy(key: str = "disk", **changes: Any) -> Pod:
    """Looks at everything of a node that tables are kept of."""
    spread = {"maxSkew": 1, "topologyKey": HOST, "whenUnsatisfiable": "DoNotSchedule"}
    spread["labelSelector"] = {"matchLabels": {"app": "x"}}
    prefer = {"weight": 1, "preference": {"matchExpressions": [{"key": key, "operator": "Exists"}]}}
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [prefer]}}
    return make_pod(topologySpreadConstraints=[spread], affinity=affinity, cpu="1", **changes)


def tainted(name: str, value: str) -> Node:
    taint = {"key": "DeletionCandidateOfClusterAutoscaler", "value": value, "effect": "PreferNoSchedule"}
    return make_node(
        name, spec={"taints": [taint, taint | {"effect": "NoExecute", "key": "ToBeDeletedByClusterAutoscaler"}]}
    )


def test_an_autoscaler_that_writes_the_time_into_taints(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"n{i}" for i in range(20)]
    world = World([make_node(name) for name in names])
    pod = choosy()
    judged(world, pod)
    before, calls = entries(world), 0
    judge = taints.repels

    def counting(*args: Any) -> bool:
        nonlocal calls
        calls += 1
        return judge(*args)

    monkeypatch.setattr(taints, "repels", counting)
    for change in range(20_000):
        name = names[change % 20]
        world.snapshot.set_node(tainted(name, str(1_700_000_000 + change)))
        if change % 100 == 0:
            judged(world, pod)
            assert world.feasible(pod) == set(names) - {name}
        world.snapshot.set_node(make_node(name))
    judged(world, pod)
    assert entries(world) <= before + SLACK
    assert calls <= 20_000 // 100 * 4, "sets that no node has any more are judged again"


def test_spot_nodes_that_come_and_go() -> None:
    """Each has a name, a taint, a feature, a resource and an image of its own."""
    world = World([make_node("stays", labels={ZONE: "z"})])
    judged(world, choosy())
    before = entries(world)
    for number in range(5_000):
        name = f"spot-{number}"
        plain = msgspec.to_builtins(tainted(name, str(number)))
        plain["status"]["allocatable"] |= {f"example.com/device-{number}": "1"}
        plain["status"] |= {"declaredFeatures": [name], "images": [{"names": [f"i:{number}"], "sizeBytes": 9 << 30}]}
        world.snapshot.set_node(msgspec.convert(plain, Node))
        pod = make_pod(f"p{number}", node=name)
        world.add(pod)
        if number % 50 == 0:
            judged(world, choosy())
        world.snapshot.remove_pod(pod.uid)
        world.snapshot.remove_node(name)
    judged(world, choosy())
    assert entries(world) <= before + SLACK
    assert len(world.snapshot.labels.column(HOST).values) <= 1 + 64


def test_a_cluster_that_was_large_once_is_small_again() -> None:
    world = World([make_node("stays")])
    column = world.snapshot.labels.column(HOST)
    for number in range(5_000):
        world.snapshot.set_node(make_node(f"n{number}"))
    assert len(column.values) == 5_001
    for number in range(5_000):
        world.snapshot.remove_node(f"n{number}")
    assert len(column.values) <= 1 + 64
    assert world.snapshot.labels.matching(from_labels({HOST: "stays"}).requirements, None).sum() == 1


def pod_set(app: str) -> PodSet:
    return PodSet(frozenset({"default"}), NOTHING, from_labels({"app": app}))


def ordinal(number: int) -> PodInfo:
    """A pod with a label of its own, as those of StatefulSets and indexed Jobs have."""
    labels = {"app": f"w{number % 600}", "statefulset.kubernetes.io/pod-name": f"s-{number}"}
    return TEMPLATES.info(make_pod(f"s-{number}", labels=labels))


def test_pods_with_labels_of_their_own_under_many_pod_sets() -> None:
    asked = 0

    def namespace_labels(_: str) -> dict[str, str]:
        nonlocal asked
        asked += 1
        return {}

    match_counts = PodMatchCounts(namespace_labels)
    for number in range(512):
        match_counts.count(pod_set(f"w{number}"), 10, terminating=False)
    before = entries(match_counts)
    alive = [ordinal(number) for number in range(3_000)]
    for number, pod in enumerate(alive):
        match_counts.add(pod, number % 10)
    assert entries(match_counts) - before <= 20 * len(alive), "something is kept per pair of pod and pod_set"
    asked = 0
    for number in range(3_000, 30_000):
        pod = ordinal(number)
        match_counts.add(pod, number % 10)
        match_counts.remove(pod, number % 10)
    assert asked <= 4 * 27_000, "every pod_set is asked about every pod"
    for number in range(512):
        fresh = [sum(p.identity.labels["app"] == f"w{number}" for p in alive[row::10]) for row in range(10)]
        assert match_counts.count(pod_set(f"w{number}"), 10, terminating=False).tolist() == fresh
    for number, pod in enumerate(alive):
        match_counts.remove(pod, number % 10)
    assert entries(match_counts) <= before + SLACK


def namespace(name: str, **labels: str) -> Namespace:
    return msgspec.convert({"metadata": {"name": name, "labels": labels}}, Namespace)


def test_namespaces_that_come_and_go_forget_only_what_they_touch(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World([make_node("a"), make_node("b")])
    match_counts = world.snapshot.match_counts
    by_label = PodSet(frozenset(), from_labels({"team": "red"}), from_labels({"app": "x"}))
    match_counts.count(pod_set("x"), 2, terminating=True)
    match_counts.count(by_label, 2, terminating=True)
    before = entries(world)
    counted: list[Any] = []
    count = PodMatchCounts._counted

    def counting(self: PodMatchCounts, *args: Any) -> Any:
        counted.append(args[0])
        return count(self, *args)

    monkeypatch.setattr(PodMatchCounts, "_counted", counting)
    for number in range(2_000):
        made = namespace(f"ci-{number}", **{"kubernetes.io/metadata.name": f"ci-{number}"})
        world.snapshot.put(made)
        world.snapshot.put(msgspec.convert({"metadata": {"name": "s", "namespace": made.name}}, Service))
        pod = make_pod("p", namespace=made.name, uid=made.name, node="a", labels={"app": "x"})
        world.add(pod)
        assert match_counts.count(pod_set("x"), 2, terminating=True).tolist() == [0, 0]
        assert match_counts.count(by_label, 2, terminating=True).tolist() == [0, 0]
        world.snapshot.remove_pod(pod.uid)
        world.snapshot.remove(msgspec.convert({"metadata": {"name": "s", "namespace": made.name}}, Service))
        world.snapshot.remove(made)
    assert counted == []
    assert entries(world) <= before + SLACK
    world.add(make_pod("p", namespace="shop", node="a", labels={"app": "x"}))
    world.snapshot.put(namespace("shop", team="red"))
    assert match_counts.count(by_label, 2, terminating=True).tolist() == [1, 0]
    assert counted == [(by_label,)]


def test_claims_ports_and_resources_that_come_and_go() -> None:
    world = World([make_node("a"), make_node("b")])
    judged(world, choosy())
    before = entries(world)
    for number in range(3_000):
        port = {"containerPort": 80, "hostPort": 1 + number}
        wanted = {"requests": {f"example.com/r{number}": "1"}}
        volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": f"c{number}"}}]
        container = {"name": "c", "ports": [port], "resources": wanted}
        pod = make_pod(f"p{number}", node="ab"[number % 2], containers=[container], volumes=volumes)
        world.judge(pod)  # a request for a resource that no node has makes no table either
        world.add(pod)
        assert world.snapshot.claim_in_use(f"default/c{number}")
        world.snapshot.remove_pod(pod.uid)
        plain = {"metadata": {"name": "t"}, "spec": {"nodeName": f"n{number}", "attacher": "x", "source": {}}}
        attachment = msgspec.convert(plain, VolumeAttachment)
        world.snapshot.put(attachment)
        world.snapshot.remove(attachment)
    judged(world, choosy())
    assert entries(world) <= before + SLACK


def test_label_keys_that_one_pod_each_asks_for() -> None:
    world = World([make_node("a", labels={"k7": "1"}), make_node("b", labels={"k2999": "1"})])
    for number in range(3_000):
        scores = world.scores(choosy(f"k{number}"), "NodeAffinity")
        assert scores == {"a": 100.0 * (number == 7), "b": 100.0 * (number == 2999)}
        assert len(world.snapshot.labels._columns) <= 256 + 2
    assert world.scores(choosy("k7"), "NodeAffinity") == {"a": 100.0, "b": 0.0}


def test_one_template_in_ever_new_namespaces_and_roll_outs() -> None:
    """What is compiled per template does not pile up while the template lives on."""
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "x"}}}
    spread = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
    spec: dict[str, Any] = {
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}},
        "topologySpreadConstraints": [spread | {"matchLabelKeys": ["pod-template-hash"]}],
    }
    stays = TEMPLATES.info(make_pod("stays", **spec))
    memo = stays.template.memo
    for number in range(1_000):
        pod = make_pod(f"p{number}", namespace=f"ci-{number}", labels={"pod-template-hash": str(number)}, **spec)
        info = TEMPLATES.info(pod)
        assert info.template is stays.template
        (found,) = spread_constraints.of_pod(info, "DoNotSchedule")
        assert found is spread_constraints.of_pod(info, "DoNotSchedule")[0], "compiled twice"
        assert found.selector.matches({"pod-template-hash": str(number)})
        assert not found.selector.matches({"pod-template-hash": "other"})
        assert info.terms.anti_affinity[0].pod_set.namespaces == {f"ci-{number}"}
    del info, pod
    assert entries(memo) <= SLACK


def test_terms_of_one_pod_that_left_are_compiled_once_however_many_wait() -> None:
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "x"}}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    left, other = make_pod("left", node="a", affinity=affinity), make_pod("other", namespace="n2", affinity=affinity)
    found = affinity_terms.of_pod(left)
    assert all(affinity_terms.of_pod(left) is found for _ in range(10))
    assert affinity_terms.of_pod(other).anti_affinity[0].pod_set.namespaces == {"n2"}
