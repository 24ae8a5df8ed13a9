"""Pods start and end in a real containerd while `carico record` runs: recreates docs/recordings/pods.rec (root).

First stress-ng loads one core for 15 s, which is not a pod's load and must be part of the baseline. Then six pods of
about 30 % of a core and 150 MB each start one by one and end again, twice.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import grpc

from carico.recording.format import load
from carico.runtime.api import cri_pb2 as cri
from carico.runtime.api.cri_pb2_grpc import RuntimeServiceStub

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docs" / "recordings" / "pods.rec"
PODS, STEP = 6, 4.0  # pods at most, and s between two changes
WORK = (
    """BEGIN { held = sprintf("%150000000s", "x"); while (1) { for (i = 0; i < 150000; i++); system("sleep 0.07") } }"""
)


def run() -> dict[str, float]:
    from harness.cluster.handle import Containerd  # the tests' containerd, in separate namespaces

    FILE.parent.mkdir(parents=True, exist_ok=True)
    with Containerd(version="1.6") as runtime:
        words = ["record", str(FILE), "--force", "--containerd-socket", str(runtime.socket)]
        recorder = subprocess.Popen([sys.executable, "-m", "carico.cli", *words])
        try:
            _scenario(runtime)
        finally:
            recorder.terminate()
            recorder.wait()
    recording = load(FILE)
    pods = recording.values[:, recording.columns.index("n")]
    print(f"{len(pods)} samples with up to {pods.max():.0f} pods; `make bench NAME=signal-stages` draws them")
    return {"samples": float(len(pods)), "pods_max": float(pods.max()), "bytes": float(FILE.stat().st_size)}


def _scenario(runtime: Any) -> None:
    with grpc.insecure_channel(f"unix:{runtime.socket}") as channel:
        api = RuntimeServiceStub(channel)
        time.sleep(STEP)
        subprocess.run(["stress-ng", "--cpu", "1", "--timeout", "15", "--quiet"], check=True)
        time.sleep(STEP)
        _up_and_down(api, runtime)
        _up_and_down(api, runtime)


def _up_and_down(api: Any, runtime: Any) -> None:
    sandboxes = []
    for number in range(PODS):
        sandboxes.append(_start(api, runtime, f"pod-{time.monotonic_ns()}-{number}"))
        time.sleep(STEP)
    for sandbox in reversed(sandboxes):
        api.StopPodSandbox(cri.StopPodSandboxRequest(pod_sandbox_id=sandbox), timeout=60)
        api.RemovePodSandbox(cri.RemovePodSandboxRequest(pod_sandbox_id=sandbox), timeout=60)
        time.sleep(STEP)


def _start(api: Any, runtime: Any, name: str) -> str:
    pod = cri.PodSandboxConfig(
        metadata=cri.PodSandboxMetadata(name=name, uid=name, namespace="bench"),
        linux=cri.LinuxPodSandboxConfig(cgroup_parent=runtime.cgroup_parent),
    )
    sandbox: str = api.RunPodSandbox(cri.RunPodSandboxRequest(config=pod), timeout=60).pod_sandbox_id
    work = cri.ContainerConfig(
        metadata=cri.ContainerMetadata(name="work"),
        image=cri.ImageSpec(image=runtime.busybox_image),
        command=["awk", WORK],
        linux=cri.LinuxContainerConfig(),
    )
    request = cri.CreateContainerRequest(pod_sandbox_id=sandbox, config=work, sandbox_config=pod)
    container = api.CreateContainer(request, timeout=60).container_id
    api.StartContainer(cri.StartContainerRequest(container_id=container), timeout=60)
    return sandbox
