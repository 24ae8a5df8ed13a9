"""`carico run`: flags, and all parts together."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from carico import flags
from carico.clock import Clock, SystemClock
from carico.embedded.supervisor.guard import Guard, end_abandoned
from carico.errors import UsageError
from carico.process import call_on_stop_signals
from carico.run import inputs
from carico.run.admission import RunAdmission, RunBounds
from carico.run.inputs import Batch, InputReader
from carico.run.joblog import FinishedTasks, JobLog
from carico.run.memory import MemoryGuard
from carico.run.output import Output
from carico.run.progress import RunProgress
from carico.run.runner import Halt, Runner, RunRules
from carico.run.tasks import Result, Task, TaskCounts
from carico.run.template import CommandTemplate

HALT = re.compile(r"(now|soon),fail=([1-9][0-9]*)")
INTERRUPTED = 130
EPILOG = """COMMAND is executed as it is, not given to a shell: `carico run echo {} '>' x` prints a `>`. A command that
is one word with blanks or shell metacharacters, `'a {} | b'`, goes to sh, with the inputs quoted for it. Replacement
strings: {} the input, {.} without its extension, {/} its basename, {//} its directory, {/.} its basename without
extension, {#} its number. Without any of them the input is appended. The exit code is the number of tasks that failed,
101 for more than 100, 130 after Ctrl-C, 255 for an error of carico run itself."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.usage = f"{parser.prog} [OPTION …] [--] COMMAND [ARG …] [::: INPUT …]"
    add = parser.add_argument
    jobs = "never more than N at once (default: what the machine can take)"
    add("-a", "--arg-file", type=Path, action="append", default=[], metavar="FILE", help="read inputs from FILE")
    add("-0", "--null", action="store_true", help="inputs of files and of standard input end with a zero byte")
    add("-j", "--jobs", "--max", dest="max", type=_number, metavar="N", help=jobs)
    add("--min", type=_positive, default=1, metavar="N", help="always N at once, however full the machine is")
    add("-k", "--keep-order", action="store_true", help="print outputs in the order of the inputs")
    add("--tag", action="store_true", help="begin every line of output with its input and a tab")
    add("--timeout", type=flags.duration, metavar="DURATION", help="end a task that runs longer, e.g. 30s or 5m")
    add("--retries", type=_number, default=1, metavar="N", help="try a task up to N times (default: 1; 0: no limit)")
    add("--halt", default="never", metavar="WHEN", help="now,fail=N or soon,fail=N: stop at the Nth failure")
    add("--results", type=Path, metavar="DIR", help="keep outputs as DIR/NUMBER/stdout and stderr")
    add("--joblog", type=Path, metavar="FILE", help="write one line per ended task, in GNU parallel's columns")
    add("--resume", action="store_true", help="leave out the tasks that are in the job log")
    add("--resume-failed", action="store_true", help="leave out the tasks that succeeded according to the job log")
    add("--dry-run", action="store_true", help="print the commands and run nothing")
    add("--progress", "--bar", "--eta", action="store_true", help="show a bar on the terminal")
    add("--json", action="store_true", help="print a summary as the last line")
    add("words", nargs=argparse.REMAINDER, metavar="COMMAND", help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    words, given = inputs.split(args.words)
    template = CommandTemplate(words)
    rules = RunRules(args.retries, args.timeout, _halt(args.halt))
    if args.max and args.max < args.min:
        raise UsageError(f"--max {args.max} is less than --min {args.min}; give a larger --max")
    if (args.resume or args.resume_failed) and args.joblog is None:
        raise UsageError("--resume needs the log of the run before; name it with --joblog")
    source = inputs.batches(given, args.arg_file, args.null)
    if args.dry_run:
        return _print(source, template)
    resuming = args.joblog if args.resume or args.resume_failed else None
    done = FinishedTasks(resuming, failed_too=not args.resume_failed)
    return asyncio.run(RunCommand(args, template, source, done, rules, SystemClock()).run())


def _print(source: Iterable[Batch], template: CommandTemplate) -> int:
    number = 0
    for texts in source:
        for text in texts:
            number += 1
            print(template.shown(text, number), flush=True)
    return 0


class RunCommand:
    """One invocation of the command."""

    def __init__(
        self,
        args: argparse.Namespace,
        template: CommandTemplate,
        source: Iterable[Batch],
        done: FinishedTasks,
        rules: RunRules,
        clock: Clock,
    ) -> None:
        self._clock, self._json, self._template = clock, args.json, template
        self._source, self._done = source, done
        self._counts = TaskCounts()
        self._output = Output(args.results, args.keep_order, args.tag)
        self._log = JobLog(args.joblog, fresh=not (args.resume or args.resume_failed))
        self._progress = RunProgress(args.progress)
        self._admission = RunAdmission(1.0, RunBounds(args.min, args.max or RunBounds().most))
        self._memory = MemoryGuard(float("inf"))
        self._runner = Runner(
            template,
            self._output,
            self._counts,
            self._admission,
            self._memory,
            clock,
            rules=rules,
            ended=self._on_task_end,
        )
        self._began = clock.monotonic()
        self._interrupted = False

    async def run(self) -> int:
        call_on_stop_signals(self._interrupt)
        await asyncio.to_thread(end_abandoned)
        try:
            async with Guard() as guard:
                background = [asyncio.create_task(self._measure()), asyncio.create_task(self._feed())]
                try:
                    await self._runner.run(guard)
                finally:
                    for task in background:
                        task.cancel()
                    _, fed = await asyncio.gather(*background, return_exceptions=True)
        finally:
            self._progress.clear()
            self._output.close()
            self._log.close()
        if isinstance(fed, Exception):
            raise fed
        self._summarise()
        return INTERRUPTED if self._interrupted else self._counts.exit_code

    async def _measure(self) -> None:
        """The first task runs before numpy and the estimator are loaded: that takes longer than many tasks."""
        meter = await asyncio.to_thread(importlib.import_module, "carico.run.meter")
        size = meter.sampler().size()
        self._admission.cores, self._memory.limit = size.cores, size.memory_bytes
        await meter.Meter(self._clock, self._admission, self._memory, self._runner.processes).run(self._on_look)

    async def _feed(self) -> None:
        """Offer tasks to the runner as inputs arrive.

        Tasks that an earlier run logged are all compared with its log before the first task starts.
        """
        held: list[Task] = []
        try:
            async for texts in InputReader(self._source):
                held += [task for text in texts if (task := self._task(text)) is not None]
                if self._counts.tasks >= self._done.last:
                    await self._runner.offer(held)
                    held = []
            await self._runner.offer(held)
            self._runner.no_more()
        except Exception:
            self._runner.interrupt()
            raise

    def _task(self, text: str) -> Task | None:
        """The next task, or None if an earlier run did it."""
        number = self._counts.tasks = self._counts.tasks + 1
        if not self._done.has(number, self._template.shown(text, number)):
            return Task(number, text)
        self._counts.skipped += 1
        self._output.skip(number)
        return None

    def _on_look(self) -> None:
        self._runner.looked()
        self._progress.draw(self._counts, self._runner.running, self._seconds(), complete=self._runner.complete)

    def _seconds(self) -> float:
        return self._clock.monotonic() - self._began

    def _interrupt(self) -> None:
        self._interrupted = True
        self._runner.interrupt()

    def _on_task_end(self, result: Result) -> None:
        self._progress.clear()
        if result.message:
            print(f"carico: task {result.task.number}: {result.message}", file=sys.stderr)
        self._output.note(result.task.number, result.command)
        self._output.ended(result.task)
        self._log.write(result)

    def _summarise(self) -> None:
        counts = self._counts
        if self._interrupted or counts.halted:
            left = counts.tasks - counts.skipped - counts.succeeded - counts.failed
            why = "interrupted" if self._interrupted else "halted"
            print(f"carico: {why}; {left} tasks were not run, none is left running", file=sys.stderr)
        if self._json:
            print(json.dumps({"name": "run", "seconds": round(self._seconds(), 3)} | vars(counts)))


def _halt(text: str) -> Halt:
    if text == "never":
        return Halt()
    match = HALT.fullmatch(text)
    if match is None:
        raise UsageError(f"--halt {text!r} is not one of never, now,fail=N and soon,fail=N")
    return Halt(int(match[2]), match[1] == "now")


def _number(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def _positive(text: str) -> int:
    if _number(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is less than 1")
    return int(text)
