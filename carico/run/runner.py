"""Starts tasks while there is room, watches them, pauses or kills some when memory runs short, and restarts tasks."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from carico import durations
from carico.clock import Clock
from carico.embedded.supervisor.guard import ChildProcess, Guard, LaunchCommand, ProcessEnded
from carico.errors import StartFailed
from carico.run.admission import RunAdmission
from carico.run.memory import MemoryGuard
from carico.run.output import Output
from carico.run.tasks import START_FAILED, TIMED_OUT, Result, Task, TaskCounts
from carico.run.template import CommandTemplate

BLAME = 800  # oom_score_adj: the OOM killer chooses a task before this process
GRACE = 10.0  # s that tasks have to end after the first Ctrl-C, or after their timeout
AHEAD = 10_000  # tasks that may wait before more inputs are read
MOST_DISPLACED = 20  # times that a task is displaced before it counts as failed
KILLED = 128 + signal.SIGKILL


@dataclass
class RunningTask:
    task: Task
    started: float  # s, monotonic
    kills: int  # OOM kills on this machine before it started
    process: ChildProcess | None = None
    paused: bool = False
    displaced: bool = False  # this process killed it to free memory
    timed_out: bool = False
    timer: asyncio.TimerHandle | None = None  # ends it, first with SIGTERM
    left: float = 0.0  # s until its timeout, while it is paused


@dataclass(frozen=True)
class Halt:
    """When to stop early: after `failures` failures, at once or when the running tasks have ended."""

    failures: int = 0  # 0: never
    now: bool = False


@dataclass(frozen=True)
class RunRules:
    """How tasks that fail or do not end are handled."""

    tries: int = 1  # of a task that fails; 0: until it succeeds
    timeout: float | None = None  # s that a task may run
    halt: Halt = Halt()


class Runner:
    """`offer` it tasks; `run` returns when nothing is left to do after `no_more`. `ended` is called for each result."""

    def __init__(
        self,
        template: CommandTemplate,
        output: Output,
        counts: TaskCounts,
        admission: RunAdmission,
        memory: MemoryGuard,
        clock: Clock,
        *,
        rules: RunRules,
        ended: Callable[[Result], None],
    ) -> None:
        self._queue: deque[Task] = deque()
        self._complete = False
        self._room = asyncio.Event()
        self._template, self._output, self._counts = template, output, counts
        self._admission, self._memory, self._clock = admission, memory, clock
        self._rules, self._on_result = rules, ended
        self._running: dict[int, RunningTask] = {}
        self._news = asyncio.Event()
        self._looked = False
        self._stops = 0
        self._folder = os.getcwd()

    async def offer(self, tasks: list[Task]) -> None:
        """Return when more tasks are wanted."""
        self._queue.extend(tasks)
        self._news.set()
        while len(self._queue) > AHEAD and not self._ending:
            self._room.clear()
            await self._room.wait()

    def no_more(self) -> None:
        self._complete = True
        self._news.set()

    @property
    def complete(self) -> bool:
        return self._complete

    @property
    def _ending(self) -> bool:
        return self._stops > 0 or self._counts.halted

    @property
    def running(self) -> int:
        return len(self._running)

    def processes(self) -> dict[int, int]:
        """Task → process number, of those that have one."""
        pairs = ((number, one.process) for number, one in self._running.items())
        return {number: process.pid for number, process in pairs if process is not None}

    def looked(self) -> None:
        """The meter has new figures."""
        self._looked = True
        self._news.set()

    def interrupt(self) -> None:
        """Ctrl-C: start no further task and send SIGTERM to the running ones; the second time they are killed."""
        self._stops += 1
        self._queue.clear()
        for one in self._running.values():
            self._end(one, kill=self._stops > 1)
        self._news.set()

    def _end(self, one: RunningTask, kill: bool) -> None:
        if one.process is None:
            return
        if kill:
            one.process.kill()
        else:
            one.process.signal(signal.SIGTERM, whole=True)
            one.process.signal(signal.SIGCONT, whole=True)  # a stopped process would not handle SIGTERM

    async def run(self, guard: Guard) -> None:
        loop = asyncio.get_running_loop()
        killing: asyncio.TimerHandle | None = None
        async with asyncio.TaskGroup() as group:
            while True:
                while self._may_start():
                    self._start(group, guard)
                if len(self._queue) <= AHEAD or self._ending:
                    self._room.set()
                if not self._running and (self._ending or (self._complete and not self._queue)):
                    break
                if self._stops and killing is None:
                    killing = loop.call_later(GRACE, self.interrupt)
                await self._news.wait()
                self._news.clear()
                if self._looked:
                    self._looked = False
                    self._relieve()
        if killing is not None:
            killing.cancel()

    def _may_start(self) -> bool:
        if not self._queue or self._ending:
            return False
        running = len(self._running)
        if any(one.paused or one.displaced for one in self._running.values()):
            return False
        if not self._admission.may_start(running):
            return False
        return not running or self._memory.fits(running, self._queue[0].least)

    def _start(self, group: asyncio.TaskGroup, guard: Guard) -> None:
        task = self._queue.popleft()
        one = RunningTask(task, self._clock.monotonic(), kernel_kills())
        self._running[task.number] = one
        self._counts.most_at_once = max(self._counts.most_at_once, len(self._running))
        group.create_task(self._one(one, guard))

    async def _one(self, one: RunningTask, guard: Guard) -> None:
        task, wall, message = one.task, self._clock.wall(), ""
        ended = ProcessEnded(START_FAILED, 0)
        out, err = self._output.files(task.number)
        environment = os.environ | dict.fromkeys(("CARICO_SEQ", "PARALLEL_SEQ"), str(task.number))
        argv = self._template.argv(task.text, task.number)
        try:
            command = LaunchCommand(argv, environment, self._folder, stdout=out, stderr=err, blame=BLAME)
            one.process = await guard.start(command)
            if self._stops:
                self._end(one, kill=self._stops > 1)
            self._limit(one, self._rules.timeout)
            ended = await one.process.wait()
        except StartFailed as error:
            message = str(error)
        finally:
            if one.timer is not None:
                one.timer.cancel()
            del self._running[task.number]
            self._news.set()
        seconds = self._clock.monotonic() - one.started
        if self._again(one, ended):
            return
        self._memory.ended(task.number, ended.peak)
        self._admission.ended(ended.cpu, seconds)
        shown = self._template.shown(task.text, task.number)
        if one.timed_out:
            message = f"ran longer than --timeout {durations.show(self._rules.timeout or 0.0)} and was ended"
            ended = ended._replace(code=TIMED_OUT, signal=ended.signal or signal.SIGTERM)
        self._finish(Result(task, shown, wall, seconds, ended.code, ended.signal, message))

    def _limit(self, one: RunningTask, seconds: float | None) -> None:
        if seconds is not None:
            one.timer = asyncio.get_running_loop().call_later(seconds, self._time_out, one)

    def _time_out(self, one: RunningTask) -> None:
        """First SIGTERM; after the grace period the task is killed."""
        self._end(one, kill=one.timed_out)
        if not one.timed_out:
            one.timed_out = True
            self._limit(one, GRACE)

    def _again(self, one: RunningTask, ended: ProcessEnded) -> bool:
        """Queue a task again that was displaced or has attempts left."""
        task = one.task
        if self._ending:
            return False
        if ended.lost or one.displaced or (ended.exit_code == KILLED and kernel_kills() > one.kills):
            self._memory.dropped(task.number)
            task.displaced += 1
            task.least = max(task.least, 1.2 * ended.peak)
            self._counts.displaced += 1
            again = task.displaced <= MOST_DISPLACED and (one.displaced or ended.lost or bool(self._running))
        else:
            task.failures += 1
            failed = ended.exit_code != 0 or one.timed_out
            again = failed and (not self._rules.tries or task.failures < self._rules.tries)
        if again:
            self._queue.appendleft(task)
        return again

    def _finish(self, result: Result) -> None:
        if result.good:
            self._counts.succeeded += 1
        else:
            self._counts.failed += 1
        self._on_result(result)
        halt = self._rules.halt
        if halt.failures and self._counts.failed >= halt.failures and not self._counts.halted:
            self._counts.halted = True
            self._queue.clear()
            if halt.now:
                for one in self._running.values():
                    self._end(one, kill=False)

    def _relieve(self) -> None:
        """Once per measurement of the memory: at most one task is paused, killed or resumed."""
        alive = [one for one in self._running.values() if one.process is not None and not one.displaced]
        alive.sort(key=lambda one: one.started)
        active = [one for one in alive if not one.paused]
        if self._memory.short and len(alive) > 1:
            victim = alive[-1]
            victim.displaced = True
            self._end(victim, kill=True)
        elif self._memory.tight and len(active) > 1:
            self._pause(active[-1])
        else:
            self._resume_oldest([one for one in alive if one.paused], len(active))

    def _pause(self, one: RunningTask) -> None:
        assert one.process is not None
        one.process.signal(signal.SIGSTOP, whole=True)
        one.paused = True
        self._counts.paused += 1
        if one.timer is not None and not one.timed_out:  # its timeout is suspended
            one.left = one.timer.when() - asyncio.get_running_loop().time()
            one.timer.cancel()

    def _resume_oldest(self, paused: list[RunningTask], active: int) -> None:
        if paused and (not active or self._memory.resumes(paused[0].task.number, active)):
            process = paused[0].process
            assert process is not None
            process.signal(signal.SIGCONT, whole=True)
            paused[0].paused = False
            if self._rules.timeout is not None and not paused[0].timed_out:
                self._limit(paused[0], paused[0].left)


def kernel_kills() -> int:
    """How often the kernel has killed a process for lack of memory, anywhere on this machine."""
    try:
        with open("/proc/vmstat", "rb") as file:
            text = file.read()
    except OSError:
        return 0
    at = text.find(b"\noom_kill ")
    return int(text[at + 10 :].split(b"\n", 1)[0]) if at >= 0 else 0
