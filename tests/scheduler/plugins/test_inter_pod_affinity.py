"""InterPodAffinity: filters and scores by the plugin's own rule; tests/conformance compares with kube-scheduler."""

from __future__ import annotations

from carico.testing import make_node, make_pod
from harness.scheduler.worlds import World


def term(**more: object) -> dict[str, object]:
    return {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}} | more


def required(kind: str, *terms: object) -> dict[str, object]:
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}}


ZONES = [make_node("a", labels={"zone": "1"}), make_node("b", labels={"zone": "2"}), make_node("lost")]


def test_required_affinity_needs_a_matching_pod_in_the_domain() -> None:
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


def test_terms_reach_only_the_namespaces_that_they_name() -> None:
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


def test_preferred_affinity_and_anti_affinity_score() -> None:
    def weighted(weight: int, app: str) -> object:
        term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": app}}}
        return {"weight": weight, "podAffinityTerm": term}

    nodes = [make_node(zone, labels={"zone": zone}) for zone in "xyz"]
    pods = [make_pod("w", node="x", labels={"app": "web"}), make_pod("d", node="y", labels={"app": "db"})]
    affinity = {
        "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [weighted(50, "web")]},
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [weighted(50, "db")]},
    }
    # x +50, y −50, z 0, stretched over 0 … 100
    scores = World(nodes, pods).scores(make_pod("p", spec={"affinity": affinity}), "InterPodAffinity")
    assert scores == {"x": 100, "y": 0, "z": 50}


def test_running_pods_have_preferences_too() -> None:
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "new"}}}
    wish = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]}
    nodes = [make_node(zone, labels={"zone": zone}) for zone in "xy"]
    world = World(nodes, [make_pod("w", node="y", spec={"affinity": {"podAffinity": wish}})])
    assert world.scores(make_pod("p", labels={"app": "new"}), "InterPodAffinity") == {"x": 0, "y": 100}
    assert world.scores(make_pod("q", labels={"app": "other"}), "InterPodAffinity") == {}
