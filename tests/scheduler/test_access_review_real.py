"""The private pages beyond loopback, on a real API server: only users whom its RBAC allows get them."""

from __future__ import annotations

import json
import secrets
import signal
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from carico.wire.certificates import Authority
from harness.cluster.cluster import Cluster
from harness.cluster.fixtures import needs_scale
from harness.cluster.ports import free_port
from harness.scheduler.fleet import SchedulerProcess

pytestmark = [pytest.mark.cluster, pytest.mark.slow, needs_scale]

NODES = 5
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ROLE = "carico-ledger-reader"


class Stage:
    def __init__(self, cluster: Cluster, folder: Path) -> None:
        authority = Authority(folder)
        pair = authority.issue("localhost", "localhost", "127.0.0.1")
        files = ("--tls-cert", str(pair.cert), "--tls-key", str(pair.key))
        self.process = SchedulerProcess(
            cluster.kubeconfig, free_port(), "--no-leader-elect", "--debug-listen", "0.0.0.0:0", *files
        )
        self._ca = str(authority.cert)
        self._tls = ssl.create_default_context(cafile=self._ca)

    def decisions(self, kubeconfig: Path, *more: str) -> subprocess.CompletedProcess[str]:
        where = ("--server", f"https://localhost:{self.process.page_port}", "--server-ca", self._ca)
        command = [sys.executable, "-m", "carico.cli", "decisions", *where, "--kubeconfig", str(kubeconfig), *more]
        return subprocess.run(command, capture_output=True, text=True, timeout=120)

    def status(self, path: str, token: str = "") -> int:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        request = urllib.request.Request(f"https://localhost:{self.process.page_port}{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=30, context=self._tls) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code


@pytest.fixture
def stage(scale_cluster: Callable[[int], Cluster], tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(scale_cluster(NODES), tmp_path)
    try:
        yield stage
    finally:
        stage.process.stop(signal.SIGKILL)


def token_of(cluster: Cluster, namespace: str, name: str) -> str:
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    cluster.api.post(accounts, {"metadata": {"name": name}})
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    return str(cluster.api.post(f"{accounts}/{name}/token", asked)["status"]["token"])


def test_rbac_decides_who_may_read_what(stage: Stage, scale_cluster: Callable[[int], Cluster]) -> None:
    cluster = scale_cluster(NODES)
    with cluster.namespace() as namespace:
        reader, other = token_of(cluster, namespace, "reader"), token_of(cluster, namespace, "other")
        rules = [{"nonResourceURLs": ["/debug/ledger"], "verbs": ["get"]}]
        cluster.api.post(f"{RBAC}/clusterroles", {"metadata": {"name": ROLE}, "rules": rules})
        subject = {"kind": "ServiceAccount", "name": "reader", "namespace": namespace}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ROLE}
        bound = {"metadata": {"name": ROLE}, "subjects": [subject], "roleRef": role}
        cluster.api.post(f"{RBAC}/clusterrolebindings", bound)
        try:
            assert stage.status("/healthz") == 200
            # The API server's own copy of the rules follows in a moment; a refusal is kept for some seconds.
            cluster.wait_for("the rule", lambda: stage.status("/debug/ledger", reader) == 200, 60)
            assert stage.status("/debug/queue", reader) == 403
            assert stage.status("/debug/ledger", other) == 403
            assert stage.status("/debug/ledger", "guessed") == 401
            assert stage.status("/debug/ledger") == 401
            assert stage.status("/metrics") == 401
        finally:
            cluster.api.delete(f"{RBAC}/clusterrolebindings/{ROLE}")
            cluster.api.delete(f"{RBAC}/clusterroles/{ROLE}")


def test_the_commands_show_the_token_of_their_kubeconfig_or_of_a_file(
    stage: Stage, scale_cluster: Callable[[int], Cluster], tmp_path: Path
) -> None:
    """The administrator has a client certificate, as kubeadm gives it, and needs a token for these pages."""
    cluster, role = scale_cluster(NODES), f"decisions-{secrets.token_hex(4)}"
    rules = [{"nonResourceURLs": ["/debug/decisions"], "verbs": ["get"]}]
    cluster.api.post(f"{RBAC}/clusterroles", {"metadata": {"name": role}, "rules": rules})
    try:
        reader, other = (
            cluster.kubeconfig_of_account(f"{role}-reader", role),
            cluster.kubeconfig_of_account(f"{role}-other"),
        )
        cluster.wait_for("the rule", lambda: stage.decisions(reader).returncode == 0, 120)
        assert "replayed" in stage.decisions(reader).stdout
        refused = stage.decisions(other)
        assert refused.returncode == 1
        assert "may not get '/debug/decisions'; a ClusterRole with nonResourceURLs allows it" in refused.stderr
        without = stage.decisions(cluster.kubeconfig)
        assert "a bearer token is needed; use a kubeconfig with a token, or --token-file" in without.stderr
        file = tmp_path / "token"
        file.write_text(json.loads(reader.read_text())["users"][0]["user"]["token"])
        assert stage.decisions(cluster.kubeconfig, "--token-file", str(file)).returncode == 0
    finally:
        cluster.api.delete(f"{RBAC}/clusterrolebindings/{role}-reader-{role}")
        cluster.api.delete(f"{RBAC}/clusterroles/{role}")
