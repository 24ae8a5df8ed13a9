"""`carico run`: flags, and all parts together."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import re
import signal
import sys
from pathlib import Path

from carico.clock import Clock, SystemClock
from carico.errors import UsageError
from carico.local.processes import Guard, sweep
from carico.local.run import inputs, joblog
from carico.local.run.admission import Admission, Bounds
from carico.local.run.joblog import JobLog
from carico.local.run.memory import Memory
from carico.local.run.output import Output
from carico.local.run.progress import Progress
from carico.local.run.runner import Halt, Runner
from carico.local.run.tasks import Result, Tally, Task
from carico.local.run.template import Template

HALT = re.compile(r"(now|soon),fail=([1-9][0-9]*)")
INTERRUPTED = 130
EPILOG = """replacement strings: {} the input, {.} without its ending, {/} its last part, {//} its folder, {/.} its last
part without its ending, {#} its number. Without any of them the input is appended. The exit code is the number of tasks
that failed, 101 for more than 100."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.usage = "carico run [flags] [--] COMMAND [WORD …] [::: INPUT …]"
    add = parser.add_argument
    add("-a", "--arg-file", type=Path, action="append", default=[], metavar="FILE", help="inputs, one per line")
    add("-0", "--null", action="store_true", help="inputs of files and of standard input end with a zero byte")
    add("-k", "--keep-order", action="store_true", help="outputs in the order of the inputs")
    add("--results", type=Path, metavar="DIR", help="keep outputs as DIR/NUMBER/stdout and stderr")
    add("--joblog", type=Path, metavar="FILE", help="one line per ended task, in GNU parallel's columns")
    add("--resume", action="store_true", help="leave out the tasks that are in the job log")
    add("--resume-failed", action="store_true", help="leave out the tasks that succeeded according to the job log")
    add("--retries", type=_number, default=0, metavar="N", help="run a failed task up to N times more (default: 0)")
    add("--halt", default="never", metavar="WHEN", help="now,fail=N or soon,fail=N: stop at the Nth failure")
    add("--max", type=_positive, metavar="N", help="never more than N at once (default: what the machine can take)")
    add("--min", type=_positive, default=1, metavar="N", help="always N at once, however full the machine is")
    add("--dry-run", action="store_true", help="print the commands and run nothing")
    add("--progress", action="store_true", help="a bar on the terminal")
    add("--json", action="store_true", help="a summary as the last line")
    add("words", nargs=argparse.REMAINDER, metavar="COMMAND", help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    words, given = inputs.split(args.words)
    template = Template(words)
    halt = _halt(args.halt)
    if args.max is not None and args.max < args.min:
        raise UsageError(f"--max {args.max} is less than --min {args.min}; give a larger --max")
    if (args.resume or args.resume_failed) and args.joblog is None:
        raise UsageError("--resume needs the log of the run before; name it with --joblog")
    texts = inputs.gather(given, args.arg_file, args.null)
    tasks = [Task(number, text) for number, text in enumerate(texts, 1)]
    if args.dry_run:
        for task in tasks:
            print(template.shown(task.text, task.number))
        return 0
    skipped = _skipped(args, template, texts)
    return asyncio.run(Run(args, template, tasks, skipped, halt, SystemClock()).run())


def _skipped(args: argparse.Namespace, template: Template, texts: list[str]) -> set[int]:
    if not (args.resume or args.resume_failed):
        return set()

    def command(number: int) -> str | None:
        return template.shown(texts[number - 1], number) if 1 <= number <= len(texts) else None

    return joblog.done(args.joblog, command, failed_too=not args.resume_failed)


class Run:
    """One call of the command."""

    def __init__(
        self,
        args: argparse.Namespace,
        template: Template,
        tasks: list[Task],
        skipped: set[int],
        halt: Halt,
        clock: Clock,
    ) -> None:
        self._clock, self._json = clock, args.json
        self._tally = Tally(len(tasks), skipped=len(skipped & {task.number for task in tasks}))
        self._output = Output(args.results, args.keep_order)
        self._log = JobLog(args.joblog, fresh=not (args.resume or args.resume_failed))
        self._progress = Progress(args.progress)
        for number in skipped:
            self._output.skip(number)
        self._admission = Admission(1.0, Bounds(args.min, args.max or Bounds().most))
        self._memory = Memory(float("inf"))
        self._runner = Runner(
            [task for task in tasks if task.number not in skipped],
            template,
            self._output,
            self._tally,
            self._admission,
            self._memory,
            clock,
            retries=args.retries,
            halt=halt,
            ended=self._ended,
        )
        self._began = clock.monotonic()
        self._interrupted = False

    async def run(self) -> int:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._interrupt)
        await asyncio.to_thread(sweep)
        try:
            async with Guard() as guard:
                measuring = asyncio.create_task(self._measure())
                try:
                    await self._runner.run(guard)
                finally:
                    measuring.cancel()
                    await asyncio.gather(measuring, return_exceptions=True)
        finally:
            self._progress.clear()
            self._output.close()
            self._log.close()
        self._summarise()
        return INTERRUPTED if self._interrupted else self._tally.exit_code

    async def _measure(self) -> None:
        """The first task runs before the mathematics is loaded: that takes longer than many a task."""
        meter = await asyncio.to_thread(importlib.import_module, "carico.local.run.meter")
        size = meter.sampler().size()
        self._admission.cores, self._memory.limit = size.cores, size.memory_bytes
        await meter.Meter(self._clock, self._admission, self._memory, self._runner.processes).run(self._looked)

    def _looked(self) -> None:
        self._runner.looked()
        self._progress.draw(self._tally, self._runner.running, self._seconds())

    def _seconds(self) -> float:
        return self._clock.monotonic() - self._began

    def _interrupt(self) -> None:
        self._interrupted = True
        self._runner.interrupt()

    def _ended(self, result: Result) -> None:
        self._progress.clear()
        if result.message:
            print(f"carico: task {result.number}: {result.message}", file=sys.stderr)
        self._output.note(result.number, result.command)
        self._output.ended(result.number)
        self._log.write(result)

    def _summarise(self) -> None:
        tally = self._tally
        if self._interrupted or tally.halted:
            left = tally.tasks - tally.skipped - tally.succeeded - tally.failed
            why = "interrupted" if self._interrupted else "halted"
            print(f"carico: {why}; {left} tasks were not run, none is left running", file=sys.stderr)
        if self._json:
            print(json.dumps({"name": "run", "seconds": round(self._seconds(), 3)} | vars(tally)))


def _halt(text: str) -> Halt:
    if text == "never":
        return Halt()
    match = HALT.fullmatch(text)
    if match is None:
        raise UsageError(f"--halt {text!r} is none of never, now,fail=N and soon,fail=N")
    return Halt(int(match[2]), match[1] == "now")


def _number(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def _positive(text: str) -> int:
    if _number(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is less than 1")
    return int(text)
