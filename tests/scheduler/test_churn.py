"""After any sequence of changes, tables that were updated in place equal those that are built from scratch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carico.kube.objects import Namespace, Node, Pod
from carico.kube.selectors import EVERYTHING, NOTHING, Requirement, Selector, from_labels
from carico.scheduler.cache import label_columns, pod_match_counts
from carico.scheduler.cache.affinity_terms import PodSet
from carico.scheduler.cache.pod_match_counts import summed
from carico.scheduler.cache.rows import RowIndex
from carico.scheduler.cache.snapshot import Snapshot
from carico.scheduler.cache.template import PodInfo
from carico.scheduler.plugins import taints
from carico.testing import make_node, make_pod

NAMES, NAMESPACES, UIDS = ("a", "b", "c", "d"), ("red", "blue"), tuple("tuvwxyz")
KEYS, VALUES = ("zone", "disk", "kubernetes.io/hostname"), ("1", "2", "x")
IN, NOT_IN = Requirement("app", "In", frozenset({"1", "2"})), Requirement("app", "NotIn", frozenset({"x"}))
ANY_RED = PodSet(frozenset(), from_labels({"team": "red"}), from_labels({"app": "1"}))
POD_SETS: tuple[tuple[PodSet, ...], ...] = (
    (PodSet(frozenset({"red"}), NOTHING, from_labels({"app": "1"})),),
    (PodSet(frozenset({"red", "blue"}), NOTHING, Selector(frozenset({IN}))),),
    (PodSet(frozenset({"blue"}), NOTHING, Selector(frozenset({NOT_IN}))),),
    (PodSet(frozenset({"blue"}), EVERYTHING, from_labels({"app": "1", "tier": "2"})),),
    (PodSet(frozenset({"red"}), NOTHING, NOTHING),),
    (ANY_RED,),
    (ANY_RED, PodSet(frozenset({"red", "blue"}), NOTHING, from_labels({"tier": "1"}))),
)
SELECTORS = (
    from_labels({"zone": "1"}),
    Selector(frozenset({Requirement("disk", "NotIn", frozenset({"1"})), Requirement("zone", "Gt", frozenset({"1"}))})),
    Selector(frozenset({Requirement("kubernetes.io/hostname", "Exists")})),
)
TOLERANT = make_pod("t", tolerations=[{"key": "k", "operator": "Equal", "value": "1", "effect": ""}])
TOLERATING = (PodInfo(make_pod("p")).template, PodInfo(TOLERANT).template)

# Read after every step: their cached values are not recomputed in between unless they have to be.
KEPT = (("pods", 1), ("pods", 2), ("pods", 5), ("pods", 6), ("pods", 3), ("labels", 0), ("taints", 0), ("taints", 1))

labels = st.dictionaries(st.sampled_from(("app", "tier")), st.sampled_from(VALUES))
steps = st.one_of(
    st.tuples(
        st.just("node"),
        st.sampled_from(NAMES),
        st.dictionaries(st.sampled_from(KEYS[:2]), st.sampled_from(VALUES)),
        st.lists(st.sampled_from(VALUES), max_size=2),
        st.sampled_from((("cpu",), ("cpu", "example.com/gpu"))),
    ),
    st.tuples(st.just("no node"), st.sampled_from(NAMES)),
    st.tuples(
        st.just("pod"),
        st.sampled_from(UIDS),
        st.sampled_from(NAMES),
        st.sampled_from(NAMESPACES),
        labels,
        st.booleans(),
    ),
    st.tuples(st.just("no pod"), st.sampled_from(UIDS)),
    st.tuples(st.just("namespace"), st.sampled_from(NAMESPACES), st.sampled_from(({}, {"team": "red"}))),
    st.tuples(st.just("no namespace"), st.sampled_from(NAMESPACES)),
    st.tuples(st.just("ask"), st.sampled_from(("labels", "pods", "taints")), st.integers(0, 9)),
)


def node_of(name: str, more: dict[str, str], values: list[str], resources: tuple[str, ...]) -> Node:
    found = [{"key": "k", "value": value, "effect": "NoSchedule"} for value in values]
    plain = msgspec.to_builtins(make_node(name, labels=more, spec={"taints": found}))
    plain["status"]["allocatable"] = dict.fromkeys(resources, "4")
    plain["status"]["declaredFeatures"] = values[:1]
    return msgspec.convert(plain, Node)


def pod_of(uid: str, node: str, namespace: str, mine: dict[str, str], leaving: bool) -> Pod:
    port = {"containerPort": 80, "hostPort": 80}
    container = {"name": "c", "ports": [port], "resources": {"requests": {"cpu": "1", f"example.com/{uid}": "1"}}}
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": mine.get("app", "none")}}]
    pod = make_pod(uid, uid=uid, namespace=namespace, labels=mine, node=node, containers=[container], volumes=volumes)
    meta = msgspec.structs.replace(pod.metadata, deletion_timestamp="2026-01-01T00:00:00Z" if leaving else None)
    return msgspec.structs.replace(pod, metadata=meta)


class Churn:
    """A snapshot that is updated in place, and what it takes to build it from scratch."""

    def __init__(self) -> None:
        self.lived = Snapshot(RowIndex())
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.namespaces: dict[str, Namespace] = {}

    def step(self, what: str, *args: Any) -> None:
        match what:
            case "node":
                node = self.nodes[args[0]] = node_of(*args)
                self.lived.set_node(node)
            case "no node":
                self.nodes.pop(args[0], None)
                self.lived.remove_node(args[0])
            case "pod":
                pod = self.pods[args[0]] = pod_of(*args)
                self.lived.add_pod(self.lived.templates.info(pod), pod.spec.node_name)
            case "no pod":
                self.pods.pop(args[0], None)
                self.lived.remove_pod(args[0])
            case "namespace":
                plain = {"metadata": {"name": args[0], "labels": args[1]}}
                obj = self.namespaces[args[0]] = msgspec.convert(plain, Namespace)
                self.lived.put(obj)
            case "no namespace":
                if (gone := self.namespaces.pop(args[0], None)) is not None:
                    self.lived.remove(gone)
            case _:
                self.lived.labels.trim()  # as at the beginning of a cycle
                assert asked(self.lived, *args) == asked(self.rebuilt(), *args)

    def rebuilt(self) -> Snapshot:
        snapshot = Snapshot(RowIndex())
        for namespace in self.namespaces.values():
            snapshot.put(namespace)
        for node in self.nodes.values():
            snapshot.set_node(node)
        for pod in self.pods.values():
            snapshot.add_pod(snapshot.templates.info(pod), pod.spec.node_name)
        return snapshot


def rows(snapshot: Snapshot) -> Iterator[tuple[str, int]]:
    return ((name, row) for row, name in enumerate(snapshot.rows.names) if name)


def asked(snapshot: Snapshot, what: str, number: int) -> Any:
    """An answer by names: rows, codes and numbers may differ."""
    if what == "labels":
        mask = snapshot.labels.selected(SELECTORS[number % len(SELECTORS)], None)
        return {name for name, row in rows(snapshot) if mask[row]}
    if what == "taints":
        repelled = taints.untolerated(snapshot, TOLERATING[number % 2], None)
        members = {name: snapshot.taints.members[snapshot.taints.of[row]] for name, row in rows(snapshot)}
        features = {name: snapshot.features.members[snapshot.features.of[row]] for name, row in rows(snapshot)}
        return {name for name, row in rows(snapshot) if repelled[row]}, members, features
    pod_sets = POD_SETS[number % len(POD_SETS)]
    counts = snapshot.match_counts.count_all(pod_sets, len(snapshot), terminating=number % 2 == 0)
    per_row = {name: int(counts[row]) for name, row in rows(snapshot) if counts[row]}
    column = snapshot.labels.column("zone")
    domains = summed(counts, snapshot.labels.codes("zone", None), len(column.values))
    return per_row, {value: int(n) for value, n in zip(column.values, domains, strict=True) if n}


def sums(snapshot: Snapshot) -> dict[str, Any]:
    """Everything that is added up, by names."""
    tables = {"free": snapshot._free, "whole": snapshot._allocatable}
    read = {"free": snapshot.unrequested, "whole": snapshot.allocatable}
    amounts = {
        what: {(r, name): int(amount) for r in table for name, row in rows(snapshot) if (amount := read[what](r)[row])}
        for what, table in tables.items()
    }
    return {
        "columns": {what: {name for name in table if "/" in name} for what, table in tables.items()},
        **amounts,
        "claims": {
            key: Counter({snapshot.name(r): n for r, n in c.items()}) for key, c in snapshot._claim_users.items()
        },
        "ports": {port: {snapshot.name(row) for row in users} for port, users in snapshot.ports._users.items()},
        "volumes": {snapshot.name(row): uids for row, uids in snapshot.with_volumes.items()},
    }


@pytest.fixture(autouse=True, scope="module")
def tight() -> Iterator[None]:
    """Bounds so narrow that everything is forgotten and made again all the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(label_columns, "KEPT", 1)
        patch.setattr(label_columns, "SPARE", 0)
        patch.setattr(pod_match_counts, "KEPT", 6)
        yield


@settings(max_examples=200)
@given(st.lists(steps, min_size=25, max_size=50))
def test_tables_that_were_updated_equal_those_built_from_scratch(churn: list[tuple[Any, ...]]) -> None:
    world = Churn()
    for step in churn:
        world.step(*step)
        for question in KEPT:
            asked(world.lived, *question)
    fresh = world.rebuilt()
    assert sums(world.lived) == sums(fresh)
    for question in KEPT:
        assert asked(world.lived, *question) == asked(fresh, *question), question
    for what in ("labels", "pods", "taints"):
        for number in range(2 * len(POD_SETS)):
            world.lived.labels.trim()
            assert asked(world.lived, what, number) == asked(fresh, what, number), (what, number)


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from((None, *"abcdef"))), max_size=80))
def test_codes_stand_for_the_values_of_the_rows(changes: list[tuple[int, str | None]]) -> None:
    held: list[str | None] = [None] * 6
    column = label_columns.Column(held)
    for row, value in changes:
        held[row] = value
        column.set(row, value)
        assert [None if code < 0 else column.values[code] for code in column.codes.tolist()] == held
        assert column.living == len({value for value in held if value is not None})
        assert len(column.values) <= column.living + column.living // 4 + 1
        assert np.array_equal(
            column.admitted(Requirement("k", "In", frozenset("ab")), column.codes), [v in ("a", "b") for v in held]
        )
