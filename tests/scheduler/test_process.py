"""`carico scheduler` as people run it: a process on the embedded API server, and beside the stock kube-scheduler."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from carico.kube import credentials
from carico.kube.client import Client
from harness.cluster.cluster import Cluster, pod
from harness.cluster.fixtures import AnyCluster, only_real
from harness.cluster.ports import free_port
from harness.embedded.embedded_cluster import EmbeddedCluster
from harness.promtool import complaints
from harness.scheduler.fleet import Fleet, SchedulerProcess

NODES = 5


class Stage:
    def __init__(self, cluster: Cluster | EmbeddedCluster, process: SchedulerProcess) -> None:
        self.cluster, self.process = cluster, process

    def page(self, path: str, body: Any = None) -> str:
        data = json.dumps(body).encode() if body is not None else None
        headers = {"Content-Type": "application/json"} if data is not None else {}
        request = urllib.request.Request(f"http://127.0.0.1:{self.process.page_port}{path}", data, headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return str(answer.read().decode())

    def word(self, *argv: str, stdin: str = "") -> str:
        command = [sys.executable, "-m", "carico.cli", *argv]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def create(self, namespace: str, name: str, **spec: Any) -> None:
        requests = spec.pop("requests", None)
        item = pod(name, ["x"], schedulerName=spec.pop("schedulerName", "carico"), **spec)
        if requests:
            item["spec"]["containers"][0]["resources"] = {"requests": requests}
        self.cluster.create(item, namespace)

    def get(self, namespace: str, name: str) -> dict[str, Any]:
        return dict(self.cluster.api.get(f"/api/v1/namespaces/{namespace}/pods/{name}"))

    def node_of(self, namespace: str, name: str) -> str:
        def bound() -> str | None:
            node: str | None = self.get(namespace, name)["spec"].get("nodeName")
            return node

        return str(self.cluster.wait_for(f"{name} to be bound", bound))

    def refusal(self, namespace: str, name: str) -> str:
        def said() -> str | None:
            conditions = self.get(namespace, name)["status"].get("conditions", [])
            return next(
                (c["message"] for c in conditions if c["type"] == "PodScheduled" and c["reason"] == "Unschedulable"),
                None,
            )

        return str(self.cluster.wait_for(f"the condition of {name}", said))

    def events(self, namespace: str, name: str, reason: str) -> list[str]:
        def found() -> list[str]:
            items = self.cluster.api.get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")["items"]
            return [e["note"] for e in items if e["regarding"]["name"] == name and e["reason"] == reason]

        return list(self.cluster.wait_for(f"event {reason} of {name}", found))


@pytest.fixture(scope="module")
def stage(any_cluster: AnyCluster) -> Iterator[Stage]:
    cluster, port = any_cluster(NODES), free_port()
    stop = threading.Event()

    async def report() -> None:
        client = Client(credentials.from_kubeconfig(cluster.kubeconfig))
        nodes = {f"kwok-{i:04d}": 100.0 for i in range(NODES)}
        async with Fleet(client, nodes, [f"127.0.0.1:{port}"], "", lag=0.5).at_work():
            await asyncio.to_thread(stop.wait)
        await client.close()

    agents = threading.Thread(target=lambda: asyncio.run(report()))
    process = SchedulerProcess(
        cluster.kubeconfig, port, "--validate", "--leader-elect-resource-name", "carico-process-test"
    )
    agents.start()
    try:
        yield Stage(cluster, process)
    finally:
        stop.set()
        agents.join(timeout=30)
        process.stop(signal.SIGKILL)


def test_a_pod_is_bound_and_people_can_see_why(stage: Stage) -> None:
    with stage.cluster.namespace() as namespace:
        stage.create(namespace, "p")
        node = stage.node_of(namespace, "p")
        assert stage.events(namespace, "p", "Scheduled") == [f"Successfully assigned {namespace}/p to {node}"]
        decisions = [json.loads(line) for line in stage.page("/debug/decisions").splitlines()]
        [decision] = [d for d in decisions if d["pod"] == f"{namespace}/p" and d.get("node")]
        assert decision["node"] == node
        assert decision["free_before"] > 1
        assert stage.page("/readyz") == "ok\n"
        assert stage.page("/healthz") == "ok\n"


def test_an_unschedulable_pod_has_its_condition_and_is_placed_when_it_can(stage: Stage) -> None:
    with stage.cluster.namespace() as namespace:
        stage.create(namespace, "p", nodeSelector={"carico.test/disk": namespace})
        message = stage.refusal(namespace, "p")
        assert message == f"0/{NODES} nodes are available: {NODES} node(s) didn't match Pod's node affinity/selector."
        assert stage.events(namespace, "p", "FailedScheduling")[0] == message
        stage.cluster.api.patch("/api/v1/nodes/kwok-0003", {"metadata": {"labels": {"carico.test/disk": namespace}}})
        assert stage.node_of(namespace, "p") == "kwok-0003"


def test_gates_hold_a_pod_and_let_it_go(stage: Stage) -> None:
    with stage.cluster.namespace() as namespace:
        stage.create(namespace, "p", schedulingGates=[{"name": "carico.test/wait"}])
        stage.create(namespace, "q")
        stage.node_of(namespace, "q")  # a pod that came later has passed it
        assert "nodeName" not in stage.get(namespace, "p")["spec"]
        stage.cluster.api.patch(f"/api/v1/namespaces/{namespace}/pods/p", {"spec": {"schedulingGates": None}})
        assert stage.node_of(namespace, "p")


def test_the_more_important_pod_makes_room_for_itself(stage: Stage) -> None:
    with stage.cluster.namespace() as namespace:
        priority = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": namespace}}
        stage.cluster.api.post("/apis/scheduling.k8s.io/v1/priorityclasses", priority | {"value": 1000})
        only = {"nodeSelector": {"kubernetes.io/hostname": "kwok-0002"}, "requests": {"cpu": "30"}}
        stage.create(namespace, "low", **only)
        stage.node_of(namespace, "low")
        stage.create(namespace, "high", priorityClassName=namespace, **only)
        assert stage.node_of(namespace, "high") == "kwok-0002"
        assert "on node kwok-0002" in stage.events(namespace, "low", "Preempted")[0]
        gone = stage.cluster.api.get(f"/api/v1/namespaces/{namespace}/pods?fieldSelector=metadata.name%3Dlow")
        assert not gone["items"]
        stage.cluster.api.delete(f"/apis/scheduling.k8s.io/v1/priorityclasses/{namespace}")


def test_a_node_is_nominated_while_the_victim_leaves(stage: Stage) -> None:
    with stage.cluster.namespace() as namespace:
        priority = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": namespace}}
        stage.cluster.api.post("/apis/scheduling.k8s.io/v1/priorityclasses", priority | {"value": 1000})
        only = {"nodeSelector": {"kubernetes.io/hostname": "kwok-0002"}, "requests": {"cpu": "30"}}
        stage.create(namespace, "low", **only)
        stage.node_of(namespace, "low")
        low = f"/api/v1/namespaces/{namespace}/pods/low"
        stage.cluster.api.patch(low, {"metadata": {"finalizers": ["carico.test/stays"]}})  # it stays
        stage.create(namespace, "high", priorityClassName=namespace, **only)

        def nominated() -> str | None:
            node: str | None = stage.get(namespace, "high")["status"].get("nominatedNodeName")
            return node

        assert stage.cluster.wait_for("nomination", nominated) == "kwok-0002"
        stage.create(namespace, "thief", **only)  # as large, less important
        stage.refusal(namespace, "thief")
        stage.cluster.api.patch(low, {"metadata": {"finalizers": None}})
        assert stage.node_of(namespace, "high") == "kwok-0002"
        assert "nodeName" not in stage.get(namespace, "thief")["spec"]
        stage.cluster.api.delete(f"/apis/scheduling.k8s.io/v1/priorityclasses/{namespace}")


def test_what_is_not_supported_is_refused_loudly(stage: Stage) -> None:
    with stage.cluster.namespace() as namespace:
        claims = [{"name": "gpu", "resourceClaimName": "none"}]
        stage.create(namespace, "p", resourceClaims=claims)
        assert "does not support dynamic resource allocation" in stage.refusal(namespace, "p")
        assert 'carico_scheduler_unsupported_pods_total{feature="dynamic resource allocation' in stage.page("/metrics")


def test_pods_that_a_kubelet_refuses_are_counted(stage: Stage) -> None:
    with stage.cluster.namespace() as namespace:
        stage.create(namespace, "p")
        stage.node_of(namespace, "p")
        path = f"/api/v1/namespaces/{namespace}/pods/p"
        stage.cluster.wait_for("p to run", lambda: stage.get(namespace, "p")["status"]["phase"] == "Running")
        stage.cluster.api.patch(f"{path}/status", {"status": {"phase": "Failed", "reason": "OutOfcpu"}})
        counted = 'carico_scheduler_rejected_pods_total{reason="OutOfcpu",scheduler="carico"} 1.0'
        stage.cluster.wait_for("the count", lambda: counted in stage.page("/metrics"))


def test_the_last_decisions_are_replayed(stage: Stage) -> None:
    with stage.cluster.namespace() as namespace:
        stage.create(namespace, "p")
        node = stage.node_of(namespace, "p")
        server = ("--server", f"http://127.0.0.1:{stage.process.page_port}")
        told = stage.word("decisions", *server, "--pod", f"{namespace}/p")
        assert node in told
        assert "none violate the rules" in told
        os.kill(stage.process.pid, signal.SIGUSR2)
        stage.process.wait_for(f'"pod":"{namespace}/p".*"node":"{node}"')
        stage.process.wait_for("the ledger is consistent")
        dumped = stage.word("decisions", "-", "--pod", f"{namespace}/p", stdin=stage.process.log())
        assert node in dumped


@only_real
def test_both_schedulers_share_the_nodes(stage: Stage) -> None:
    with stage.cluster.namespace() as namespace:
        for i in range(10):
            stage.create(namespace, f"ours-{i}", requests={"cpu": "2"})
            stage.create(namespace, f"theirs-{i}", schedulerName="default-scheduler", requests={"cpu": "2"})
        nodes = [stage.node_of(namespace, f"{who}-{i}") for who in ("ours", "theirs") for i in range(10)]
        assert max(nodes.count(node) for node in nodes) * 2 <= 32  # cores of a node
        uid = stage.get(namespace, "theirs-0")["metadata"]["uid"]

        def known() -> bool:
            rows = json.loads(stage.page("/debug/ledger"))["nodes"].values()
            return any(uid in row["pods"] for row in rows)

        stage.cluster.wait_for("our ledger to have their pod", known)  # by the scheduler's own watch


def test_the_command_explain_with_a_pod_and_with_a_file(stage: Stage) -> None:
    server = f"http://127.0.0.1:{stage.process.page_port}"
    with stage.cluster.namespace() as namespace:
        stage.create(namespace, "p", nodeSelector={"no": "such"})
        stage.refusal(namespace, "p")
        table = stage.word("explain", "pod", f"{namespace}/p", "--server", server)
        assert "NodeAffinity: node(s) didn't match Pod's node affinity/selector" in table
        text = json.dumps(pod("dry", ["x"], nodeSelector={"kubernetes.io/hostname": "kwok-0001"}))
        asked = ("explain", "-f", "-", "--feasible", "--json")
        assert json.loads(stage.word(*asked, "--server", server, stdin=text)) == ["kwok-0001"]
        config = ("--kubeconfig", str(stage.cluster.kubeconfig))
        assert json.loads(stage.word(*asked, *config, stdin=text)) == ["kwok-0001"]
        assert json.loads(stage.word("explain", "pod", f"{namespace}/p", "--json", *config))["nodes"]


def nowhere(folder: Path) -> str:
    """A kubeconfig of an API server that does not answer."""
    file = folder / "kubeconfig"
    cluster = {"name": "c", "cluster": {"server": "https://127.0.0.1:9"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    users = [{"name": "u", "user": {"token": "t"}}]
    whole = {"current-context": "c", "clusters": [cluster], "contexts": [context], "users": users}
    file.write_text(json.dumps(whole))
    return str(file)


def test_a_pod_is_simulated_as_people_write_it(stage: Stage, tmp_path: Path) -> None:
    asked = ("explain", "-f", "-", "--json", "--server", f"http://127.0.0.1:{stage.process.page_port}")
    config = ("--kubeconfig", str(stage.cluster.kubeconfig))
    with stage.cluster.namespace() as namespace:
        item = pod("x", ["x"])
        item["metadata"] = {"generateName": "job-", "namespace": namespace}
        item["spec"]["containers"][0]["resources"] = {"requests": {"cpu": 0.5}, "limits": {"cpu": 1, "memory": "1Gi"}}
        answer = json.loads(stage.word(*asked, *config, stdin=json.dumps(item)))
        assert answer["pod"].startswith(f"{namespace}/job-")
        assert answer["choice"]
        assert "notes" not in answer
        item["spec"]["containers"][0]["resources"] = {"limits": {"cpu": 5000}}
        refused = json.loads(stage.word(*asked, *config, stdin=json.dumps(item)))
        assert refused["message"] == f"0/{NODES} nodes are available: {NODES} Insufficient cpu."
        offline = json.loads(stage.word(*asked, "--kubeconfig", nowhere(tmp_path), stdin=json.dumps(item)))
        assert offline["message"] == refused["message"]
        assert offline["notes"][0].startswith("no API server could apply its defaults")
        assert stage.cluster.api.get(f"/api/v1/namespaces/{namespace}/pods")["items"] == []


@only_real
def test_what_admission_sets_counts_in_a_simulation(stage: Stage, tmp_path: Path) -> None:
    asked = ("explain", "-f", "-", "--json", "--server", f"http://127.0.0.1:{stage.process.page_port}")
    with stage.cluster.namespace() as namespace:
        limits = [{"type": "Container", "defaultRequest": {"cpu": "5k"}, "default": {"cpu": "5k"}}]
        made = {"metadata": {"name": "l"}, "spec": {"limits": limits}}
        stage.cluster.api.post(f"/api/v1/namespaces/{namespace}/limitranges", made)
        item = pod("x", ["x"]) | {"metadata": {"name": "x", "namespace": namespace}}
        word = (*asked, "--kubeconfig", str(stage.cluster.kubeconfig))
        # The LimitRanger of the API server reads through a watch of its own.
        stage.cluster.wait_for(
            "the LimitRange to count",
            lambda: "Insufficient cpu" in json.loads(stage.word(*word, stdin=json.dumps(item))).get("message", ""),
        )
        without = json.loads(stage.word(*asked, "--kubeconfig", nowhere(tmp_path), stdin=json.dumps(item)))
        assert without["choice"]
        assert "LimitRange" in without["notes"][0]


@only_real
def test_devices_of_a_class_are_refused_by_name(stage: Stage) -> None:
    with stage.cluster.namespace() as namespace:
        resource = f"{namespace}.example.com/gpu"
        classes = "/apis/resource.k8s.io/v1/deviceclasses"
        stage.cluster.api.post(classes, {"metadata": {"name": namespace}, "spec": {"extendedResourceName": resource}})

        asked = {"spec": {"containers": [{"resources": {"limits": {resource: 1}}}]}}
        said = (
            "carico does not support dynamic resource allocation (an extended resource of a DeviceClass): " + resource
        )
        stage.cluster.wait_for("the class to be known", lambda: said in stage.page("/simulate", asked))
        item = pod("p", ["x"], schedulerName="carico")
        item["spec"]["containers"][0]["resources"] = {"limits": {resource: "1"}}
        stage.cluster.create(item, namespace)
        assert said in stage.refusal(namespace, "p")
        stage.cluster.api.delete(f"{classes}/{namespace}")


def test_metrics_have_kube_schedulers_names(stage: Stage) -> None:
    page = stage.page("/metrics")
    for name in (
        'scheduler_pending_pods{queue="active"}',
        'scheduler_schedule_attempts_total{profile="carico",result="scheduled"}',
        "scheduler_scheduling_attempt_duration_seconds_bucket",
        "scheduler_pod_scheduling_sli_duration_seconds_bucket",
        'scheduler_framework_extension_point_duration_seconds_bucket{extension_point="Filter"',
        "scheduler_queue_incoming_pods_total",
        "carico_scheduler_leader 1.0",
        "carico_scheduler_stale_nodes 0.0",
        'carico_scheduler_reports_total{result="accepted"}',
        'carico_node_free_pods{node="kwok-0000"}',
        "carico_scheduler_handover_duration_seconds_count",
    ):
        assert name in page, name


def _has(page: str, names: tuple[str, ...]) -> bool:
    return all(name in page for name in names)


@pytest.mark.needs("promtool")
def test_promtool_accepts_the_page_of_a_scheduler_at_work(stage: Stage) -> None:
    names = (
        'leader_election_master_status{name="carico-process-test"} 1.0',
        'rest_client_requests_total{code="201",',
        'rest_client_request_duration_seconds_bucket{host="',
        'grpc_server_started_total{grpc_method="Report"',
        'carico_event_loop_lag_seconds_bucket{component="scheduler"',
        "# TYPE scheduler_plugin_execution_duration_seconds histogram",
        'carico_http_requests_total{code="200",component="scheduler",listener="debug_listen"}',
    )
    with stage.cluster.namespace() as namespace:
        stage.create(namespace, "p")
        stage.node_of(namespace, "p")
        # The API server has the binding before the scheduler has its answer, which is what it counts.
        stage.cluster.wait_for("every metric of work", lambda: _has(stage.page("/metrics"), names))
        assert complaints(stage.page("/metrics")) == ""


@only_real
def test_a_volume_is_bound_where_the_pod_goes(stage: Stage) -> None:
    """WaitForFirstConsumer with a local volume: pre-bind writes the choice, the volume controller completes it."""
    with stage.cluster.namespace() as namespace:
        api = stage.cluster.api
        storage = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": namespace}}
        late = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}
        api.post("/apis/storage.k8s.io/v1/storageclasses", storage | late)
        here = [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["kwok-0004"]}]
        place = {"required": {"nodeSelectorTerms": [{"matchExpressions": here}]}}
        spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": namespace}
        volume = {"metadata": {"name": namespace}, "spec": spec | {"local": {"path": "/mnt"}, "nodeAffinity": place}}
        api.post("/api/v1/persistentvolumes", volume)
        wish = {"accessModes": ["ReadWriteOnce"], "storageClassName": namespace}
        claim = {"metadata": {"name": "data"}, "spec": wish | {"resources": {"requests": {"storage": "1Gi"}}}}
        api.post(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims", claim)
        stage.create(namespace, "p", volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}])
        assert stage.node_of(namespace, "p") == "kwok-0004"
        bound = api.get(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/data")
        assert bound["spec"]["volumeName"] == namespace
        api.delete(f"/api/v1/persistentvolumes/{namespace}")
        api.delete(f"/apis/storage.k8s.io/v1/storageclasses/{namespace}")
