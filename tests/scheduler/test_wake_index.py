"""The indexes of waiting pods find exactly what comparing every waiting pod finds."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from carico.scheduler.cache.template import PodInfo, PodTemplates
from carico.scheduler.framework.cluster_events import Action, ClusterEvent, EventInterest, pod_change
from carico.scheduler.framework.needs import Need, NeedsIndex, Promised, Room
from carico.scheduler.plugins.topology.inter_pod_affinity import InterPodAffinity
from carico.scheduler.plugins.topology.pod_topology_spread import PodTopologySpread
from carico.scheduler.queue.unschedulable import Diagnosis, Scope, Unschedulable
from carico.testing import make_pod

# --- changes of pods ---

NAMES, VALUES, KEYS = ("default", "other"), ("a", "b"), ("app", "tier")
labels = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES))
expressions = st.fixed_dictionaries(
    {"key": st.sampled_from(KEYS), "operator": st.sampled_from(("In", "NotIn"))},
    optional={"values": st.lists(st.sampled_from(VALUES), min_size=1, max_size=2, unique=True)},
).filter(lambda one: "values" in one)
selectors = st.one_of(
    st.none(),
    st.fixed_dictionaries({}, optional={"matchLabels": labels, "matchExpressions": st.lists(expressions, max_size=2)}),
)

TEMPLATES = PodTemplates()


@st.composite
def terms(draw: st.DrawFn) -> dict[str, Any]:
    term: dict[str, Any] = {"topologyKey": "zone", "labelSelector": draw(selectors)}
    if draw(st.booleans()):
        term["namespaces"] = draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
    if draw(st.integers(0, 3)) == 0:
        term["namespaceSelector"] = {"matchLabels": draw(labels)}
    return term


@st.composite
def pods(draw: st.DrawFn) -> Any:
    changes: dict[str, Any] = {"labels": draw(labels), "namespace": draw(st.sampled_from(NAMES))}
    rules = "requiredDuringSchedulingIgnoredDuringExecution"
    affinity = {
        kind: {rules: found}
        for kind in ("podAffinity", "podAntiAffinity")
        if (found := draw(st.lists(terms(), max_size=2)))
    }
    if draw(st.booleans()):
        spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
        changes["topologySpreadConstraints"] = [spread | {"labelSelector": draw(selectors)}]
    return make_pod(affinity=affinity, **changes)


@st.composite
def changes_of_pods(draw: st.DrawFn) -> ClusterEvent:
    """A pod on a node was added or deleted, or its labels changed."""
    state = draw(pods())
    plain = {"namespace": state.namespace, "node": "n", "uid": state.uid}
    affinity = {"affinity": state.spec.affinity} if state.spec.affinity is not None else {}
    before, after = (make_pod("x", labels=draw(labels), **plain, **msgspec.to_builtins(affinity)) for _ in range(2))
    kind = draw(st.sampled_from(("added", "deleted", "changed")))
    return pod_change(None if kind == "added" else before, None if kind == "deleted" else after)


def _interests(plugin: Any) -> tuple[EventInterest, ...]:
    found: tuple[EventInterest, ...] = plugin.interests
    return found


SETS = [
    _interests(PodTopologySpread()),
    _interests(InterPodAffinity()),
    (EventInterest("Pod", Action.DELETE, lambda _pod, _old, _new: True),),  # a plugin without a pod set
]


class _Waiting:
    """As much of a queued pod as the groups use."""

    def __init__(self, info: PodInfo) -> None:
        self.info, self.group, self.pod_group, self.ticket = info, None, None, 1


@given(st.lists(st.tuples(pods(), st.sets(st.integers(0, 2), min_size=1)), max_size=6), changes_of_pods(), st.data())
def test_a_change_is_compared_with_every_pod_that_it_could_help(
    waiting: list[tuple[Any, set[int]]], change: ClusterEvent, data: st.DataObject
) -> None:
    groups, want = Unschedulable(), set()
    for pod, plugins in waiting:
        queued: Any = _Waiting(TEMPLATES.info(pod))
        interests = tuple(interest for number in plugins for interest in SETS[number])
        groups.add(queued, (0,), Diagnosis(frozenset({"X"}), interests, scope=Scope.POD))
        if data.draw(st.booleans()):
            groups.remove(queued)
        elif any(interest.could_help(queued.info, change) for interest in interests):
            want.add(pod.uid)
    assert {group.info.uid for group in groups.helped_by(change)} == want


def test_an_unrelated_pod_calls_no_hint_of_thousands_of_waiting_workloads() -> None:
    asked: list[Any] = []
    interest: Any = SETS[0][0]
    groups = Unschedulable()

    def counted(*states: Any) -> bool:
        asked.append(states)
        return bool(interest.hint(*states))

    for number in range(1000):
        rule = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
        mine = {"app": f"web-{number}"}
        pod = make_pod(labels=mine, topologySpreadConstraints=[rule | {"labelSelector": {"matchLabels": mine}}])
        wrapped = EventInterest(interest.kind, interest.action, counted, pod_set=interest.pod_set)
        queued: Any = _Waiting(TEMPLATES.info(pod))
        groups.add(queued, (0,), Diagnosis(frozenset({"X"}), (wrapped,), scope=Scope.POD))
    seventh, other = (make_pod("x", labels={"app": app}, node="a") for app in ("web-7", "other"))
    for change in (pod_change(None, other), pod_change(other, None)):
        groups.helped_by(change)
    assert not asked
    turned = pod_change(seventh, other), pod_change(other, seventh)
    for change in (pod_change(None, seventh), pod_change(seventh, None), *turned):
        assert [group.info.identity.labels for group in groups.helped_by(change)] == [{"app": "web-7"}]
    assert len(asked) == 4


# --- amounts ---

AMOUNTS = ("cpu", "memory", "pods", "probe:x")
needs = st.lists(
    st.builds(Need, st.just("s"), st.sampled_from(AMOUNTS), st.integers(0, 4), st.just(1)),
    min_size=1, max_size=4, unique_by=lambda need: need.resource,
).map(tuple)  # fmt: skip


@given(
    st.lists(needs, unique=True, max_size=12),
    st.fixed_dictionaries({name: st.sampled_from((-float("inf"), 0, 1, 2, 3, 5, float("inf"))) for name in AMOUNTS}),
    st.data(),
)
def test_every_need_that_a_row_holds_is_a_candidate(
    known: list[Any], has: dict[str, float], data: st.DataObject
) -> None:
    index, promised = NeedsIndex(), Promised()
    promised.add(0, (Need("s", "cpu", 1, 1),))
    room = Room(0, {"s": lambda resource, _row: has[resource]}, promised)
    kept = [one for one in known if data.draw(st.booleans())]
    for one in known:
        index.add(one)
    for one in known:
        if one not in kept:
            index.remove(one)
    found = index.candidates(room)
    assert len(found) == len(set(found))
    assert set(found) <= set(kept)
    left = has | {"cpu": has["cpu"] - 1}
    assert {one for one in found if room.holds(one)} == {
        one for one in kept if all(left[need.resource] >= need.least for need in one)
    }
