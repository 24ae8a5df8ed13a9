"""A real containerd that a test may stop and start again, and a maker of pods in it through CRI."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio

from carico.runtime import RuntimeSource
from carico.runtime.api import cri_pb2 as cri
from carico.runtime.api.cri_pb2_grpc import RuntimeServiceStub
from harness.cluster.containerd import SOCKET, STATE
from harness.cluster.handle import Containerd
from harness.cluster.images import write_layout

PATIENCE = 60.0  # s; what takes milliseconds here may take seconds on a busy machine


async def eventually(true: Callable[[], bool], what: str) -> None:
    try:
        async with asyncio.timeout(PATIENCE):
            while not true():  # noqa: ASYNC110  (what is waited for has no event)
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"not within {PATIENCE:.0f} s: {what}") from None


@asynccontextmanager
async def following(source: RuntimeSource) -> AsyncIterator[RuntimeSource]:
    """Runs a source, and waits until it has listed."""
    run = asyncio.create_task(source.run())
    await eventually(lambda: source.problem is None, f"{source.name} has no problem")
    yield source
    assert not run.done(), "a source never ends by itself"
    run.cancel()
    await asyncio.gather(run, return_exceptions=True)


class Engine:
    """A second containerd in the sealed place of the session's: that one must not end, this one may."""

    def __init__(self, sealed: Containerd) -> None:
        self.sealed = sealed
        self.folder = sealed.folder / "engine"
        self.socket = self.folder / "c.sock"
        self.cgroup_parent = sealed.cgroup_parent
        self._write_configuration()
        self.start()
        self._import_images()

    def _write_configuration(self) -> None:
        self.folder.mkdir()
        text = (self.sealed.folder / "containerd.toml").read_text()
        for old, new in (
            (str(STATE / SOCKET), str(self.socket)),
            (f'root = "{self.sealed.folder}/containerd"', f'root = "{self.folder}/root"'),
            ('state = "/run/containerd"', 'state = "/run/engine"'),
        ):
            assert old in text
            text = text.replace(old, new)
        (self.folder / "containerd.toml").write_text(text)

    def _import_images(self) -> None:
        write_layout(self.folder / "images.tar")
        ctr = [self.sealed.ctr_binary, "-a", str(self.socket), "-n", "k8s.io"]
        self.sealed.inside(*ctr, "images", "import", str(self.folder / "images.tar"))

    def start(self) -> None:
        binary = Path(self.sealed.ctr_binary).with_name("containerd")
        path = f"{binary.parent}:/usr/sbin:/usr/bin:/sbin:/bin"
        with open(self.folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                self.sealed.enter([str(binary), "--config", str(self.folder / "containerd.toml")]),
                env=os.environ | self.sealed.run.environment | {"PATH": path},
                stdout=log,
                stderr=log,
            )
        with grpc.insecure_channel(f"unix:{self.socket}", OPTIONS) as channel:
            self._wait_for_cri(RuntimeServiceStub(channel))

    @staticmethod
    def _wait_for_cri(stub: RuntimeServiceStub) -> None:
        """containerd 1.6 answers `Version` before its CRI plugin is initialized, and everything else with UNKNOWN."""
        until = time.monotonic() + PATIENCE
        while True:
            try:
                stub.ListPodSandbox(cri.ListPodSandboxRequest(), timeout=PATIENCE, wait_for_ready=True)
                return
            except grpc.RpcError as error:
                if "not initialized" not in str(error.details()) or time.monotonic() > until:
                    raise
                time.sleep(0.05)

    def kill(self) -> None:
        """Ends containerd without warning; what it had started runs on."""
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        for pid in map(int, children):
            os.kill(pid, signal.SIGKILL)
        self._process.wait()


FOREVER = ("sleep", "100000")
OPTIONS = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
]


class PodMaker:
    """Creates and removes pods as a kubelet does."""

    def __init__(self, engine: Engine, channel: grpc.aio.Channel) -> None:
        self._engine = engine
        self._api = RuntimeServiceStub(channel)

    async def sandbox(self, uid: str, cgroup: str = "", **config: dict[str, str]) -> str:
        request = cri.RunPodSandboxRequest(config=self._config(uid, cgroup, **config))
        answer: str = (await self._ask("RunPodSandbox", request)).pod_sandbox_id
        return answer

    def _config(self, uid: str, cgroup: str, **config: dict[str, str]) -> Any:
        return cri.PodSandboxConfig(
            metadata=cri.PodSandboxMetadata(name=uid, uid=uid, namespace="tests"),
            linux=cri.LinuxPodSandboxConfig(cgroup_parent=f"{self._engine.cgroup_parent}{cgroup}"),
            **config,
        )

    async def container(
        self, sandbox: str, uid: str, cgroup: str = "", asked_for: str = "", command: Sequence[str] = FOREVER
    ) -> str:
        config = cri.ContainerConfig(
            metadata=cri.ContainerMetadata(name="work"),
            image=cri.ImageSpec(image=self._engine.sealed.busybox_image, user_specified_image=asked_for),
            command=command,
            labels={"io.kubernetes.pod.uid": uid},
            linux=cri.LinuxContainerConfig(),
        )
        pod = self._config(uid, cgroup)
        request = cri.CreateContainerRequest(pod_sandbox_id=sandbox, config=config, sandbox_config=pod)
        container: str = (await self._ask("CreateContainer", request)).container_id
        await self._ask("StartContainer", cri.StartContainerRequest(container_id=container))
        return container

    async def stop_container(self, container: str) -> None:
        await self._ask("StopContainer", cri.StopContainerRequest(container_id=container, timeout=0))

    async def exec_probe(self, container: str) -> None:
        request = cri.ExecSyncRequest(container_id=container, cmd=["true"], timeout=30)
        assert (await self._ask("ExecSync", request)).exit_code == 0

    async def stop(self, sandbox: str) -> None:
        await self._ask("StopPodSandbox", cri.StopPodSandboxRequest(pod_sandbox_id=sandbox))

    async def remove(self, sandbox: str) -> None:
        await self.stop(sandbox)
        await self._ask("RemovePodSandbox", cri.RemovePodSandboxRequest(pod_sandbox_id=sandbox))

    async def remove_all(self) -> None:
        for sandbox in (await self._ask("ListPodSandbox", cri.ListPodSandboxRequest())).items:
            await self.remove(sandbox.id)

    async def _ask(self, method: str, request: Any) -> Any:
        return await getattr(self._api, method)(request, timeout=PATIENCE, wait_for_ready=True)


@asynccontextmanager
async def hand(engine: Engine) -> AsyncIterator[PodMaker]:
    async with grpc.aio.insecure_channel(f"unix:{engine.socket}", options=OPTIONS) as channel:
        pods = PodMaker(engine, channel)
        yield pods
        await pods.remove_all()
