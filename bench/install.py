"""Carico on a real kubelet: seconds to Ready and to the first bound pod, image, memory, API requests (root).

The image is built before the clock starts; `start_s` is the start of a process in it. Memory is the working set of each
pod as the kubelet accounts it, a minute after the installation. Requests are counted by the API server's audit log over
a minute without pods, beside watches and Leases; a scheduler with the rights of its ServiceAccount follows 1,000 kwok
nodes, which do not report.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections import Counter

from harness.cluster.cluster import Cluster, pod
from harness.cluster.runs import CHECKOUT
from harness.install import image
from harness.install.deploy import NAMESPACE, Installed

NODES = int(os.environ.get("NODES", "1000"))
REST = 60.0  # s
CATCH_UP = 0.25  # s per node: the first NodeCapacity objects are written at 10 requests a second, two for each
PATIENCE = 400.0  # s
ACCOUNT = "carico-scheduler"


def run() -> dict[str, float]:
    file = image.image_file()
    figures = {**image.sizes(file), **_installed()}
    figures["api_requests_per_s"] = _requests_at_rest()
    for name, value in figures.items():
        print(f"{name:<20} {value:8.2f}")
    return figures


def _installed() -> dict[str, float]:
    with Cluster(kubelet=True) as cluster:
        installed = Installed(cluster.run)
        installed.import_image(image.image_file())
        began = time.monotonic()
        installed.apply()
        cluster.create(pod("first", ["true"], schedulerName="carico"))
        cluster.wait_for("the first bound pod", lambda: _is_bound(cluster), PATIENCE)
        first_bound = time.monotonic() - began
        installed.wait_until_ready(PATIENCE)
        figures = {"first_bound_s": first_bound, "ready_s": _seconds_to_ready(installed)}
        figures["start_s"] = _seconds_to_start(installed)
        time.sleep(REST)
        return figures | _memory(cluster)


def _seconds_to_start(installed: Installed) -> float:
    """Of a process in the image: Python, and the imports of an agent. The median of five, measured in the container."""
    code = (
        "import subprocess, time; began = time.monotonic(); "
        "subprocess.run(['carico', 'agent', '--help'], stdout=subprocess.DEVNULL, check=True); "
        "print(time.monotonic() - began)"
    )
    run = ("exec", "-n", NAMESPACE, "deploy/carico-aggregator", "--", "python3", "-c", code)
    return statistics.median(float(installed.kubectl(*run)) for _ in range(5))


def _is_bound(cluster: Cluster) -> bool:
    return bool(cluster.kubectl("get", "pod", "first", "-o", "jsonpath={.spec.nodeName}"))


def _seconds_to_ready(installed: Installed) -> float:
    """From the first pod's creation to the last one's condition, by the API server's clock in whole seconds."""
    found = installed.pods()
    created = min(_time(pod["metadata"]["creationTimestamp"]) for pod in found)
    ready = (c for pod in found for c in pod["status"]["conditions"] if c["type"] == "Ready")
    return max(_time(condition["lastTransitionTime"]) for condition in ready) - created


def _time(text: str) -> float:
    return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ"))


def _memory(cluster: Cluster) -> dict[str, float]:
    """MB of the largest pod of each kind."""
    path = "/api/v1/nodes/node-1/proxy/stats/summary?only_cpu_and_memory=true"  # the disk is not the node's
    summary = json.loads(cluster.kubectl("get", "--raw", path))
    found: dict[str, float] = {}
    for one in summary["pods"]:
        if one["podRef"]["namespace"] == NAMESPACE:
            kind = one["podRef"]["name"].split("-")[1]
            used = one["containers"][0]["memory"]["workingSetBytes"] / 1e6
            found[f"{kind}_mb"] = max(used, found.get(f"{kind}_mb", 0.0))
    return found


def _requests_at_rest() -> float:
    """Per second, of a scheduler that has caught up."""
    with Cluster(nodes=NODES, audited=f"system:serviceaccounts:{NAMESPACE}") as cluster:
        for name in ("install/common/namespace.yaml", "scheduler/clusterrole.yaml", "scheduler/role.yaml"):
            cluster.kubectl("apply", "-f", str(CHECKOUT / name))
        for name in ("rolebinding", "crd-nodecapacities"):
            cluster.kubectl("apply", "-n", NAMESPACE, "-f", str(CHECKOUT / "scheduler" / f"{name}.yaml"))
        kubeconfig = cluster.kubeconfig_of_account(ACCOUNT, ACCOUNT, namespace=NAMESPACE)
        flags = ["--kubeconfig", str(kubeconfig), "--leader-elect-resource-namespace", NAMESPACE, "--plaintext"]
        ports = ["--listen", "127.0.0.1:0", "--debug-listen", "127.0.0.1:0", "--grpc-listen", "127.0.0.1:0"]
        command = [sys.executable, "-m", "carico.cli", "scheduler", *flags, *ports]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            try:
                time.sleep(REST + CATCH_UP * NODES)
                before = len(cluster.audit_log)
                time.sleep(REST)
                return _counted(cluster, before) / REST
            finally:
                process.terminate()


def _counted(cluster: Cluster, before: int) -> int:
    log = [entry for entry in cluster.audit_log[before:] if entry["stage"] == "ResponseComplete"]
    about = [(entry["verb"], entry.get("objectRef", {}).get("resource", "")) for entry in log]
    counted = Counter(one for one in about if one[0] != "watch" and one[1] != "leases")
    for (verb, resource), count in counted.most_common():
        print(f"{count:6}  {verb} {resource}")
    return counted.total()
