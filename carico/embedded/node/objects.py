"""The fields of a pod that running it needs. carico/kube/objects.py has those that scheduling needs."""

from __future__ import annotations

from typing import Any

import msgspec

from carico.kube.meta import KubeObject, KubeStruct, ObjectMeta
from carico.kube.objects import ResourceRequirements


class FieldSelector(KubeStruct, frozen=True):
    field_path: str = ""


class EnvironmentSource(KubeStruct, frozen=True):
    field_ref: FieldSelector | None = None
    config_map_key_ref: dict[str, Any] | None = None
    secret_key_ref: dict[str, Any] | None = None
    resource_field_ref: dict[str, Any] | None = None


class Variable(KubeStruct, frozen=True):
    name: str
    value: str = ""
    value_from: EnvironmentSource | None = None


class RunContainer(KubeStruct, frozen=True):
    name: str = ""
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[Variable, ...] = ()
    env_from: tuple[dict[str, Any], ...] = ()
    working_dir: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    restart_policy: str = ""  # Always on an init container: a sidecar


class RunSpec(KubeStruct, frozen=True):
    node_name: str = ""
    containers: tuple[RunContainer, ...] = ()
    init_containers: tuple[RunContainer, ...] = ()
    restart_policy: str = "Always"
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None
    service_account_name: str = ""


class OldState(KubeStruct, frozen=True):
    name: str = ""
    restart_count: int = 0
    state: dict[str, Any] = msgspec.field(default_factory=dict)


class RunStatus(KubeStruct, frozen=True):
    phase: str = ""
    start_time: str | None = None
    container_statuses: tuple[OldState, ...] = ()


class RunMeta(ObjectMeta, frozen=True):
    deletion_grace_period_seconds: int | None = None


class RunPod(KubeObject, frozen=True):
    metadata: RunMeta = RunMeta()
    spec: RunSpec = RunSpec()
    status: RunStatus = RunStatus()

    @property
    def terminal(self) -> bool:
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def lost(self) -> bool:
        """The API server's status has running containers: they ran under a node process that has ended."""
        return any("running" in one.state for one in self.status.container_statuses)
