"""A whole cluster, of either mode, as used by tests and the command line."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from . import binaries, builder, containerd, pki
from .api import Api, ApiError, Object
from .controlplane import AUDIT_LOG
from .daemons import log_tail
from .errors import WRONG_INPUT, ClusterError
from .handle import SBIN, Started
from .images import BUSYBOX

MOST_NODES = 50_000
# Programs that a real node needs on the machine, and the Debian package of each.
PROGRAMS = {
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "ip": "iproute2",
    "nft": "nftables",
    "runc": "runc",
    "busybox": "busybox-static",
}


class Cluster(Started):
    """A control plane with kwok nodes, or a sealed one with a real node, or both kinds of nodes.

    >>> Cluster(nodes=-1)
    Traceback (most recent call last):
    harness.cluster.errors.ClusterError: a cluster cannot have -1 nodes: give a whole number from 0 to 50000
    """

    def __init__(
        self,
        nodes: int = 0,
        kubelet: bool = False,
        containerd_version: str = "2",
        say: Callable[[str], None] = lambda _: None,
        extenders: list[Object] | None = None,
        audited: str = "",
    ) -> None:
        """`extenders` are added to kube-scheduler's configuration; `audited` is a group of users whose requests the API
        server records in `audit_log`.
        """
        check(nodes, kubelet)
        self._built = builder.build(_names(nodes, kubelet, containerd_version))
        if kubelet and containerd_version != "2":
            self._built |= containerd.system_binaries()
        spec: dict[str, Any] = {
            "control_plane": True,
            "nodes": nodes,
            "binaries": self._built,
            "extenders": extenders or [],
            "audited": audited,
        }
        if not kubelet:
            super().__init__(spec, say)
            return
        # Created here, in the host's network namespace: see forward.py.
        with socket.create_server(("127.0.0.1", 0)) as door:
            sealed = {"sealed": True, "containerd": containerd_version, "inherit": [door.fileno()]}
            super().__init__(spec | sealed | {"user_port": door.getsockname()[1]}, say)

    @property
    def kubeconfig(self) -> Path:
        """The administrator's, valid on the host."""
        return self.folder / "kubeconfig"

    @property
    def audit_log(self) -> list[Object]:
        lines = (self.folder / AUDIT_LOG).read_text().splitlines()
        return [json.loads(line) for line in lines]

    @cached_property
    def api(self) -> Api:
        return Api(self.kubeconfig)

    def stop(self) -> None:
        if "api" in self.__dict__:
            self.api.close()
        super().stop()

    @property
    def kubectl_binary(self) -> str:
        return self._built["kubectl"]

    def kubeconfig_of(self, user: str, groups: tuple[str, ...] = ()) -> Path:
        """A kubeconfig for another user, for tests of authorization."""
        authority = pki.Authority(self.folder / "pki")
        return authority.kubeconfig(self.folder / f"{user}.kubeconfig", f"https://{self.api.address}", user, groups)

    def kubeconfig_of_account(self, name: str, *roles: str, namespace: str = "kube-system") -> Path:
        """A kubeconfig with the token of a new ServiceAccount that has these ClusterRoles: what a pod would have."""
        self.api.post(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": name}})
        account = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
        for role in roles:
            given = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
            binding = {"metadata": {"name": f"{name}-{role}"}, "roleRef": given, "subjects": [account]}
            self.api.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        token = self.api.post(path, {"spec": {"expirationSeconds": 86_400}})["status"]["token"]
        config = json.loads(self.kubeconfig.read_text())
        config["users"][0]["user"] = {"token": token}
        file = self.folder / f"{name}.kubeconfig"
        file.touch(mode=0o600)
        file.write_text(json.dumps(config, indent=1) + "\n")
        return file

    def kubectl(self, *argv: str, stdin: str | None = None) -> str:
        """Run kubectl as the administrator and return what it prints."""
        command = [self.kubectl_binary, f"--kubeconfig={self.kubeconfig}", *argv]
        environment = os.environ | self.run.environment
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, env=environment, timeout=120)
        if done.returncode != 0:
            raise ClusterError(f"kubectl {' '.join(argv)}: {done.stderr.strip()}")
        return done.stdout

    def create(self, item: Object, namespace: str = "default") -> Object:
        """Create an object of a kind whose plural is regular."""
        version, kind = item["apiVersion"], item["kind"].lower() + "s"
        root = "/api/v1" if version == "v1" else f"/apis/{version}"
        place = "" if kind in ("namespaces", "nodes") else f"/namespaces/{namespace}"
        return self.api.post(f"{root}{place}/{kind}", item)

    @contextmanager
    def namespace(self) -> Iterator[str]:
        """A namespace for one test: ready for pods, and deleted with all its objects."""
        name = f"test-{secrets.token_hex(4)}"
        self.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        self.wait_for(f"account of {name}", lambda: self._has(f"/api/v1/namespaces/{name}/serviceaccounts/default"))
        try:
            yield name
        finally:
            self.api.delete(f"/api/v1/namespaces/{name}")

    def _has(self, path: str) -> bool:
        try:
            return bool(self.api.get(path))
        except ApiError as error:
            if error.status == 404:
                return False
            raise

    def wait_for(self, what: str, condition: Callable[[], Any], seconds: float = 120.0) -> Any:
        """Poll until the condition holds and return its value; the error contains the ends of the logs."""
        deadline = time.monotonic() + seconds
        while not (value := condition()):
            if time.monotonic() > deadline:
                raise ClusterError(f"{what}: not within {seconds:.0f} s\n{self.state()}")
            time.sleep(0.1)
        return value

    def state(self) -> str:
        """Pods, Events and the ends of the logs, for a failed test."""
        seen = []
        for ask in (["pods", "-A", "-o", "wide"], ["events", "-A"]):
            try:
                seen.append(self.kubectl("get", *ask)[-4000:])
            except (ClusterError, subprocess.TimeoutExpired) as error:
                seen.append(str(error))
        for log in sorted((self.folder / "logs").glob("*.log")):
            seen.append(f"{log.name}:\n{log_tail(log, 8)}")
        return "\n".join(seen)


def pod(name: str, command: list[str], **spec: Any) -> Object:
    """A pod of the work image that runs once; `spec` adds to its specification."""
    container = {"name": "main", "image": BUSYBOX, "imagePullPolicy": "Never", "command": command}
    container["volumeMounts"] = spec.pop("mounts", [])
    whole = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]} | spec
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": whole}


def check(nodes: int, kubelet: bool) -> None:
    """Reject what cannot work before anything is built or started."""
    if not 0 <= nodes <= MOST_NODES:
        line = f"a cluster cannot have {nodes} nodes: give a whole number from 0 to {MOST_NODES}"
        raise ClusterError(line, WRONG_INPUT)
    if not kubelet:
        return
    if os.geteuid() != 0:
        raise ClusterError("a real node needs root, for namespaces and cgroups; without KUBELET=1 none is needed")
    absent = [name for name in PROGRAMS if shutil.which(name, path=os.environ.get("PATH", "") + SBIN) is None]
    if absent:
        packages = sorted({PROGRAMS[name] for name in absent})
        raise ClusterError(f"a real node needs {', '.join(absent)} (Debian packages: {' '.join(packages)})")
    containerd.cni_folder()


def _names(nodes: int, kubelet: bool, version: str) -> list[str]:
    names = list(binaries.CONTROL_PLANE)
    if nodes:
        names.append("kwok")
    if kubelet:
        names += binaries.NODE
        if version == "2":
            names += binaries.CONTAINERD
    return names
