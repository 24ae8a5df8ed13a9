"""The installed system while its parts are replaced: a Job that runs meanwhile completes, and no pod runs twice."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from harness.cluster.cluster import Cluster
from harness.cluster.errors import ClusterError
from harness.cluster.fixtures import needs_node
from harness.cluster.images import BUSYBOX
from harness.install import image
from harness.install.deploy import NAMESPACE, Installed

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.long,
    pytest.mark.timeout(3600),
    needs_node,
    pytest.mark.needs("image"),
]

PODS = 40
PATIENCE = 900.0  # s
AWAY = 8.0  # s that a killed part stays away


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(kubelet=True) as started:
        yield started


@pytest.fixture(scope="module")
def installed(cluster: Cluster) -> Installed:
    installed = Installed(cluster.run)
    installed.import_image(image.image_file())
    installed.apply()
    installed.wait_until_ready(PATIENCE)
    return installed


def _job(name: str) -> dict[str, Any]:
    work = "echo 'scale=300; 4*a(1)' | bc -l >/dev/null"
    container = {"name": "pi", "image": BUSYBOX, "imagePullPolicy": "Never", "command": ["sh", "-c", work]}
    spec = {"schedulerName": "carico", "restartPolicy": "Never", "containers": [container]}
    template = {"metadata": {"labels": {"app": name}}, "spec": spec}
    job = {"completions": PODS, "parallelism": PODS, "backoffLimit": 0, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": job}


def _succeeded(cluster: Cluster, name: str) -> int:
    try:
        status = json.loads(cluster.kubectl("get", "job", name, "-o", "json"))["status"]
    except ClusterError:  # the API server is away
        return -1
    assert not status.get("failed"), status
    return int(status.get("succeeded", 0))


def _leader(installed: Installed) -> str:
    holder = installed.kubectl(
        "get", "lease", "carico-scheduler", "-n", NAMESPACE, "-o", "jsonpath={.spec.holderIdentity}"
    )
    return holder.rpartition("_")[0]


def _delete_leader(cluster: Cluster, installed: Installed) -> None:
    before = _leader(installed)
    installed.kubectl("delete", "pod", "-n", NAMESPACE, before, "--wait=false")
    cluster.wait_for("another leader", lambda: _leader(installed) not in ("", before), PATIENCE)


def _kill(part: str) -> Callable[[Cluster, Installed], None]:
    def kill(cluster: Cluster, _: Installed) -> None:
        with cluster.without(part):
            time.sleep(AWAY)

    return kill


def _roll_out(cluster: Cluster, installed: Installed) -> None:
    for what in ("daemonset/carico-agent", "deployment/carico-aggregator", "deployment/carico-scheduler"):
        installed.kubectl("rollout", "restart", "-n", NAMESPACE, what)
    cluster.wait_for("the new pods", lambda: len(installed.pods()) == 4, PATIENCE)


DISTURBANCES = {
    "the leader's pod is deleted": _delete_leader,
    "the kubelet is killed": _kill("kubelet"),
    "the API server is killed": _kill("kube-apiserver"),
    "everything is rolled out again": _roll_out,
}


@pytest.mark.parametrize("disturb", DISTURBANCES.values(), ids=DISTURBANCES)
def test_a_job_completes_while(
    disturb: Callable[[Cluster, Installed], None], cluster: Cluster, installed: Installed
) -> None:
    name = f"pi-{list(DISTURBANCES.values()).index(disturb)}"
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(_job(name)))
    cluster.wait_for("the first pods", lambda: _succeeded(cluster, name) >= 2, PATIENCE)
    disturb(cluster, installed)
    cluster.wait_for("the Job", lambda: _succeeded(cluster, name) == PODS, PATIENCE)
    pods = json.loads(cluster.kubectl("get", "pods", "-l", f"app={name}", "-o", "json"))["items"]
    assert len(pods) == PODS  # one for each completion: none was lost and replaced
    assert {pod["status"]["phase"] for pod in pods} == {"Succeeded"}
    starts = [pod["status"]["containerStatuses"][0] for pod in pods]
    assert all(one["restartCount"] == 0 for one in starts)
    with suppress(ClusterError):
        installed.wait_until_ready(PATIENCE)
    installed.wait_until_ready(1)
