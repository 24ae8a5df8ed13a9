"""Permit and the binding cycle: permit ─► pre-bind ─► bind ─► post-bind.

Every pod that was assigned a node is one task. Any number of them may wait, for Permit or for volumes: only requests to
the API server take one of the slots. A failure before the binding is sent releases the reservation and requeues the
pod. Once the binding was sent, the reservation stays until its outcome is known.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from carico.clock import Clock
from carico.kube.binding import DONE, Binding, BindOutcome, BindResult
from carico.kube.client import Client
from carico.scheduler.cycle.binding_finisher import Attempt, BindingFinisher, Rejection
from carico.scheduler.cycle.binding_slots import Slots
from carico.scheduler.cycle.profiles import Profile
from carico.scheduler.cycle.scheduling_cycle import Decision
from carico.scheduler.cycle.unknown_outcome import outcome_of, settle
from carico.scheduler.framework.contract import Code, PermitWait
from carico.scheduler.framework.in_flight import Ending, WaitingPods
from carico.scheduler.queue.entries import Queued

log = logging.getLogger(__name__)

GOOD = (Code.SUCCESS, Code.SKIP)


class Binder:
    def __init__(
        self,
        client: Client,
        concluder: BindingFinisher,
        clock: Clock,
        *,
        slots: Slots,
        waiting: WaitingPods,
        may_bind: Callable[[], bool],
    ) -> None:
        self._client, self._concluder, self._clock = client, concluder, clock
        self._slots, self._waiting, self._may_bind = slots, waiting, may_bind
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def bound(self) -> int:
        return self._concluder.bound

    @property
    def in_flight(self) -> int:
        """Pods in flight, including those that wait."""
        return len(self._tasks)

    @property
    def has_place(self) -> bool:
        """Whether the next scheduling cycle may start."""
        return self._slots.has_room

    async def wait_for_place(self) -> None:
        await self._slots.wait_for_room()

    def start(self, profile: Profile, queued: Queued, decision: Decision, began: float) -> None:
        """Runs Permit and starts the pod's task; `began` is when its attempt began, s of perf_counter."""
        in_flight = self._waiting.enter(decision.cycle.pod, decision.node)
        attempt = Attempt(profile, queued, decision, began, in_flight)
        refused = self._permit(attempt)
        if refused is not None:
            self._finish(attempt, refused)
            return
        self._slots.announce()
        task = asyncio.get_running_loop().create_task(self._run(attempt))
        self._tasks.add(task)
        task.add_done_callback(self._on_end)

    async def drain(self) -> None:
        """Waits for the bindings that were sent; all other pods in flight are left to the next leader."""
        self._waiting.close()
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def abandon(self) -> None:
        """Cancels what is still in progress. No reservation is released, because the outcome is not known."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _on_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("binding broke", exc_info=error)

    # --- the binding cycle of one pod ---

    def _permit(self, attempt: Attempt) -> BindOutcome | Rejection | None:
        """The first rejection or error of a Permit plugin; None: the pod continues, perhaps after a wait."""
        for plugin in attempt.profile.permits:
            cycle = attempt.decision.cycle
            try:
                if cycle.times is None:
                    answer = plugin.permit(cycle, attempt.node)
                else:
                    answer = cycle.times.call("Permit", plugin.name, plugin.permit, cycle, attempt.node)
                if isinstance(answer, PermitWait):
                    attempt.in_flight.require(plugin.name, answer.seconds)
                elif answer.code is Code.ERROR:
                    return BindOutcome(BindResult.FAILED, answer.message)
                elif answer.code not in GOOD:
                    return Rejection(plugin.name, answer.message)
            except Exception as error:
                return BindOutcome(
                    BindResult.FAILED, self._concluder.note_exception(attempt.profile, plugin.name, error)
                )
        return None

    async def _run(self, attempt: Attempt) -> None:
        self._slots.arrive()
        await attempt.in_flight.permitted()
        outcome = self._reason_to_stop(attempt) or await self._pre_bind(attempt) or await self._bind(attempt)
        self._finish(attempt, outcome)

    async def _pre_bind(self, attempt: Attempt) -> BindOutcome | None:
        for plugin in attempt.profile.pre_binds:
            cycle = attempt.decision.cycle
            try:
                answer = plugin.pre_bind(cycle, attempt.node)
                status = await (answer if cycle.times is None else cycle.times.wait("PreBind", plugin.name, answer))
            except Exception as error:
                return BindOutcome(
                    BindResult.FAILED, self._concluder.note_exception(attempt.profile, plugin.name, error)
                )
            if status.code not in GOOD:
                return BindOutcome(BindResult.FAILED, status.message)
        return None

    async def _bind(self, attempt: Attempt) -> BindOutcome | Rejection:
        in_flight = attempt.in_flight
        request = Binding(self._client, attempt.info.pod, attempt.node, self._clock, self._may_bind)
        if attempt.profile.binds:
            if (reason := self._reason_to_stop(attempt)) is not None:
                return reason
            if (outcome := await self._bind_by_plugin(attempt, request)) is not None:
                return outcome
        async with self._slots:
            if (reason := self._reason_to_stop(attempt)) is not None:
                return reason
            in_flight.sent = True
            with attempt.profile.timed("Bind"):
                outcome = await request.send()
        if outcome.bound is BindResult.UNKNOWN:
            self._concluder.note_unknown(attempt, outcome)
            outcome = await settle(request, in_flight, self._slots)
        return outcome

    async def _bind_by_plugin(self, attempt: Attempt, request: Binding) -> BindOutcome | None:
        attempt.in_flight.sent = True
        for plugin in attempt.profile.binds:
            cycle = attempt.decision.cycle
            try:
                answer = plugin.bind(cycle, attempt.node)
                status = await (answer if cycle.times is None else cycle.times.wait("Bind", plugin.name, answer))
            except Exception as error:  # perhaps after the plugin had sent the binding
                self._concluder.note_exception(attempt.profile, plugin.name, error)
                request.doubt()
                return await settle(request, attempt.in_flight, self._slots)
            if status.code is not Code.SKIP:
                return DONE if status.ok else BindOutcome(BindResult.FAILED, status.message)
        attempt.in_flight.sent = False
        return None

    def _reason_to_stop(self, attempt: Attempt) -> BindOutcome | Rejection | None:
        """Why the pod must not be bound any more; None: it may."""
        ended = attempt.in_flight.ended
        if ended is not None and ended.how is Ending.REJECTED:
            return Rejection(ended.plugin, ended.why)
        return None if ended is None else outcome_of(ended, attempt.node)

    def _finish(self, attempt: Attempt, outcome: BindOutcome | Rejection) -> None:
        in_flight = attempt.in_flight
        self._waiting.leave(in_flight)
        if in_flight.ended is None or in_flight.ended.how is not Ending.CLOSED:  # else the next leader takes it
            self._concluder.conclude(attempt, outcome)
