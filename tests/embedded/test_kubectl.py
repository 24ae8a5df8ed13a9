"""The stock kubectl against the embedded API server: what a person types works, and nothing on stderr is scary."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.cluster import builder
from harness.cluster.fixtures import needs_scale
from harness.embedded.embedded_cluster import EmbeddedCluster

pytestmark = [pytest.mark.cluster, needs_scale]

NODES = 2
MANIFEST = """
apiVersion: v1
kind: Pod
metadata:
  name: web
  labels: {app: web}
spec:
  schedulerName: nobody
  containers:
  - name: main
    image: example.com/web:1
    command: [sleep, "60"]
    env: [{name: COLOUR, value: blue}]
    ports: [{containerPort: 80}]
"""


class Kubectl:
    def __init__(self, cluster: EmbeddedCluster, namespace: str, home: Path) -> None:
        self.cluster, self.namespace = cluster, namespace
        self._binary = builder.build(["kubectl"])["kubectl"]
        # A home of its own: kubectl caches the discovery of a server there.
        self._environ = os.environ | {"HOME": str(home), "KUBECONFIG": str(cluster.kubeconfig)}

    def start(self, *argv: str, stdin: Any = None) -> subprocess.Popen[str]:
        command = [self._binary, "-n", self.namespace, *argv]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdin=stdin, stdout=pipe, stderr=pipe, text=True, env=self._environ)

    def __call__(self, *argv: str, stdin: str = "", fails: bool = False, warns: bool = False) -> str:
        """Its output; any text on stderr fails the test, unless it is expected."""
        with self.start(*argv, stdin=subprocess.PIPE) as child:
            out, err = child.communicate(stdin, timeout=60)
        if fails:
            assert child.returncode != 0, out
            return err
        if warns:
            assert child.returncode == 0, err
            return err
        assert (child.returncode, err) == (0, ""), f"kubectl {' '.join(argv)}: {err}"
        return out

    def bind(self, name: str, node: str) -> None:
        path = f"/api/v1/namespaces/{self.namespace}/pods/{name}/binding"
        self.cluster.api.post(path, {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}})

    def says(self, name: str, phase: str, state: dict[str, Any]) -> None:
        """The status that a node would write for a pod."""
        status = {"name": "main", "image": "i", "imageID": "", "ready": False, "restartCount": 0, "state": state}
        body = {"status": {"phase": phase, "containerStatuses": [status]}}
        self.cluster.api.patch(f"/api/v1/namespaces/{self.namespace}/pods/{name}/status", body)

    def pod(self, name: str) -> dict[str, Any]:
        return dict(self.cluster.api.get(f"/api/v1/namespaces/{self.namespace}/pods/{name}"))


@pytest.fixture
def kubectl(embedded_cluster: Callable[[int], EmbeddedCluster], tmp_path: Path) -> Iterator[Kubectl]:
    cluster = embedded_cluster(NODES)
    with cluster.namespace() as namespace:
        yield Kubectl(cluster, namespace, tmp_path)


def cells(table: str) -> list[list[str]]:
    return [line.split() for line in table.splitlines()]


def test_the_server_serves_its_version(kubectl: Kubectl) -> None:
    assert "Server Version: v1." in kubectl("version")
    resources = kubectl("api-resources")
    for line in ("pods", "nodes", "events", "leases", "jobs", "poddisruptionbudgets", "storageclasses"):
        assert f"\n{line} " in resources
    assert kubectl("cluster-info").startswith("Kubernetes control plane is running at https://127.0.0.1:")


def test_drain_evicts(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=MANIFEST)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}
    path = f"/api/v1/namespaces/{kubectl.namespace}/pods/web"
    kubectl.cluster.api.patch(path, {"metadata": {"ownerReferences": [owner]}})  # kubectl warns of pods without one
    kubectl.bind("web", "kwok-0001")
    said = kubectl("drain", "kwok-0001", "--pod-selector=app=web", "--grace-period=0", "--timeout=60s")
    assert f"evicting pod {kubectl.namespace}/web" in said
    assert said.endswith("node/kwok-0001 drained\n")
    kubectl("uncordon", "kwok-0001")


def test_apply_creates_then_changes_then_rests(kubectl: Kubectl) -> None:
    assert kubectl("apply", "-f", "-", stdin=MANIFEST) == "pod/web created\n"
    assert kubectl("apply", "-f", "-", stdin=MANIFEST) == "pod/web unchanged\n"
    changed = MANIFEST.replace("{app: web}", "{app: web, tier: front}").replace("web:1", "web:2")
    assert kubectl("apply", "-f", "-", stdin=changed) == "pod/web configured\n"
    pod = kubectl.pod("web")
    assert pod["metadata"]["labels"] == {"app": "web", "tier": "front"}
    assert pod["spec"]["containers"][0]["image"] == "example.com/web:2"
    assert kubectl("apply", "-f", "-", stdin=MANIFEST) == "pod/web configured\n"
    assert kubectl.pod("web")["metadata"]["labels"] == {"app": "web"}  # what was applied before is taken away again
    said = kubectl("apply", "-f", "-", stdin=MANIFEST.replace("nobody", "somebody"), fails=True)
    assert "pod updates may not change fields other than" in said


def test_create_label_annotate_patch_and_diff(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=MANIFEST)
    assert "already exists" in kubectl("create", "-f", "-", stdin=MANIFEST, fails=True)
    kubectl("label", "pod", "web", "x=1")
    kubectl("annotate", "pod", "web", "carico.dev/units=2")
    kubectl("patch", "pod", "web", "--type=json", "-p", '[{"op": "remove", "path": "/metadata/labels/x"}]')
    kubectl("patch", "pod", "web", "-p", '{"metadata": {"labels": {"y": "2"}}}')
    meta = kubectl.pod("web")["metadata"]
    assert (meta["labels"], meta["annotations"]) == ({"app": "web", "y": "2"}, {"carico.dev/units": "2"})


def test_get_shows_what_it_shows_of_a_real_cluster(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=MANIFEST)
    assert cells(kubectl("get", "pods"))[0] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert cells(kubectl("get", "pods"))[1][:4] == ["web", "0/1", "Pending", "0"]
    kubectl.bind("web", "kwok-0001")
    kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=60s")
    wide = kubectl("get", "pods", "-o", "wide")
    assert " ".join(wide.splitlines()[0].split()) == (
        "NAME READY STATUS RESTARTS AGE IP NODE NOMINATED NODE READINESS GATES"
    )
    row = cells(wide)[1]
    assert (row[:4], row[5:]) == (
        ["web", "1/1", "Running", "0"],
        ["127.0.0.1", "kwok-0001", "<none>", "<none>"],
    )
    assert json.loads(kubectl("get", "pod", "web", "-o", "json"))["spec"]["nodeName"] == "kwok-0001"
    assert kubectl("get", "pods", "-l", "app=web", "-o", "name") == "pod/web\n"
    assert kubectl("get", "pods", "--field-selector", "spec.nodeName=kwok-0001", "-o", "name") == "pod/web\n"
    assert "web" in kubectl("get", "pods", "-A")
    nodes = cells(kubectl("get", "nodes"))
    assert nodes[0] == ["NAME", "STATUS", "ROLES", "AGE", "VERSION"]
    assert [row[:3] for row in nodes[1:]] == [["kwok-0000", "Ready", "<none>"], ["kwok-0001", "Ready", "<none>"]]


def test_describe_shows_all_of_a_pod_and_a_node(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=MANIFEST)
    kubectl.bind("web", "kwok-0000")
    kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=60s")
    uid = kubectl.pod("web")["metadata"]["uid"]
    about = {"kind": "Pod", "name": "web", "namespace": kubectl.namespace, "uid": uid}
    said = {"type": "Normal", "reason": "Scheduled", "action": "Binding", "note": "assigned to kwok-0000"}
    event = {"metadata": {"name": "web.1"}, "regarding": about, "eventTime": "2026-01-01T00:00:00.000000Z"} | said
    speaker = {"reportingController": "carico-scheduler", "reportingInstance": "test"}
    kubectl.cluster.api.post(f"/apis/events.k8s.io/v1/namespaces/{kubectl.namespace}/events", event | speaker)
    text = kubectl("describe", "pod", "web")
    for words in ("Node:             kwok-0000", "Status:           Running", "COLOUR:  blue", "80/TCP", "QoS Class:"):
        assert words in text, text
    assert cells(text)[-1][:2] == ["Normal", "Scheduled"]
    assert text.rstrip().endswith("carico-scheduler  assigned to kwok-0000")
    assert cells(kubectl("get", "events"))[1][1:4] == ["Normal", "Scheduled", "pod/web"]
    assert "assigned to kwok-0000" in kubectl("events")
    node = kubectl("describe", "node", "kwok-0000")
    assert "web" in node.partition("Non-terminated Pods:")[2]
    assert "KubeletReady" in node


def test_watching_sees_a_pod_come_change_and_go(kubectl: Kubectl) -> None:
    seen: list[str] = []
    news = threading.Condition()
    with kubectl.start("get", "pods", "--watch", "--output-watch-events") as watching:
        assert watching.stdout is not None

        def read() -> None:
            for line in watching.stdout or ():
                with news:
                    seen.append(" ".join(line.split()[:4]))
                    news.notify_all()

        def until(words: str) -> None:
            with news:
                assert news.wait_for(lambda: words in seen, 60), seen

        reader = threading.Thread(target=read)
        reader.start()
        try:
            kubectl("apply", "-f", "-", stdin=MANIFEST)
            until("ADDED web 0/1 Pending")
            kubectl.bind("web", "kwok-0000")
            until("MODIFIED web 1/1 Running")
            kubectl("delete", "pod", "web")
            until("DELETED web 1/1 Terminating")
        finally:
            watching.terminate()
            reader.join()


def test_delete_waits_for_the_node_and_force_does_not(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=MANIFEST)
    kubectl.bind("web", "kwok-0000")
    assert "deleted" in kubectl("delete", "pod", "web")
    assert "NotFound" in kubectl("get", "pod", "web", fails=True)
    kubectl("apply", "-f", "-", stdin=MANIFEST)
    kubectl.bind("web", "a-node-that-is-not-simulated")
    kubectl("delete", "pod", "web", "--wait=false")
    assert cells(kubectl("get", "pods"))[1][2] == "Terminating"
    warned = kubectl("delete", "pod", "web", "--grace-period=0", "--force", warns=True)
    assert warned.startswith("Warning: Immediate deletion does not wait")
    assert kubectl("get", "pods", "-o", "name") == ""
    kubectl("apply", "-f", "-", stdin=MANIFEST)
    assert "deleted" in kubectl("delete", "pods", "--all")


def test_logs_are_shown_and_followed(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=MANIFEST)
    kubectl.bind("web", "a-node-that-is-not-simulated")  # it ends when the test writes its status
    kubectl.says("web", "Running", {"running": {"startedAt": "2026-01-01T00:00:00Z"}})
    file = kubectl.cluster.logs / kubectl.pod("web")["metadata"]["uid"] / "main.log"
    file.parent.mkdir(parents=True)
    file.write_text("one\ntwo\nthree\n")
    assert kubectl("logs", "web") == "one\ntwo\nthree\n"
    assert kubectl("logs", "web", "--tail=1") == "three\n"
    with kubectl.start("logs", "-f", "web", "--tail=1") as following:
        assert following.stdout is not None
        assert following.stdout.readline() == "three\n"
        with file.open("a") as more:
            more.write("four\n")
        assert following.stdout.readline() == "four\n"
        kubectl.says("web", "Succeeded", {"terminated": {"exitCode": 0, "reason": "Completed"}})
        assert following.stdout.read() == ""  # the pod has ended, and so has its log
    assert following.returncode == 0
    assert "container nothing is not valid" in kubectl("logs", "web", "-c", "nothing", fails=True)
    assert cells(kubectl("get", "pods"))[1][2] == "Completed"


def test_namespaces_come_and_go_with_all_in_them(kubectl: Kubectl) -> None:
    second = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"{kubectl.namespace}-two"}}
    kubectl("create", "-f", "-", stdin=json.dumps(second))
    kubectl("apply", "-n", f"{kubectl.namespace}-two", "-f", "-", stdin=MANIFEST)
    said = kubectl("delete", "namespace", f"{kubectl.namespace}-two", warns=True)
    assert said == "Warning: deleting cluster-scoped resources, not scoped to the provided namespace\n"  # our own -n
    assert f"{kubectl.namespace}-two" not in kubectl("get", "namespaces")


def test_what_cannot_be_read_is_refused_with_a_way_out(kubectl: Kubectl) -> None:
    said = kubectl("create", "job", "j", "--image=x", fails=True)
    assert "--dry-run=client -o yaml | kubectl apply -f -" in said
    written = kubectl("create", "job", "j", "--image=x", "--dry-run=client", "-o", "yaml")
    assert kubectl("apply", "-f", "-", stdin=written) == "job.batch/j created\n"
    assert cells(kubectl("get", "jobs"))[1][:3] == ["j", "Running", "0/1"]


def test_a_wrong_manifest_is_refused_in_one_line(kubectl: Kubectl) -> None:
    said = kubectl(
        "apply", "-f", "-", stdin=MANIFEST.replace("image: example.com/web:1", "imagePullPolicy: Never"), fails=True
    )
    assert said.strip() == 'The Pod "web" is invalid: spec.containers[0].image: Required value'
