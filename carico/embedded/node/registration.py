"""The Node object of this machine, kept up to date, and the Lease that shows that its kubelet is alive."""

from __future__ import annotations

import logging
import os
import platform
import shutil
from pathlib import Path
from typing import Any

import msgspec

from carico import __version__
from carico.clock import Clock
from carico.embedded.node.command import ADDRESS
from carico.embedded.node.status import seconds_text
from carico.errors import ApiError, CaricoError
from carico.kube import leases, nodes
from carico.kube.binding import rfc3339
from carico.kube.client import Client
from carico.types import NodeSize

log = logging.getLogger(__name__)

RENEW_EVERY = 10.0  # s
STATUS_EVERY = 30  # renewals between two writes of an unchanged status: five minutes, as a kubelet
LEASE_SECONDS = 40
LEASES = "kube-node-lease"  # the namespace of the nodes' Leases
MOST_PODS = 110
RETRY = 0.5  # s between two attempts to register
WELL = {
    "MemoryPressure": ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    "DiskPressure": ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    "PIDPressure": ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
}


class Registration:
    def __init__(self, client: Client, name: str, size: NodeSize, folder: Path, clock: Clock) -> None:
        self._client, self._name, self._size, self._folder, self._clock = client, name, size, folder, clock
        self._since = seconds_text(clock.wall())
        self._uid = ""

    async def register(self) -> None:
        """Create the Node, or adopt an existing one; retries while the API server is still starting."""
        while True:
            try:
                await self._create()
                await self._write_status()
                await self._renew()
                log.info("node %s is registered", self._name)
                return
            except (CaricoError, OSError) as error:
                log.warning("node %s: %s; trying again", self._name, str(error) or type(error).__name__)
                await self._clock.sleep(RETRY)

    async def run(self) -> None:
        renewals = 0
        while True:
            await self._clock.sleep(RENEW_EVERY)
            renewals += 1
            try:
                await self._renew()
                if renewals % STATUS_EVERY == 0:
                    await self._write_status()
            except ApiError as error:
                log.warning("node %s: %s", self._name, error)
                if error.status == 404:
                    await self.register()
            except (CaricoError, OSError) as error:
                log.warning("node %s: %s", self._name, str(error) or type(error).__name__)

    async def _create(self) -> None:
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self._name, "labels": self._labels()}}
        try:
            made = await nodes.create(self._client, body)
        except ApiError as error:
            if error.status != 409:
                raise
            made = await nodes.read(self._client, self._name)
        self._uid = made["metadata"]["uid"]

    def _labels(self) -> dict[str, str]:
        return {
            "kubernetes.io/hostname": self._name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": architecture(platform.machine()),
        }

    async def _write_status(self) -> None:
        await nodes.patch_status(self._client, self._name, self.status())

    def status(self) -> dict[str, Any]:
        room = self._room()
        return {
            "capacity": room,
            "allocatable": room,
            "conditions": self._conditions(),
            "addresses": [
                {"type": "InternalIP", "address": ADDRESS},
                {"type": "Hostname", "address": platform.node()},
            ],
            "nodeInfo": node_info(),
        }

    def _room(self) -> dict[str, str]:
        return {
            "cpu": cores_text(self._size.cores),
            "memory": f"{int(self._size.memory_bytes) // 1024}Ki",
            "ephemeral-storage": f"{shutil.disk_usage(self._folder).total // 1024}Ki",
            "pods": str(MOST_PODS),
        }

    def _conditions(self) -> list[dict[str, str]]:
        now = seconds_text(self._clock.wall())
        times = {"lastHeartbeatTime": now, "lastTransitionTime": self._since}
        well = [
            {"type": kind, "status": "False", "reason": reason, "message": message} | times
            for kind, (reason, message) in WELL.items()
        ]
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "pods run as processes"}
        return [*well, ready | times]

    async def _renew(self) -> None:
        owner = {"apiVersion": "v1", "kind": "Node", "name": self._name, "uid": self._uid}
        spec = {
            "holderIdentity": self._name,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": rfc3339(self._clock.wall()),
        }
        lease: dict[str, Any] = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._name, "namespace": LEASES, "ownerReferences": [owner]},
            "spec": spec,
        }
        try:
            held = msgspec.json.decode(await leases.read(self._client, LEASES, self._name))
        except ApiError as error:
            if error.status != 404:
                raise
            await leases.create(self._client, LEASES, msgspec.json.encode(lease))
            return
        lease["metadata"]["resourceVersion"] = held["metadata"]["resourceVersion"]
        await leases.update(self._client, LEASES, self._name, msgspec.json.encode(lease))


def cores_text(cores: float) -> str:
    """
    >>> cores_text(2.0), cores_text(0.5)
    ('2', '500m')
    """
    return str(int(cores)) if cores == int(cores) else f"{round(cores * 1000)}m"


def architecture(machine: str) -> str:
    """
    >>> architecture("x86_64"), architecture("riscv64")
    ('amd64', 'riscv64')
    """
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)


def node_info() -> dict[str, str]:
    return {
        "machineID": _text("/etc/machine-id"),
        "systemUUID": _text("/etc/machine-id"),
        "bootID": _text("/proc/sys/kernel/random/boot_id"),
        "kernelVersion": os.uname().release,
        "osImage": _os_image(),
        "containerRuntimeVersion": f"carico://{__version__}",
        "kubeletVersion": f"v{__version__}-carico",
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": architecture(platform.machine()),
    }


def _text(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _os_image() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    except OSError:
        return "Linux"
