"""Carico on a real kubelet, installed by its manifests as they are but for the image's name.

One cluster for all tests of this file, which run in their order: the installation, a Job, what can be seen of it, its
rights, and its removal.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.cluster.cluster import Cluster
from harness.cluster.errors import ClusterError
from harness.cluster.fixtures import needs_node
from harness.cluster.images import BUSYBOX
from harness.cluster.ports import free_port
from harness.cluster.runs import CHECKOUT
from harness.install import image
from harness.install.deploy import NAMESPACE, Installed

pytestmark = [pytest.mark.cluster, pytest.mark.slow, needs_node, pytest.mark.needs("image", "promtool")]

PATIENCE = 400.0  # s; other load on the machine is load on the node, and its pods wait for room
PODS = 30
GOLDEN = Path(__file__).with_name("rights.txt")
MONITORING = CHECKOUT / "scheduler" / "prometheus"
# Rights that this run need not use, and the test that does.
USED_ELSEWHERE = {
    "delete pods": "tests/scheduler/test_rights.py",
    "get pods": "tests/scheduler/test_rights.py",
    "patch events.k8s.io/events": "tests/scheduler/test_rights.py",
    "patch persistentvolumeclaims": "tests/scheduler/test_rights.py",
    "patch persistentvolumes": "tests/scheduler/test_rights.py",
    "update secrets": "tests/scheduler/test_certificate_issuer.py",
    "update configmaps": "tests/scheduler/test_certificate_issuer.py",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(kubelet=True, audited=f"system:serviceaccounts:{NAMESPACE}") as started:
        yield started


@pytest.fixture(scope="module")
def before(cluster: Cluster) -> set[str]:
    return _objects(cluster)


@pytest.fixture(scope="module")
def installed(cluster: Cluster, before: set[str]) -> Installed:
    assert before, "what the cluster had before"
    installed = Installed(cluster.run)
    installed.import_image(image.image_file())
    installed.apply()
    installed.wait_until_ready(PATIENCE)
    return installed


def _objects(cluster: Cluster) -> set[str]:
    """All objects of the cluster but those that every cluster makes and removes by itself."""
    kinds = cluster.kubectl("api-resources", "--verbs=list", "-o", "name").split()
    listed = [kind for kind in kinds if kind.split(".")[0] not in ("events", "leases")]
    columns = "NS:.metadata.namespace,NAME:.metadata.name,KIND:.kind,API:.apiVersion"
    rows = cluster.kubectl("get", ",".join(listed), "-A", "--no-headers", "-o", f"custom-columns={columns}")
    return {" ".join(row.split()) for row in rows.splitlines()}


def test_all_pods_become_ready(installed: Installed) -> None:
    pods = installed.pods()
    names = sorted(pod["metadata"]["labels"]["app.kubernetes.io/name"] for pod in pods)
    assert names == ["carico-agent", "carico-aggregator", "carico-scheduler", "carico-scheduler"]
    assert all(pod["spec"]["schedulerName"] == "default-scheduler" for pod in pods)


@pytest.mark.usefixtures("installed")
def test_a_job_without_requests_completes(cluster: Cluster) -> None:
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(_job()))
    done = ("wait", "--for=condition=Complete", "job/pi", "--timeout=2s")

    def complete() -> bool:
        try:
            return "met" in cluster.kubectl(*done)
        except ClusterError:
            return False

    cluster.wait_for("the Job", complete, PATIENCE)
    assert json.loads(cluster.kubectl("get", "job", "pi", "-o", "json"))["status"]["succeeded"] == PODS


def _job() -> dict[str, Any]:
    container: dict[str, Any] = {"name": "pi", "image": BUSYBOX, "imagePullPolicy": "Never"}
    container["command"] = ["sh", "-c", "echo 'scale=300; 4*a(1)' | bc -l"]
    spec = {"schedulerName": "carico", "restartPolicy": "Never", "containers": [container]}
    template = {"metadata": {"labels": {"app": "pi"}}, "spec": spec}
    job = {"completions": PODS, "parallelism": PODS, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "pi"}, "spec": job}


def _leader(installed: Installed) -> str:
    holder = installed.kubectl(
        "get", "lease", "carico-scheduler", "-n", NAMESPACE, "-o", "jsonpath={.spec.holderIdentity}"
    )
    return holder.rpartition("_")[0]


def test_every_decision_had_enough_room(installed: Installed) -> None:
    """Replayed by `carico decisions` inside the leader's pod."""
    carico = ("carico", "decisions", "--server", "127.0.0.1:9469")
    said = installed.kubectl("exec", "-n", NAMESPACE, _leader(installed), "--", *carico)
    assert said.splitlines()[-1].endswith("none violate the rules")
    found = re.search(r"replayed \d+ decisions \(.*?(\d+) scheduled", said)
    assert found is not None, said.splitlines()[-1]
    assert int(found[1]) >= PODS


def test_events_and_conditions_read_well(cluster: Cluster) -> None:
    name = cluster.kubectl("get", "pods", "-l", "app=pi", "-o", "name").split()[0]
    described = cluster.kubectl("describe", name)
    assert re.search(
        r"Normal +Scheduled .* carico-scheduler +Successfully assigned default/pi-\w+ to node-1", described
    )


def test_kubectl_shows_what_is_left_on_the_node(cluster: Cluster) -> None:
    head, row = cluster.kubectl("get", "ncap").splitlines()
    shown = dict(zip(head.split(), row.split(), strict=True))
    assert shown["NAME"] == "node-1"
    assert float(shown["POD-CAPACITY"]) >= 0
    assert shown["STALE"] == "false"


def test_a_real_prometheus_finds_all_metrics_of_dashboards_and_rules(
    cluster: Cluster, installed: Installed, tmp_path: Path
) -> None:
    with Prometheus(cluster, installed, tmp_path) as port:
        jobs = cluster.wait_for("four scraped pods", lambda: _healthy(cluster, port), 120)
        assert jobs == {"carico-agent", "carico-aggregator", "carico-scheduler"}
        names = set(_query(cluster, port, "label/__name__/values"))
        # A metric with labels has no series until the first event of its kind; Prometheus knows it by its TYPE.
        names |= {name + end for name in _query(cluster, port, "metadata") for end in ("", "_total", "_bucket")}
    assert {"carico_node_capacity_pods", "carico_scheduler_leader", "carico_aggregator_streams"} <= names
    texts = "".join(file.read_text() for file in MONITORING.rglob("*") if file.suffix in (".json", ".yaml"))
    used = set(re.findall(r"\b(?:carico|scheduler|rest_client)_[a-z0-9_]+(?=[\s{\[)])", texts))
    assert used - names == set()


class Prometheus:
    """Debian's, inside the cluster's network. It is built without the discovery of pods, so they are listed here."""

    def __init__(self, cluster: Cluster, installed: Installed, folder: Path) -> None:
        targets = []
        for pod in installed.pods():
            (container,) = pod["spec"]["containers"]
            (port,) = (one["containerPort"] for one in container["ports"] if one["name"] == "metrics")
            job = {"job": pod["metadata"]["labels"]["app.kubernetes.io/name"]}
            targets.append({"targets": [f"{pod['status']['podIP']}:{port}"], "labels": job})
        scraped = {"job_name": "carico", "scrape_interval": "1s", "static_configs": targets}
        (folder / "prometheus.yml").write_text(json.dumps({"scrape_configs": [scraped]}))
        self._port = free_port()
        flags = [f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
        self._command = cluster.enter(["/usr/bin/prometheus", *flags, f"--web.listen-address=127.0.0.1:{self._port}"])
        self._environment = os.environ | cluster.run.environment
        self._log = folder / "log"

    def __enter__(self) -> int:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, env=self._environment)
        return self._port

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


def _query(cluster: Cluster, port: int, path: str) -> Any:
    return json.loads(cluster.inside("busybox", "wget", "-qO-", f"http://127.0.0.1:{port}/api/v1/{path}"))["data"]


def _healthy(cluster: Cluster, port: int) -> set[str]:
    """The jobs of all targets, once each has been scraped."""
    try:
        targets = _query(cluster, port, "targets")["activeTargets"]
    except ClusterError:
        return set()
    up = [target["labels"]["job"] for target in targets if target["health"] == "up"]
    return set(up) if len(up) == 4 else set()


# --- rights ---


def _granted() -> set[str]:
    """`verb resource` of every role in install.yaml."""
    found = set()
    for item in yaml.safe_load_all((CHECKOUT / "install.yaml").read_text()):
        if item["kind"] in ("ClusterRole", "Role"):
            for rule in item["rules"]:
                for group, resource in ((g, r) for g in rule["apiGroups"] for r in rule["resources"]):
                    found |= {f"{verb} {_resource(group, resource)}" for verb in rule["verbs"]}
    return found


def _resource(group: str, resource: str) -> str:
    return f"{group}/{resource}" if group else resource


def _audited(entry: dict[str, Any]) -> str:
    about = entry["objectRef"]
    sub = f"/{about['subresource']}" if "subresource" in about else ""
    return f"{entry['verb']} {_resource(about.get('apiGroup', ''), about['resource'] + sub)}"


@pytest.mark.usefixtures("installed")
def test_every_right_is_used_and_no_request_is_forbidden(cluster: Cluster) -> None:
    log = cluster.audit_log
    assert [entry for entry in log if entry.get("responseStatus", {}).get("code") == 403] == []
    used = {_audited(entry) for entry in log if "resource" in entry.get("objectRef", {})}
    assert _granted() - used - USED_ELSEWHERE.keys() == set()
    assert used <= _granted()
    for name in USED_ELSEWHERE.values():
        assert (CHECKOUT / name).exists()


@pytest.mark.usefixtures("installed")
def test_each_account_can_do_what_the_golden_list_says(cluster: Cluster) -> None:
    """Record it again with RECORD=1."""
    lines = []
    for name in ("carico-agent", "carico-aggregator", "carico-scheduler"):
        who = f"--as=system:serviceaccount:{NAMESPACE}:{name}"
        table = cluster.kubectl("auth", "can-i", "--list", "-n", NAMESPACE, who, "--no-headers")
        lines += [f"{name}:", *sorted({re.sub(r" +", " ", row).strip() for row in table.splitlines()}), ""]
    text = "\n".join(lines)
    if os.environ.get("RECORD"):
        GOLDEN.write_text(text)
    assert GOLDEN.read_text() == text


# --- bad input ---


def _pod(name: str, section: str, settings: str = "", **spec: Any) -> list[dict[str, Any]]:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"carico.toml": settings}}
    container: dict[str, Any] = {"name": "c", "image": image.NAME, "imagePullPolicy": "Never", "args": [section]}
    container["volumeMounts"] = [{"name": "s", "mountPath": "/etc/carico"}]
    whole = {
        "restartPolicy": "Never",
        "containers": [container | spec],
        "volumes": [{"name": "s", "configMap": {"name": name}}],
    }
    return [config, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": whole}]


@pytest.mark.usefixtures("installed")
def test_bad_input_is_explained_in_one_sentence(cluster: Cluster) -> None:
    with cluster.namespace() as namespace:
        items = [
            *_pod("unknown-key", "scheduler", "[scheduler]\ntreshold = 2\n"),
            *_pod("no-socket", "agent", '[agent]\nruntime = "containerd"\n'),
            *_pod("no-image", "agent", image="carico.test/absent:1"),
        ]
        stdin = "\n---\n".join(json.dumps(item) for item in items)
        cluster.kubectl("apply", "-n", namespace, "-f", "-", stdin=stdin)
        for name, sentence in (
            ("unknown-key", "no setting is called 'treshold'; did you mean 'threshold'?"),
            ("no-socket", "there is no socket /run/containerd/containerd.sock"),
        ):
            cluster.wait_for(name, partial(_logged, cluster, namespace, name, sentence), 120)
        absent = 'Container image "carico.test/absent:1" is not present with pull policy of Never'
        cluster.wait_for("no image", lambda: absent in cluster.kubectl("describe", "pod", "no-image", "-n", namespace))


def _logged(cluster: Cluster, namespace: str, name: str, sentence: str) -> bool:
    try:
        return sentence in cluster.kubectl("logs", "-n", namespace, name)
    except ClusterError:
        return False


def test_a_restricted_namespace_says_why_the_agent_does_not_run(cluster: Cluster, installed: Installed) -> None:
    level = {"pod-security.kubernetes.io/enforce": "restricted"}
    with cluster.namespace() as namespace:
        cluster.kubectl("label", "namespace", namespace, *(f"{key}={value}" for key, value in level.items()))
        (agent,) = (i for i in yaml.safe_load_all(installed.manifests()) if i["kind"] == "DaemonSet")
        agent["metadata"] = {"name": "agent", "namespace": namespace}
        agent["spec"]["template"]["spec"]["serviceAccountName"] = "default"
        cluster.kubectl("apply", "-f", "-", stdin=json.dumps(agent))
        why = 'violates PodSecurity "restricted'
        cluster.wait_for("the Event", lambda: why in cluster.kubectl("describe", "ds", "agent", "-n", namespace))


# --- the end ---


def test_deleting_the_manifests_leaves_nothing(cluster: Cluster, before: set[str], installed: Installed) -> None:
    cluster.kubectl("delete", "job", "pi", "--ignore-not-found")
    installed.delete()

    def left() -> set[str]:
        """Namespaces, pods of the Job and what belongs to them end after the request."""
        return _objects(cluster) - before

    end = time.monotonic() + PATIENCE
    while (found := left()) and time.monotonic() < end:
        time.sleep(1)
    assert found == set()
