"""etcd, an API server and a stock kube-scheduler that binds nothing; no controllers, so nothing moves by itself."""

from __future__ import annotations

import json
import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Self

from harness.cluster import builder, runs
from harness.cluster.api import Api
from harness.cluster.daemons import die_with_parent, log_tail
from harness.cluster.errors import ClusterError
from harness.cluster.pki import ADMIN, Authority, signing_key
from harness.cluster.ports import free_port

from .recorder import Recorder

# Admission that would add to objects or need controllers to go on.
NOT_ADMITTED = (
    "ServiceAccount",
    "TaintNodesByCondition",
    "StorageObjectInUseProtection",
    "DefaultStorageClass",
    "DefaultTolerationSeconds",
)
# Features that nodes declare and pods may need, so that the filter for them has something to do.
GATES = "UserNamespacesHostNetworkSupport=true,RestartAllContainersOnContainerExits=true"
CONNECTIONS = 4
PATIENCE = 240.0  # s; on a busy machine


class Plane:
    """A running control plane; everything of it ends with `stop`, or with this process."""

    def __init__(self) -> None:
        self._run = runs.create()
        self.recorder = Recorder()
        self.threads = ThreadPoolExecutor(CONNECTIONS)  # for requests that may be sent at the same time
        self._parts: dict[str, subprocess.Popen[bytes]] = {}
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def _start(self) -> None:
        built = builder.build(("etcd", "kube-apiserver", "kube-scheduler"))
        authority = Authority(self._run.folder / "pki")
        authority.issue("apiserver", "kube-apiserver", addresses=["127.0.0.1"], names=["localhost"])
        signing_key(authority.folder)
        etcd, port = f"http://127.0.0.1:{free_port()}", free_port()
        self._launch("etcd", [built["etcd"], *_etcd(str(self._run.folder / "etcd"), etcd)])
        self._launch("kube-apiserver", [built["kube-apiserver"], *_apiserver(authority, etcd, port)])
        self.kubeconfig = authority.kubeconfig(self._run.folder / "kubeconfig", f"https://127.0.0.1:{port}", *ADMIN)
        self.api = Api(self.kubeconfig)
        self._wait("kube-apiserver")
        file = self._run.folder / "kube-scheduler.json"
        file.write_text(json.dumps(_scheduler(str(self.kubeconfig), self.recorder.address)))
        gates = f"--feature-gates={GATES}"
        secure = f"--secure-port={free_port()}"
        self._launch(
            "kube-scheduler", [built["kube-scheduler"], f"--config={file}", secure, "--bind-address=127.0.0.1", gates]
        )

    def _launch(self, name: str, argv: list[str]) -> None:
        with open(self._run.folder / "logs" / f"{name}.log", "ab") as log:
            self._parts[name] = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | self._run.environment,
                preexec_fn=die_with_parent,
            )

    def _wait(self, name: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not self.api.is_ready():
            self.check()
            if time.monotonic() > deadline:
                raise ClusterError(f"{name} was not ready within {PATIENCE:.0f} s:\n{self.log(name)}")
            time.sleep(0.1)

    def check(self) -> None:
        """Raise when a part has ended."""
        for name, part in self._parts.items():
            if part.poll() is not None:
                raise ClusterError(f"{name} ended with code {part.returncode}:\n{self.log(name)}")

    def log(self, name: str) -> str:
        return log_tail(self._run.folder / "logs" / f"{name}.log", 30)

    def stop(self) -> None:
        if "api" in self.__dict__:
            self.api.close()
        self.threads.shutdown()
        runs.sweep(self._run)
        for part in self._parts.values():
            part.wait()
        self.recorder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _etcd(folder: str, client: str) -> list[str]:
    peer = f"http://127.0.0.1:{free_port()}"
    return [
        f"--data-dir={folder}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def _apiserver(authority: Authority, etcd: str, port: int) -> list[str]:
    pki = authority.folder
    return [
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        "--endpoint-reconciler-type=none",
        f"--secure-port={port}",
        f"--etcd-servers={etcd}",
        f"--tls-cert-file={pki / 'apiserver.crt'}",
        f"--tls-private-key-file={pki / 'apiserver.key'}",
        f"--client-ca-file={authority.certificate}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={pki / 'service-accounts.pub'}",
        f"--service-account-signing-key-file={pki / 'service-accounts.key'}",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--authorization-mode=AlwaysAllow",
        f"--disable-admission-plugins={','.join(NOT_ADMITTED)}",
        f"--feature-gates={GATES}",
    ]


def _scheduler(kubeconfig: str, extender: str) -> dict[str, object]:
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": kubeconfig, "qps": 5000, "burst": 5000},
        "leaderElection": {"leaderElect": False},
        "percentageOfNodesToScore": 100,
        "profiles": [{"plugins": {"postFilter": {"disabled": [{"name": "*"}]}}}],
        "extenders": [{"urlPrefix": extender, "filterVerb": "filter", "nodeCacheCapable": True, "weight": 1}],
    }
