"""The status of a pod as written to the API server: phase, conditions and a status per container, as a kubelet's.

A kubelet writes the start and end of a container in whole seconds. Here they have fractions, which the embedded API
server keeps (a real one cuts them off): pods of a demo run for seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from carico.embedded.node.command import ADDRESS
from carico.embedded.node.container import ContainerState, Terminated
from carico.kube.binding import rfc3339


class NamedContainer(NamedTuple):
    """A container with the fields that its status shows."""

    name: str
    image: str
    state: ContainerState


class PodVerdict(NamedTuple):
    """Why a pod failed as a whole, if it did."""

    reason: str = ""
    message: str = ""


def seconds_text(wall: float) -> str:
    return rfc3339(wall)[:19] + "Z"


def phase_of(inits: Sequence[ContainerState], states: Sequence[ContainerState], verdict: PodVerdict) -> str:
    """
    >>> phase_of([], [ContainerState()], PodVerdict()), phase_of([], [ContainerState(running=1.0)], PodVerdict())
    ('Pending', 'Running')
    """
    if verdict.reason:
        return "Failed"
    if any(one.over and one.terminated and one.terminated.exit_code for one in inits):
        return "Failed"
    if states and all(one.over and one.terminated for one in states):
        failed = any(one.terminated and one.terminated.exit_code for one in states)
        return "Failed" if failed else "Succeeded"
    begun = all(one.running is not None or one.terminated or one.last for one in states)
    return "Running" if begun else "Pending"


class Conditions:
    """Conditions with their transition times."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[str, str]] = {}  # type → status, time

    def all(
        self, inits: Sequence[ContainerState], states: Sequence[ContainerState], phase: str, now: float
    ) -> list[dict[str, Any]]:
        initialised = all(one.over and one.terminated and not one.terminated.exit_code for one in inits)
        ready = bool(states) and all(one.running is not None for one in states)
        why = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}.get(phase, "ContainersNotReady")
        alive = phase in ("Pending", "Running")
        return [
            self._one("PodReadyToStartContainers", alive, "", now),
            self._one("Initialized", initialised, "ContainersNotInitialized", now),
            self._one("Ready", ready, why, now),
            self._one("ContainersReady", ready, why, now),
        ]

    def _one(self, kind: str, holds: bool, why_not: str, now: float) -> dict[str, Any]:
        status = str(holds)
        if self._since.get(kind, ("", ""))[0] != status:
            self._since[kind] = (status, seconds_text(now))
        condition = {"type": kind, "status": status, "lastProbeTime": None, "lastTransitionTime": self._since[kind][1]}
        return condition if holds or not why_not else condition | {"reason": why_not}


def status_of(
    inits: Sequence[NamedContainer],
    containers: Sequence[NamedContainer],
    conditions: Conditions,
    start: float,
    verdict: PodVerdict,
    now: float,
) -> dict[str, Any]:
    before, states = [one.state for one in inits], [one.state for one in containers]
    phase = phase_of(before, states, verdict)
    status: dict[str, Any] = {
        "phase": phase,
        "startTime": seconds_text(start),
        "hostIP": ADDRESS,
        "podIP": ADDRESS,
        "podIPs": [{"ip": ADDRESS}],
        "conditions": conditions.all(before, states, phase, now),
        "containerStatuses": [_container(one) for one in containers],
    }
    if inits:
        status["initContainerStatuses"] = [_container(one) for one in inits]
    if verdict.reason:
        status |= {"reason": verdict.reason, "message": verdict.message}
    return status


def _container(one: NamedContainer) -> dict[str, Any]:
    state = one.state
    return {
        "name": one.name,
        "image": one.image,
        "imageID": "",
        "containerID": f"carico://{state.id}" if state.id else "",
        "ready": state.running is not None,
        "started": state.running is not None,
        "restartCount": state.restarts,
        "state": _state(state),
        "lastState": {"terminated": _terminated(state.last)} if state.last else {},
    }


def _state(state: ContainerState) -> dict[str, Any]:
    if state.running is not None:
        return {"running": {"startedAt": rfc3339(state.running)}}
    if state.terminated is not None:
        return {"terminated": _terminated(state.terminated)}
    waiting = {"reason": state.waiting}
    return {"waiting": waiting | ({"message": state.message} if state.message else {})}


def _terminated(end: Terminated) -> dict[str, Any]:
    found: dict[str, Any] = {
        "exitCode": end.exit_code,
        "reason": end.reason,
        "startedAt": rfc3339(end.started),
        "finishedAt": rfc3339(end.finished),
    }
    if end.id:
        found["containerID"] = f"carico://{end.id}"
    if end.signal:
        found["signal"] = end.signal
    if end.message:
        found["message"] = end.message
    return found
