"""A node's kubelet and container runtime: starts and ends pods on the machine, and updates the agent's pod table.

Seconds after the creation of the pod's cgroup, as measured on a real node (docs/event-lead.md): the runtime's spike
begins at 0.30, the sandbox is created at 0.35 and runs from 0.52, the container is created at 0.60 and runs from 0.80.
A sandbox ends some time after its last container, with a second spike.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from carico.backoff import doubled
from carico.runtime.pods import Member, PodListing, PodTable, Sandbox
from carico.sim.machine import Machine, later_peak
from carico.sim.timeline import Timeline
from carico.sim.workload import SimPod, WorkPhase

SPIKE_AT, SPIKE_FOR = 0.30, 0.30
SANDBOX_CREATED, SANDBOX_RUNS = 0.35, 0.52
CONTAINER_CREATED, CONTAINER_RUNS = 0.60, 0.80
EXIT_SPIKE_FOR = 0.15
CONTAINER_TAKEN_DOWN = 0.06  # s after its exit
SANDBOX_TAKEN_DOWN, SANDBOX_REMOVED = 0.1, 0.5  # s after the sandbox's exit
DRAIN = 1.5  # s from the last container's exit to the sandbox's
RUNNING_SEEN, ENDED_SEEN = 0.18, 1.9  # s until the API server has the new state
BACK_OFF_FIRST, BACK_OFF_MOST = 10.0, 300.0  # s of back-off before a container that ended is restarted
SUCCEEDED, KILLED, DELETED = "Succeeded", "OOMKilled", "Deleted"  # how a pod ends


@dataclass
class PlacedPod:
    """A pod on this node."""

    pod: SimPod
    sandbox_runs: float | None = None  # s, time of its start
    container_runs: float | None = None
    starts: int = 0  # of its container
    phase: int = 0  # the present one, of a program with work
    outcome: str = SUCCEEDED

    @property
    def is_coming(self) -> bool:
        """Bound, and its sandbox does not run yet."""
        return self.sandbox_runs is None and self.starts == 0 and self.outcome == SUCCEEDED

    @property
    def sandbox(self) -> str:
        return f"sandbox of {self.pod.uid}"

    @property
    def as_sandbox(self) -> Sandbox:
        key = self.pod.key
        return Sandbox(self.pod.uid, True, key.namespace, key, f"/kubepods/pod{self.pod.uid}")

    @property
    def container(self) -> str:
        return f"container {self.starts} of {self.pod.uid}"


@dataclass
class SimKubelet:
    timeline: Timeline
    machine: Machine
    table: PodTable  # the agent's; another one after its restart
    on_running: Callable[[str], None]  # the API server has the pod as running
    on_ended: Callable[[str, str], None]  # … as ended, and how
    drain: float = DRAIN
    pods: dict[str, PlacedPod] = field(default_factory=dict)
    running: int = 0  # pods whose container runs
    _plans: int = 0  # of the end of a phase with work; only the last one stands

    def bind(self, pod: SimPod) -> None:
        """The pod was bound to this node."""
        placed = self.pods[pod.uid] = PlacedPod(pod)
        begin = self.timeline.monotonic() + pod.kubelet_delay
        self._at(begin, lambda now: self.table.expect_pod(now))
        self.machine.spike(begin + SPIKE_AT, SPIKE_FOR)
        self._at(begin + SANDBOX_CREATED, lambda now: self._create_sandbox(placed, now))
        self._at(begin + SANDBOX_RUNS, lambda now: self._run_sandbox(placed, now))
        if not pod.stuck:
            self._at(begin + CONTAINER_CREATED, lambda now: self._create_container(placed, now))
            self._at(begin + CONTAINER_RUNS, lambda now: self._run_container(placed, now))

    def listing(self) -> PodListing:
        """The runtime's listing for an agent that has just started."""
        up = {id: placed for id, placed in self.pods.items() if placed.sandbox_runs is not None}
        running = {placed.sandbox: placed.sandbox_runs or 0.0 for placed in up.values()}
        containers = [placed for placed in up.values() if placed.container_runs is not None]
        running |= {placed.container: placed.container_runs or 0.0 for placed in containers}
        return PodListing(
            sandboxes={placed.sandbox: placed.as_sandbox for placed in up.values()},
            containers={placed.container: Member(placed.sandbox, "") for placed in containers},
            running=running,
        )

    def _at(self, when: float, step: Callable[[float], None]) -> None:
        self.timeline.at(when, lambda: step(self.timeline.monotonic()))

    def _create_sandbox(self, placed: PlacedPod, now: float) -> None:
        self.table.creating(placed.sandbox, now)
        self.table.add_sandbox(placed.sandbox, placed.as_sandbox)

    def _run_sandbox(self, placed: PlacedPod, now: float) -> None:
        placed.sandbox_runs = now
        self.table.started(placed.sandbox, now)
        pod = placed.pod
        self.machine.add(pod.uid, (0.0, 0.0) if pod.stuck else pod.peak, pod.cpu_limit, now)
        if pod.stuck and placed.outcome != SUCCEEDED:
            self._end(placed, now)

    def _create_container(self, placed: PlacedPod, now: float) -> None:
        if placed.outcome != SUCCEEDED:
            return
        placed.starts += 1
        self.table.creating(placed.container, now)
        self.table.add_container(placed.container, placed.sandbox)

    def _run_container(self, placed: PlacedPod, now: float) -> None:
        if placed.outcome != SUCCEEDED:
            if self.machine.has(placed.pod.uid):
                self._end(placed, now)
            return
        placed.container_runs = now
        self.running += 1
        self.table.started(placed.container, now)
        if placed.starts == 1:
            self._at(now + RUNNING_SEEN, lambda _: self.on_running(placed.pod.uid))
        if placed.pod.has_work:
            placed.phase = -1
            self._next_phase(placed, now)
            return
        program, at = placed.pod.program(now), now
        for i, phase in enumerate(program):
            ahead = later_peak(program[i + 1 :])
            self._at(at, lambda then, p=phase, a=ahead: self._enter(placed, p, a, then))  # type: ignore[misc]
            at += phase.seconds
        self._at(at, lambda then: self._exit_container(placed, then))

    def _enter(self, placed: PlacedPod, phase: WorkPhase, ahead: tuple[float, float], now: float) -> None:
        if placed.container_runs is not None:  # else it was killed or deleted meanwhile
            self.machine.enter(placed.pod.uid, phase, ahead, now)
            self.plan()

    def _next_phase(self, placed: PlacedPod, now: float) -> None:
        """Enters the next phase of a program with work, or ends the container after the last one."""
        if placed.container_runs is None:
            return
        placed.phase += 1
        phases = placed.pod.phases
        if placed.phase == len(phases):
            self._exit_container(placed, now)
            return
        phase = phases[placed.phase]
        self._enter(placed, phase, later_peak(phases[placed.phase + 1 :]), now)
        if not phase.work:
            self._at(now + phase.seconds, lambda then: self._next_phase(placed, then))

    def plan(self) -> None:
        """Schedules the end of the phase with work that ends first; call it whenever the shares of cpu have changed."""
        when = self.machine.next_end(self.timeline.monotonic())
        if when < math.inf:
            self._plans += 1
            plan = self._plans
            self._at(when, lambda now: self._work_done(now) if plan == self._plans else None)

    def _work_done(self, now: float) -> None:
        for uid in self.machine.finished(now):
            self._next_phase(self.pods[uid], now)
        self.plan()

    def kill(self, uid: str, outcome: str) -> None:
        """Ends the pod's container, or its start, and then the pod."""
        placed = self.pods.get(uid)
        if placed is not None and placed.outcome == SUCCEEDED:
            placed.outcome = outcome
            now = self.timeline.monotonic()
            if placed.container_runs is not None:
                self._exit_container(placed, now)
            elif placed.sandbox_runs is not None and (placed.pod.stuck or placed.starts):
                self._end(placed, now)  # else it ends as soon as its container would start

    def reclaim(self) -> list[str]:
        """Kills pods that have more memory than their limit, then, as the kernel does while the machine has too
        little, the one with the most memory beyond its request; returns them."""
        killed = [placed for placed in self._with_memory() if self._memory(placed) > placed.pod.memory_limit]
        for placed in killed:
            self.kill(placed.pod.uid, KILLED)
        while self.machine.memory_over() > 0.0 and (left := self._with_memory()):
            most = max(left, key=lambda placed: self._memory(placed) - placed.pod.requests[1])
            self.kill(most.pod.uid, KILLED)
            killed.append(most)
        return [placed.pod.uid for placed in killed]

    def _with_memory(self) -> list[PlacedPod]:
        return [placed for placed in self.pods.values() if placed.container_runs is not None]

    def _memory(self, placed: PlacedPod) -> float:
        return self.machine.memory_of(placed.pod.uid)

    def _exit_container(self, placed: PlacedPod, now: float) -> None:
        if placed.container_runs is None:
            return
        placed.container_runs = None
        self.running -= 1
        container = placed.container
        self.table.exited(container, now)
        self.machine.spike(now, EXIT_SPIKE_FOR)
        self._at(now + CONTAINER_TAKEN_DOWN, lambda then: self.table.stopped(container, then))
        if placed.pod.crashes and placed.outcome == SUCCEEDED:
            self._restart(placed, now)
        else:
            self._end(placed, now)

    def _restart(self, placed: PlacedPod, now: float) -> None:
        self.machine.rest(placed.pod.uid, placed.pod.peak, now)
        start = now + doubled(BACK_OFF_FIRST, BACK_OFF_MOST, placed.starts)
        self._at(start, lambda then: self._create_container(placed, then))
        self._at(start + CONTAINER_RUNS - CONTAINER_CREATED, lambda then: self._run_container(placed, then))

    def _end(self, placed: PlacedPod, now: float) -> None:
        self.machine.remove(placed.pod.uid, now)
        self.plan()
        gone = now + self.drain
        self._at(gone, lambda then: self._exit_sandbox(placed, then))
        self._at(gone + SANDBOX_TAKEN_DOWN, lambda then: self.table.stopped(placed.sandbox, then))
        self._at(gone + SANDBOX_REMOVED, lambda then: self._forget(placed, then))
        self._at(now + ENDED_SEEN, lambda _: self.on_ended(placed.pod.uid, placed.outcome))

    def _exit_sandbox(self, placed: PlacedPod, now: float) -> None:
        placed.sandbox_runs = None
        self.table.exited(placed.sandbox, now)
        self.machine.spike(now, SPIKE_FOR)

    def _forget(self, placed: PlacedPod, now: float) -> None:
        self.table.removed(placed.container, now)
        self.table.removed(placed.sandbox, now)
        del self.pods[placed.pod.uid]
