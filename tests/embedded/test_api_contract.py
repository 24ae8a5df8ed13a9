"""kube-apiserver is the oracle: the embedded API server answers the same requests with the same codes and objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harness.cluster.cluster import Cluster
from harness.cluster.fixtures import needs_scale
from harness.embedded.embedded_cluster import EmbeddedCluster
from harness.kube.api_contract import JSON_PATCH, MERGE, STRATEGIC, TABLE, Answer, ContractClient, Step, unauthorised

pytestmark = [pytest.mark.cluster, needs_scale]

PODS = "/api/v1/namespaces/{ns}/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases"


def pod(name: str = "p", **spec: Any) -> dict[str, Any]:
    whole = {"schedulerName": "nobody", "containers": [{"name": "c", "image": "busybox:1"}]} | spec
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": whole}


def binding(node: str = "nowhere", **meta: Any) -> dict[str, Any]:
    whole = {"name": "p"} | meta
    return {"apiVersion": "v1", "kind": "Binding", "metadata": whole, "target": {"kind": "Node", "name": node}}


def eviction(name: str, **options: Any) -> dict[str, Any]:
    whole = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    return whole | ({"deleteOptions": options} if options else {})


def made(name: str = "p", **spec: Any) -> Step:
    return Step("POST", PODS, pod(name, **spec), keep=(name, "metadata.uid"))


LIST = Step("GET", PODS + "?limit=500", keep=("rv", "metadata.resourceVersion"))
MUCH = {
    "name": "c",
    "image": "x",
    "resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": "1", "memory": "1Gi"}},
    "ports": [{"containerPort": 80}],
}
HOME = [{"type": "Hostname", "address": "h"}]
_STATE = {"name": "c", "image": "i", "imageID": "", "restartCount": 2}
RUNS = {
    "status": {
        "phase": "Running",
        "podIP": "10.0.0.9",
        "podIPs": [{"ip": "10.0.0.9"}],
        "containerStatuses": [_STATE | {"ready": True, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}],
    }
}
BROKE = {
    "status": {
        "phase": "Failed",
        "containerStatuses": [_STATE | {"ready": False, "state": {"terminated": {"exitCode": 3, "reason": "Error"}}}],
    }
}
JOB = {
    "metadata": {"name": "j"},
    "spec": {
        "completions": 4,
        "managedBy": "example.com/none",  # no controller makes its pods or writes its status
        "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}},
    },
}
NODE = {
    "capacity": {"cpu": "4"},
    "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
    "nodeInfo": {"kubeletVersion": "v1", "osImage": "os", "kernelVersion": "6", "containerRuntimeVersion": "c"},
    "conditions": [{"type": "Ready", "status": "True"}],
}
ELSE = "00000000-0000-4000-8000-000000000000"  # a UID that no object has


def condition(kind: str, status: str, **more: str) -> dict[str, Any]:
    return {"status": {"conditions": [{"type": kind, "status": status, **more}]}}


def lease(holder: str, **meta: str) -> dict[str, Any]:
    return {"metadata": {"name": "l"} | meta, "spec": {"holderIdentity": holder}}


CONVERSATIONS: dict[str, list[Step]] = {
    "a pod is filled in": [
        Step("POST", PODS, pod()),
        Step("POST", PODS, pod("q", containers=[MUCH])),
        Step("POST", PODS, pod("r", tolerations=[{"operator": "Exists"}], restartPolicy="Never")),
        Step("POST", PODS, pod("gated", schedulingGates=[{"name": "carico.test/wait"}])),
        Step("POST", PODS, {"metadata": {"generateName": "made-"}, "spec": pod()["spec"]}),
        Step("GET", PODS + "/p"),
        Step("GET", PODS + "/p/status"),
    ],
    "what is refused": [
        made(),
        made(),
        Step("GET", PODS + "/none"),
        Step("DELETE", PODS + "/none"),
        Step("PATCH", PODS + "/none", {"metadata": {}}, MERGE),
        Step("PUT", PODS + "/none", pod("none")),
        Step("POST", PODS, pod("UPPER")),
        Step("POST", PODS, pod("x", containers=[])),
        Step("POST", PODS, pod("x", containers=[{"name": "c"}])),
        Step("POST", PODS, pod("x", restartPolicy="Sometimes")),
        Step("POST", PODS, pod("x", priorityClassName="no-such")),
        Step("POST", PODS, pod("x", priority=5)),
        Step("POST", "/api/v1/namespaces/not-there/pods", pod("x")),
        Step("POST", PODS, pod("x") | {"metadata": {"name": "x", "namespace": "default"}}),
        Step("POST", PODS, pod("x") | {"metadata": {}}),
        Step("POST", PODS, pod("x") | {"kind": "Node"}),
        Step("PUT", PODS + "/p", pod("other")),
        Step("GET", PODS + "?fieldSelector=spec.nothing%3D1"),
        Step("POST", PODS + "/p", pod()),
    ],
    "a binding happens once": [
        made(),
        Step("POST", PODS + "/p/binding", binding(uid=ELSE)),
        Step("POST", PODS + "/none/binding", binding()),
        Step("POST", PODS + "/p/binding", binding("") | {"target": {"kind": "Node"}}),
        Step("POST", PODS + "/p/binding", binding("far-away", uid="{p}")),
        Step("POST", PODS + "/p/binding", binding("far-away", uid="{p}")),
        Step("POST", PODS + "/p/binding", binding("elsewhere")),
        Step("GET", PODS + "/p"),
        made("gated", schedulingGates=[{"name": "carico.test/wait"}]),
        Step("POST", PODS + "/gated/binding", binding() | {"metadata": {"name": "gated"}}),
        Step("PATCH", PODS + "/gated", {"spec": {"schedulingGates": None}}, MERGE),
        Step("POST", PODS + "/gated/binding", binding() | {"metadata": {"name": "gated"}}),
    ],
    "a pod on a node leaves when the node says so": [
        made(),
        Step("POST", PODS + "/p/binding", binding("far-away")),
        Step("DELETE", PODS + "/p"),
        Step("DELETE", PODS + "/p", {"gracePeriodSeconds": 60}),
        Step("DELETE", PODS + "/p", {"gracePeriodSeconds": 5}),
        Step("GET", PODS + "/p"),
        Step("POST", PODS + "/p/binding", binding("far-away")),
        Step("DELETE", PODS + "/p", {"preconditions": {"uid": ELSE}}),
        Step("DELETE", PODS + "/p", {"gracePeriodSeconds": 0}),
        Step("GET", PODS + "/p"),
        made("unbound"),
        Step("DELETE", PODS + "/unbound"),
        Step("GET", PODS + "/unbound"),
    ],
    "an eviction": [
        made(),
        Step("POST", PODS + "/p/eviction", eviction("other")),
        Step("POST", PODS + "/none/eviction", eviction("none")),
        Step("POST", PODS + "/p/eviction", eviction("p", preconditions={"uid": ELSE})),
        Step("POST", PODS + "/p/eviction", eviction("p", dryRun=["All"])),
        Step("POST", PODS + "/p/eviction?dryRun=All", eviction("p")),
        Step("GET", PODS + "/p"),
        Step("POST", PODS + "/p/eviction", eviction("p", preconditions={"uid": "{p}"})),
        Step("GET", PODS + "/p"),
        made("q"),
        Step("POST", PODS + "/q/binding", binding("far-away") | {"metadata": {"name": "q"}}),
        Step("PATCH", PODS + "/q/status", RUNS, STRATEGIC),
        Step("POST", PODS + "/q/eviction", eviction("q", gracePeriodSeconds=5)),
        Step("GET", PODS + "/q"),
        Step("POST", PODS + "/q/eviction", eviction("q")),
        Step("GET", PODS + "/q/eviction"),
    ],
    "a finalizer holds an object": [
        Step("POST", PODS, pod() | {"metadata": {"name": "p", "finalizers": ["carico.test/hold"]}}),
        Step("DELETE", PODS + "/p"),
        Step("GET", PODS + "/p"),
        Step("PATCH", PODS + "/p", {"metadata": {"finalizers": None}}, MERGE),
        Step("GET", PODS + "/p"),
    ],
    "patches of every kind": [
        made(),
        Step("PATCH", PODS + "/p", {"metadata": {"labels": {"a": "1", "app": None}}}, MERGE),
        Step("PATCH", PODS + "/p", {"spec": {"containers": [{"name": "c", "image": "busybox:2"}]}}, STRATEGIC),
        Step("PATCH", PODS + "/p", [{"op": "add", "path": "/metadata/labels/b", "value": "2"}], JSON_PATCH),
        Step("PATCH", PODS + "/p", [{"op": "test", "path": "/metadata/labels/b", "value": "3"}], JSON_PATCH),
        Step("PATCH", PODS + "/p", {"spec": {"nodeSelector": {"a": "b"}}}, MERGE),
        Step("PATCH", PODS + "/p", {"metadata": {"resourceVersion": "1"}}, MERGE),
        Step("PATCH", PODS + "/p", {"metadata": {"uid": ELSE}}, MERGE),
        Step("PATCH", PODS + "/p", {"metadata": {"labels": {"bad": "a b"}}}, MERGE),
        Step("PATCH", PODS + "/p", {}, "text/plain"),
        Step("GET", PODS + "/p"),
    ],
    "a status is written apart": [
        made(),
        Step("PATCH", PODS + "/p", {"status": {"phase": "Running"}}, MERGE),
        Step("PATCH", PODS + "/p/status", condition("PodScheduled", "False", reason="Unschedulable"), STRATEGIC),
        Step("PATCH", PODS + "/p/status", condition("Own", "True"), STRATEGIC),
        Step("PATCH", PODS + "/p/status", condition("Own", "False"), STRATEGIC),
        Step("PATCH", PODS + "/p/status", {"spec": {"nodeName": "x"}, "status": {"phase": "Running"}}, MERGE),
        Step("PATCH", PODS + "/p/status", {"metadata": {"uid": ELSE}, "status": {}}, MERGE),
        Step("GET", PODS + "/p"),
        Step("GET", PODS + "?fieldSelector=status.phase%3DRunning"),
        Step("GET", PODS + "?fieldSelector=status.phase!%3DRunning"),
    ],
    "a lease is written against its version": [
        Step("POST", LEASES, lease("a"), keep=("v", "metadata.resourceVersion")),
        Step("PUT", LEASES + "/l", lease("b")),
        Step("PUT", LEASES + "/l", lease("b", resourceVersion="1")),
        Step("PUT", LEASES + "/l", lease("b", resourceVersion="{v}")),
        Step("PUT", LEASES + "/l", lease("c", resourceVersion="{v}")),
        Step("PUT", LEASES + "/new", {"metadata": {"name": "new"}, "spec": {"holderIdentity": "b"}}),
        Step("DELETE", LEASES + "/l"),
        Step("GET", LEASES),
    ],
    "lists are selected and come in pages": [
        *(made(name) for name in ("a", "b", "c", "d")),
        Step("POST", PODS + "/c/binding", binding("far-away") | {"metadata": {"name": "c"}}),
        Step("GET", PODS + "?limit=3", keep=("next", "metadata.continue")),
        Step("GET", PODS + "?limit=3&continue={next}"),
        Step("GET", PODS + "?labelSelector=app+in+(a,b)"),
        Step("GET", PODS + "?labelSelector=app!%3Da,app"),
        Step("GET", PODS + "?labelSelector=!app"),
        Step("GET", PODS + "?fieldSelector=spec.nodeName%3Dfar-away"),
        Step("GET", PODS + "?fieldSelector=metadata.name%3Db"),
        Step("DELETE", PODS + "?labelSelector=app%3Da"),
        Step("GET", PODS),
    ],
    "a watch tells what has changed": [
        made("before"),
        LIST,
        made("during"),
        Step("PATCH", PODS + "/before", {"metadata": {"labels": {"x": "1"}}}, MERGE),
        Step("DELETE", PODS + "/before"),
        Step("GET", PODS),  # after a consistent list the real one's cache, which feeds its watches, knows it all
        Step("GET", PODS + "?watch=1&timeoutSeconds=1&resourceVersion={rv}"),
        Step("GET", PODS + "?watch=1&timeoutSeconds=1&resourceVersion={rv}&labelSelector=x%3D1"),
        Step("GET", PODS + "?watch=1&timeoutSeconds=1"),
    ],
    "events have two forms": [
        Step(
            "POST", "/apis/events.k8s.io/v1/namespaces/{ns}/events",
            {
                "metadata": {"name": "e"}, "eventTime": "2026-01-01T00:00:00.000000Z", "type": "Normal", "reason": "R",
                "action": "A", "note": "said", "regarding": {"kind": "Pod", "name": "p", "namespace": "{ns}"},
                "reportingController": "carico", "reportingInstance": "i",
            },
        ),
        Step("GET", "/api/v1/namespaces/{ns}/events/e"),
        Step(
            "PATCH", "/apis/events.k8s.io/v1/namespaces/{ns}/events/e",
            {"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}}, MERGE,
        ),
        Step("GET", "/apis/events.k8s.io/v1/namespaces/{ns}/events"),
        Step("GET", "/api/v1/namespaces/{ns}/events?fieldSelector=involvedObject.name%3Dp"),
        Step("GET", "/api/v1/namespaces/{ns}/events?fieldSelector=involvedObject.name%3Dq"),
        Step(
            "POST", "/api/v1/namespaces/{ns}/events",
            {"metadata": {"name": "f"}, "involvedObject": {"kind": "Pod", "name": "p", "namespace": "{ns}"}},
        ),
        Step("GET", "/apis/events.k8s.io/v1/namespaces/{ns}/events/f"),
    ],
    "nodes and namespaces": [
        Step(
            "POST", "/api/v1/nodes",
            {"metadata": {"name": "{ns}"}, "status": {"capacity": {"cpu": "4"}, "addresses": HOME}},
        ),
        Step("PATCH", "/api/v1/nodes/{ns}", {"spec": {"unschedulable": True}}, STRATEGIC),
        Step("GET", "/api/v1/nodes?fieldSelector=spec.unschedulable%3Dtrue"),
        Step("DELETE", "/api/v1/nodes/{ns}"),
        Step("GET", "/api/v1/nodes/{ns}"),
        Step("DELETE", "/api/v1/namespaces/default"),
    ],
    "tables": [
        made("waits"),
        made("runs"),
        Step("POST", PODS + "/runs/binding", binding("far-away") | {"metadata": {"name": "runs"}}),
        Step("PATCH", PODS + "/runs/status", RUNS, MERGE),
        made("broke", restartPolicy="Never"),
        Step("POST", PODS + "/broke/binding", binding("far-away") | {"metadata": {"name": "broke"}}),
        Step("PATCH", PODS + "/broke/status", BROKE, MERGE),
        made("gated", schedulingGates=[{"name": "carico.test/wait"}]),
        made("goes"),
        Step("POST", PODS + "/goes/binding", binding("far-away") | {"metadata": {"name": "goes"}}),
        Step("DELETE", PODS + "/goes"),
        Step("GET", PODS, accept=TABLE),
        Step("GET", PODS + "/runs", accept=TABLE),
        Step("POST", LEASES, lease("a")),
        Step("GET", LEASES, accept=TABLE),
        Step("POST", "/apis/batch/v1/namespaces/{ns}/jobs", JOB),
        Step("GET", "/apis/batch/v1/namespaces/{ns}/jobs", accept=TABLE),
        Step(
            "POST", "/api/v1/namespaces/{ns}/events",
            {
                "metadata": {"name": "f"}, "involvedObject": {"kind": "Pod", "name": "runs", "namespace": "{ns}"},
                "reason": "Because", "message": "of this", "type": "Normal", "source": {"component": "me"}, "count": 3,
                "firstTimestamp": "2020-01-01T00:00:00Z", "lastTimestamp": "2021-01-01T00:00:00Z",
            },
        ),
        Step("GET", "/api/v1/namespaces/{ns}/events?fieldSelector=metadata.name%3Df", accept=TABLE),
        Step("GET", "/apis/scheduling.k8s.io/v1/priorityclasses", accept=TABLE),
        Step(
            "POST", "/api/v1/nodes",
            {"metadata": {"name": "{ns}", "labels": {"node-role.kubernetes.io/x": ""}}, "status": NODE},
        ),
        Step("GET", "/api/v1/nodes/{ns}", accept=TABLE),
        Step("DELETE", "/api/v1/nodes/{ns}"),
    ],
    "priority": [
        Step("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "{ns}"}, "value": 77}),
        made(priorityClassName="{ns}"),
        made("critical", priorityClassName="system-node-critical"),
        Step("PATCH", "/apis/scheduling.k8s.io/v1/priorityclasses/{ns}", {"value": 78}, MERGE),
        Step("DELETE", "/apis/scheduling.k8s.io/v1/priorityclasses/{ns}"),
    ],
    "nothing happens in a dry run": [
        Step("POST", PODS + "?dryRun=All", pod()),
        Step("GET", PODS + "/p"),
        made(),
        Step("PATCH", PODS + "/p?dryRun=All", {"metadata": {"labels": {"x": "1"}}}, MERGE),
        Step("DELETE", PODS + "/p?dryRun=All"),
        Step("GET", PODS + "/p"),
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def both(
    scale_cluster: Callable[[int], Cluster], embedded_cluster: Callable[[int], EmbeddedCluster]
) -> tuple[Cluster, EmbeddedCluster]:
    return scale_cluster(5), embedded_cluster(0)


def spoken(cluster: Cluster | EmbeddedCluster, steps: list[Step]) -> list[Answer]:
    with cluster.namespace() as namespace:
        speaker = ContractClient(cluster.kubeconfig, namespace)
        try:
            return speaker.play(steps)
        finally:
            speaker.close()


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_both_servers_answer_alike(both: tuple[Cluster, EmbeddedCluster], name: str) -> None:
    real, embedded = (spoken(cluster, CONVERSATIONS[name]) for cluster in both)
    for step, theirs, ours in zip(CONVERSATIONS[name], real, embedded, strict=True):
        assert ours == theirs, f"{step.method} {step.path} {step.body}"


def test_strangers_are_turned_away_alike(both: tuple[Cluster, EmbeddedCluster]) -> None:
    real, embedded = (unauthorised(cluster.kubeconfig, "/api/v1/nodes") for cluster in both)
    assert embedded == real
