"""The sealed cluster with a real kubelet works like any cluster: it runs Jobs, resolves names, authenticates pods."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harness.cluster import containerd, node, sealed
from harness.cluster.cluster import Cluster, pod
from harness.cluster.fixtures import needs_node

pytestmark = [pytest.mark.cluster, needs_node]
DIGITS = 200


def pi(digits: int) -> str:
    """π by Machin's formula in integers: the expected output of the pods."""
    unit = 10 ** (digits + 10)

    def arctan_of_inverse(x: int) -> int:
        total, term, k = 0, unit // x, 0
        while term:
            total += (-1) ** k * term // (2 * k + 1)
            term //= x * x
            k += 1
        return total

    digits_of_pi = str(4 * (4 * arctan_of_inverse(5) - arctan_of_inverse(239)))
    return f"3.{digits_of_pi[1 : digits + 1]}"


def phase(cluster: Cluster, namespace: str, name: str) -> str:
    status: str = cluster.api.get(f"/api/v1/namespaces/{namespace}/pods/{name}")["status"]["phase"]
    return status


def outcome(cluster: Cluster, namespace: str, item: dict[str, Any]) -> str:
    """Run a pod to its end and return what it printed."""
    name = item["metadata"]["name"]
    cluster.create(item, namespace)
    ended = cluster.wait_for(name, lambda: phase(cluster, namespace, name) in ("Succeeded", "Failed"))
    said = cluster.kubectl("logs", "-n", namespace, name)
    assert ended
    assert phase(cluster, namespace, name) == "Succeeded", said
    return said


def test_a_job_of_ten_pods_computes_pi_on_the_real_kubelet(node_cluster: Cluster) -> None:
    """Scheduled by kube-scheduler; every pod's log contains the digits."""
    command = ["/bin/sh", "-c", f"echo 'scale={DIGITS + 5}; 4*a(1)' | BC_LINE_LENGTH=0 bc -l"]
    template = {"metadata": {"labels": {"app": "pi"}}, "spec": pod("pi", command)["spec"]}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "pi"},
        "spec": {"completions": 10, "parallelism": 10, "backoffLimit": 0, "template": template},
    }
    with node_cluster.namespace() as namespace:
        node_cluster.create(job, namespace)
        path = f"/apis/batch/v1/namespaces/{namespace}/jobs/pi"
        node_cluster.wait_for("the Job", lambda: node_cluster.api.get(path)["status"].get("succeeded") == 10, 120)
        pods = node_cluster.api.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
        assert [item["spec"]["nodeName"] for item in pods] == [node.NAME] * 10
        assert {item["spec"]["schedulerName"] for item in pods} == {"default-scheduler"}
        for item in pods:
            said = node_cluster.kubectl("logs", "-n", namespace, item["metadata"]["name"])
            assert said.replace("\\\n", "").startswith(pi(DIGITS))


def test_a_pod_reaches_a_service_by_its_name(node_cluster: Cluster) -> None:
    page = "mkdir /www && echo it answers > /www/index.html && exec httpd -f -p 8080 -h /www"
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"selector": {"app": "server"}, "ports": [{"port": 80, "targetPort": 8080}]},
    }
    with node_cluster.namespace() as namespace:
        node_cluster.create(service, namespace)
        node_cluster.create(pod("server", ["/bin/sh", "-c", page]), namespace)
        node_cluster.wait_for("the server", lambda: phase(node_cluster, namespace, "server") == "Running")
        # kube-proxy and CoreDNS receive the server's endpoint a moment later than this test.
        for client, name in (("near", "web"), ("far", f"web.{namespace}.svc.cluster.local")):
            ask = f"until timeout 2 wget -q -O - http://{name}; do sleep 0.2; done"
            assert outcome(node_cluster, namespace, pod(client, ["/bin/sh", "-c", ask])) == "it answers\n"


def test_a_pod_reaches_the_api_server_with_a_token_bound_to_its_node(node_cluster: Cluster) -> None:
    """kubectl in the pod reads its identity from the API server."""
    folder = str(Path(node_cluster.kubectl_binary).parent)
    volume = {"name": "tools", "hostPath": {"path": folder}}
    mount = {"name": "tools", "mountPath": "/tools", "readOnly": True}
    command = ["/tools/kubectl", "auth", "whoami", "-o", "json"]
    item = pod("asker", command, volumes=[volume], mounts=[mount])
    with node_cluster.namespace() as namespace:
        user = json.loads(outcome(node_cluster, namespace, item))["status"]["userInfo"]
    assert user["username"] == f"system:serviceaccount:{namespace}:default"
    assert user["extra"]["authentication.kubernetes.io/node-name"] == [node.NAME]
    assert user["extra"]["authentication.kubernetes.io/pod-name"] == ["asker"]


def test_the_token_itself_names_node_and_pod(node_cluster: Cluster) -> None:
    command = ["cat", "/var/run/secrets/kubernetes.io/serviceaccount/token"]
    with node_cluster.namespace() as namespace:
        claims = outcome(node_cluster, namespace, pod("bearer", command)).split(".")[1]
    bound = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["kubernetes.io"]
    assert bound["node"]["name"] == node.NAME
    assert bound["pod"]["name"] == "bearer"


def test_pods_have_addresses_of_the_pod_network(node_cluster: Cluster) -> None:
    with node_cluster.namespace() as namespace:
        said = outcome(node_cluster, namespace, pod("address", ["hostname", "-i"]))
        seen = node_cluster.api.get(f"/api/v1/namespaces/{namespace}/pods/address")["status"]["podIP"]
    assert said.split()[0] == seen
    assert seen.startswith(containerd.POD_NETWORK.split(".")[0] + ".244.")


def test_no_packet_leaves_it(node_cluster: Cluster) -> None:
    """The sealed network has no device in common with the host's."""
    inside = {link["ifname"] for link in json.loads(node_cluster.inside("ip", "-j", "link"))}
    routes = json.loads(node_cluster.inside("ip", "-j", "route"))
    assert {"lo", "node0", "wire0"} <= inside
    assert {route["dev"] for route in routes} <= {"node0", "pods0"}
    host = json.loads(subprocess.run(["ip", "-j", "link"], capture_output=True, check=True).stdout)
    assert not {"node0", "wire0", "pods0"} & {link["ifname"] for link in host}


@pytest.mark.parametrize("name", sorted(sealed.KERNEL_SETTINGS))
def test_the_kubelet_changes_no_setting_of_the_machine(node_cluster: Cluster, name: str) -> None:
    """It runs with the values that it expects; the machine's values are not changed."""
    assert node_cluster.inside("cat", f"/proc/sys/{name}").strip() == sealed.KERNEL_SETTINGS[name]
    mounted = node_cluster.inside("cat", "/proc/self/mountinfo")
    assert f" /proc/sys/{name} " in mounted


def test_another_user_gets_only_the_rights_it_has(node_cluster: Cluster) -> None:
    kubeconfig = node_cluster.kubeconfig_of("nobody")
    command = [node_cluster.kubectl_binary, f"--kubeconfig={kubeconfig}", "get", "nodes"]
    environment = os.environ | node_cluster.run.environment
    answer = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert answer.returncode == 1
    assert 'User "nobody" cannot list resource "nodes"' in answer.stderr
