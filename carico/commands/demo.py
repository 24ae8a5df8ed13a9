"""`carico demo`: runs the same pods by requests and by capacity on the local machine, and compares them."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from carico.embedded.cluster import LocalCluster, free_port
from carico.embedded.demo import figures, picture
from carico.embedded.demo.job import NAMESPACE, VARIANTS, DemoJob, DemoRun, PlacementVariant
from carico.embedded.demo.latency import keep_requesting, until_it_answers
from carico.embedded.demo.progress import DemoProgress
from carico.embedded.demo.workload import KINDS, Workload, make_workload, program
from carico.embedded.folder import own_folder
from carico.embedded.supervisor.guard import Guard, end_abandoned
from carico.errors import CaricoError, UsageError
from carico.kube import credentials, pods
from carico.kube.client import Client
from carico.process import call_on_stop_signals
from carico.settings import ViewSettings
from carico.telemetry.sampler import Sampler
from carico.telemetry.stat import CpuTimes, parse_times, utilisation

CAUSE_WITHIN = 2.0  # s
REST = 3.0  # s between two runs, in which the machine becomes idle
LOOK = 1.0  # s over which utilisation is measured before anything starts
BUSY = 0.25  # of all processors: more than an idle desktop uses
T = TypeVar("T")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workload", choices=KINDS, default="cpu", help="what the pods use up (default: cpu)")
    parser.add_argument("--pods", type=int, metavar="N", help="pods per run (default: 12 per core)")
    parser.add_argument("--png", type=Path, default=Path("carico-demo.png"), metavar="FILE", help="picture to draw")
    parser.add_argument("--keep", action="store_true", help="leave the cluster running afterwards, until Ctrl-C")
    simulate = "with --keep: add N nodes that do not exist after the runs, to see the page with many"
    parser.add_argument("--simulate", type=int, default=0, metavar="N", help=simulate)
    parser.add_argument("--json", action="store_true", help="print one object per run, then the ratios")


def run(args: argparse.Namespace) -> int:
    if args.pods is not None and args.pods < 1:
        raise UsageError(f"--pods {args.pods}: at least one pod is needed")
    if args.simulate < 0 or (args.simulate and not args.keep):
        raise UsageError(f"--simulate {args.simulate}: a number of nodes that stay with --keep; add --keep")
    picture.check(args.png)
    logging.getLogger("carico").setLevel(logging.WARNING)  # progress bars show the rest
    end_abandoned()
    return asyncio.run(_until_stopped(Demo(args).play()))


async def _until_stopped(play: Coroutine[Any, Any, int]) -> int:
    """Ctrl-C and SIGTERM end the demo as its normal end does: everything that it started is ended."""
    task = asyncio.ensure_future(play)
    call_on_stop_signals(task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        return 130


class Demo:
    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self._progress = DemoProgress()
        self._sampler = Sampler(ViewSettings())

    async def play(self) -> int:
        with own_folder() as folder:
            async with Guard() as guard:
                await self._on(LocalCluster(guard, folder))
        return 0

    async def _on(self, cluster: LocalCluster) -> None:
        self._progress.say("carico demo: the same pods three times on this machine, then a table and a picture\n")
        await self._warn_if_busy()
        workload = await asyncio.to_thread(self._workload)
        await cluster.start()
        self._progress.say(f"  {workload.about}; live at {cluster.page}\n")
        client = Client(credentials.from_kubeconfig(cluster.kubeconfig), agent="carico-demo")
        try:
            runs = await _unless(cluster, self._runs(client, cluster.node, workload))
            self._report(runs)
            if self._args.keep:
                await _unless(cluster, self._keep(cluster))
        finally:
            await client.close()

    async def _warn_if_busy(self) -> None:
        """Packed pods take processors from other work; Carico waits for free ones, and its job then takes longer."""
        before = _processor_times()
        await asyncio.sleep(LOOK)
        used = utilisation(before, _processor_times()) or 0.0
        if used > BUSY:
            self._progress.say(
                f"  Other work uses {used:.0%} of this machine already. Carico makes room for it, packed pods do\n"
                "  not: the job takes longer by Carico; compare on a machine that does little else.\n"
            )

    def _workload(self) -> Workload:
        size = self._sampler.size()
        self._sampler.read(time.monotonic())
        free = (1 - self._sampler.raw["mem"]) * size.memory_bytes
        return make_workload(self._args.workload, self._args.pods, size, free)

    async def _runs(self, client: Client, node: str, workload: Workload) -> list[DemoRun]:
        """Carico runs first, before its agent has seen any pod: the time that it needs to learn is included."""
        runs: dict[str, DemoRun] = {}
        async with _server_beside(client, node) as port:
            for way in reversed(VARIANTS):
                runs[way.label] = await self._run(client, way, workload, port)
                await asyncio.sleep(REST)
        return [runs[way.label] for way in VARIANTS]

    async def _run(self, client: Client, way: PlacementVariant, workload: Workload, port: int) -> DemoRun:
        job = DemoJob(client, way, workload.pods)
        tasks = [
            asyncio.create_task(self._progress.follow(job.run, len(workload.pods))),
            asyncio.create_task(keep_requesting(port, job.run.latencies)),
        ]
        before = _processor_times()
        try:
            finished = await job.work()
            finished.utilisation = utilisation(before, _processor_times()) or 0.0
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if not (self._args.keep and way is VARIANTS[-1]):
            await job.clear()
        return finished

    def _report(self, runs: list[DemoRun]) -> None:
        summaries = [figures.summary(run) for run in runs]
        picture.draw(runs, summaries, self._args.png)
        self._progress.say("")
        if self._args.json:
            for summary in summaries:
                print(json.dumps(figures.as_json(summary)))
            print(json.dumps({"name": "demo", "figures": figures.ratios(summaries)}), flush=True)
        else:
            print(figures.table(summaries))
            print(f"\n{figures.verdict(summaries)}\n\nThe picture is {self._args.png}.", flush=True)

    async def _keep(self, cluster: LocalCluster) -> None:
        if self._args.simulate:
            self._progress.say(f"\nAdding {self._args.simulate:,} nodes that do not exist …")
            await cluster.simulate(self._args.simulate)
        self._progress.say(
            f"\nThe cluster stays until Ctrl-C. Look at it:\n  {cluster.page}\n"
            f"  kubectl --kubeconfig {cluster.kubeconfig} get pods -o wide"
        )
        await asyncio.Event().wait()


async def _unless(cluster: LocalCluster, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`; raises if a process of the cluster ends before."""
    working, failing = asyncio.ensure_future(work), asyncio.ensure_future(cluster.failed())
    try:
        await asyncio.wait({working, failing}, return_when=asyncio.FIRST_COMPLETED)
        if not failing.done() and not working.cancelled() and working.exception() is not None:
            # Work fails when a process that it needs ends; that end is the cause, and may be reported a moment later.
            await asyncio.wait({failing}, timeout=CAUSE_WITHIN)
        if failing.done():
            raise CaricoError(failing.result())
        return await working
    finally:
        for task in (working, failing):
            task.cancel()
        await asyncio.gather(working, failing, return_exceptions=True)


@contextlib.asynccontextmanager
async def _server_beside(client: Client, node: str) -> AsyncIterator[int]:
    """A small web server that represents other work. It is placed on the node as a DaemonSet's pods are."""
    port = free_port()
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "web", "uid": "demo", "controller": True}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "labels": {"pod-template-generation": "1"}, "ownerReferences": [owner]},
        "spec": {
            "nodeName": node,
            "containers": [{"name": "web", "image": "local", "command": program("serve", str(port))}],
        },
    }
    await pods.create(client, NAMESPACE, pod)
    try:
        await until_it_answers(port)
    except TimeoutError:
        raise CaricoError("the web server of the demo does not answer") from None
    yield port


def _processor_times() -> CpuTimes:
    return parse_times(Path("/proc/stat").read_bytes())
