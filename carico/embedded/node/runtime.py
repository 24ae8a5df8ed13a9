"""Sandboxes, containers and their events, as in a container runtime. State without I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple


class RuntimeEventKind(Enum):
    CREATED = "created"
    STARTED = "started"
    STOPPED = "stopped"
    DELETED = "deleted"


class SandboxPhase(Enum):
    CREATED = "created"
    RUNNING = "running"
    EXITED = "exited"


@dataclass(frozen=True)
class LocalSandbox:
    """The sandbox of one pod."""

    id: str
    name: str
    namespace: str
    uid: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    created: float  # s since the epoch
    ready: bool = True


class FirstProcess(NamedTuple):
    """The first process of a running container."""

    pid: int
    memory_limit: int | None  # bytes


@dataclass(frozen=True)
class RuntimeContainer:
    """A container."""

    id: str
    sandbox: str
    created: float  # s since the epoch
    image: str = ""
    phase: SandboxPhase = SandboxPhase.CREATED
    process: FirstProcess | None = None  # while it runs


class RuntimeEvent(NamedTuple):
    id: str  # of the container, or of the sandbox itself
    what: RuntimeEventKind
    at: float  # s since the epoch
    sandbox: LocalSandbox | None
    image: str = ""  # of a container


class Runtime:
    """`listen` passes every event to a callback until the function that it returned is called."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        self.sandboxes: dict[str, LocalSandbox] = {}
        self.containers: dict[str, RuntimeContainer] = {}
        self._listeners: list[Callable[[RuntimeEvent], None]] = []

    def listen(self, on_event: Callable[[RuntimeEvent], None]) -> Callable[[], None]:
        self._listeners.append(on_event)
        return lambda: self._listeners.remove(on_event)

    def sandbox_started(self, sandbox: LocalSandbox) -> None:
        self.sandboxes[sandbox.id] = sandbox
        self._notify(sandbox.id, RuntimeEventKind.CREATED, sandbox)
        self._notify(sandbox.id, RuntimeEventKind.STARTED, sandbox)

    def sandbox_stopped(self, id: str) -> None:
        sandbox = self.sandboxes.get(id)
        if sandbox is not None and sandbox.ready:
            self.sandboxes[id] = replace(sandbox, ready=False)
            self._notify(id, RuntimeEventKind.STOPPED, self.sandboxes[id])

    def sandbox_removed(self, id: str) -> None:
        """Remove the sandbox with all its containers."""
        self.sandbox_stopped(id)
        for container in [one for one in self.containers.values() if one.sandbox == id]:
            del self.containers[container.id]
            self._notify(container.id, RuntimeEventKind.DELETED, self.sandboxes.get(id))
        sandbox = self.sandboxes.pop(id, None)
        if sandbox is not None:
            self._notify(id, RuntimeEventKind.DELETED, sandbox)

    def container_created(self, id: str, sandbox: str, image: str = "") -> None:
        for old in [
            one for one in self.containers.values() if one.sandbox == sandbox and one.phase is SandboxPhase.EXITED
        ]:
            del self.containers[old.id]
            self._notify(old.id, RuntimeEventKind.DELETED, self.sandboxes.get(sandbox))
        self.containers[id] = RuntimeContainer(id, sandbox, self._wall(), image)
        self._notify(id, RuntimeEventKind.CREATED, self.sandboxes.get(sandbox))

    def container_started(self, id: str, process: FirstProcess | None = None) -> None:
        self._move(id, SandboxPhase.RUNNING, RuntimeEventKind.STARTED, process)

    def container_stopped(self, id: str) -> None:
        self._move(id, SandboxPhase.EXITED, RuntimeEventKind.STOPPED)

    def _move(self, id: str, phase: SandboxPhase, what: RuntimeEventKind, process: FirstProcess | None = None) -> None:
        made = self.containers.get(id)
        if made is not None:
            self.containers[id] = replace(made, phase=phase, process=process)
            self._notify(id, what, self.sandboxes.get(made.sandbox))

    def _notify(self, id: str, what: RuntimeEventKind, sandbox: LocalSandbox | None) -> None:
        image = self.containers[id].image if id in self.containers else ""
        event = RuntimeEvent(id, what, self._wall(), sandbox, image)
        for on_event in list(self._listeners):
            on_event(event)
