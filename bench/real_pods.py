"""Pods in a real containerd, created through CRI as a kubelet does, for benchmarks that need many of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import grpc

from carico.runtime.api import cri_pb2 as cri
from carico.runtime.api.cri_pb2_grpc import RuntimeServiceStub

PATIENCE = 120.0  # s for one call on a busy machine
OPTIONS = [("grpc.default_authority", "localhost"), ("grpc.enable_http_proxy", 0)]


class RealPods:
    """A growing number of pods, each with a container that sleeps and a separate cgroup."""

    def __init__(self, runtime: Any, channel: grpc.Channel) -> None:
        self._runtime = runtime
        self._api = RuntimeServiceStub(channel)
        self._sandboxes: list[str] = []

    def grow_to(self, count: int) -> None:
        while len(self._sandboxes) < count:
            self._sandboxes.append(self._start(f"bench-{len(self._sandboxes)}"))

    def _start(self, uid: str) -> str:
        config = cri.PodSandboxConfig(
            metadata=cri.PodSandboxMetadata(name=uid, uid=uid, namespace="bench"),
            labels={"app": f"class-{len(self._sandboxes) % 10}", "io.kubernetes.pod.uid": uid},
            linux=cri.LinuxPodSandboxConfig(
                cgroup_parent=f"{self._runtime.cgroup_parent}/kubepods/besteffort/pod{uid}"
            ),
        )
        request = cri.RunPodSandboxRequest(config=config)
        sandbox: str = self._api.RunPodSandbox(request, timeout=PATIENCE).pod_sandbox_id
        container = cri.ContainerConfig(
            metadata=cri.ContainerMetadata(name="work"),
            image=cri.ImageSpec(image=self._runtime.busybox_image),
            command=["sleep", "100000"],
            linux=cri.LinuxContainerConfig(),
        )
        making = cri.CreateContainerRequest(pod_sandbox_id=sandbox, config=container, sandbox_config=config)
        made = self._api.CreateContainer(making, timeout=PATIENCE).container_id
        self._api.StartContainer(cri.StartContainerRequest(container_id=made), timeout=PATIENCE)
        return sandbox

    def remove_all(self) -> None:
        for sandbox in self._sandboxes:
            self._api.StopPodSandbox(cri.StopPodSandboxRequest(pod_sandbox_id=sandbox), timeout=PATIENCE)
            self._api.RemovePodSandbox(cri.RemovePodSandboxRequest(pod_sandbox_id=sandbox), timeout=PATIENCE)
        self._sandboxes = []


@contextlib.contextmanager
def real_pods(runtime: Any) -> Iterator[RealPods]:
    with grpc.insecure_channel(f"unix:{runtime.socket}", options=OPTIONS) as channel:
        pods = RealPods(runtime, channel)
        try:
            yield pods
        finally:
            pods.remove_all()
