"""How many nodes one aggregator serves at the agents' own asking rule, and its saturation; TLS on.

The server is a real `carico aggregator` on one core; the nodes are streams of a load generator, its own process on the
other one, over CONNECTIONS TLS connections. When a node asks, and what it says, was recorded from real pipelines and
the real asking rule on synthetic nodes whose pods start and stop every few seconds: busier than most clusters.

Then the same with class costs, on a fresh server: each of 5,000 nodes runs 30 of 2,000 classes and tells three whose
figures moved with every question, each also keeps a stream of class costs, and three schedulers hear of all changes.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from bench.synthetic import CASES, record
from carico.aggregator.state import State
from carico.estimate.pipeline import Pipeline
from carico.settings import AggregatorSettings, EstimateSettings, TlsFiles
from carico.types import ClassCost, ClassKey, CostBelief, LocalModel, NodeSize, Vector
from carico.wire.asking import Asking
from carico.wire.certificates import Authority
from carico.wire.channel import Dialer
from carico.wire.codec import class_cost, classes, local

CONNECTIONS = 128
SIZES = (500, 1_000, 2_000, 5_000, 10_000)
CASES_PLAYED = (".08/.03", ".02/.005", "bursts", "overload")
JOIN_RATE = 400  # new nodes per second between two sizes
WARM_UP, MEASURE = 6.0, 12.0  # s, for each size
SATURATE = 8.0  # s
IN_FLIGHT = 256  # streams that ask again as soon as they are answered
P99_LIMIT = 100.0  # ms
METHOD = "/carico.wire.v1.Aggregation/Exchange"
CLASSES_METHOD = "/carico.wire.v1.Aggregation/Classes"
CLASS_NODES, CLASSES, CLASSES_PER_NODE, CLASSES_TOLD, SCHEDULERS = 5_000, 2_000, 30, 3, 3
SIZE = NodeSize(8, 2.0**35)

Trace = list[tuple[float, bytes]]  # seconds since the question before, and the message


def run() -> dict[str, float]:
    """Prints its table; the parent of server and generator."""
    for nodes in (SIZES[0], 5_000, SIZES[-1]):
        print(f"making the model of {nodes} nodes: {_making(nodes) * 1000:.1f} ms")
    with tempfile.TemporaryDirectory() as folder:
        authority = Authority(Path(folder))
        pair = authority.issue("carico:aggregator", "127.0.0.1")
        figures: dict[str, float] = {}
        for part in (_measured, _with_classes):
            server, port = _server(pair.cert, pair.key)
            try:
                figures |= part(server, port, str(authority.cert))
            finally:
                server.terminate()
                server.wait(10)
        return figures


def _making(nodes: int) -> float:
    """Seconds of processor time."""
    state = State(AggregatorSettings(hold=0.0), "bench", 1)
    stream, basis = state.open_stream(), np.array([[0.3, 0.04], [0.4, -0.03]])
    for i in range(nodes):
        cost = CostBelief((0.4 + 0.2 * i / nodes, 2.0**28), (0.001, 2.0**50))
        state.accept(LocalModel(f"n{i}", 1, 1, SIZE, ("cpu", "memory"), basis, (0.1, 0.2), cost, 3, 100), stream, 0.0)
    state.refresh(0.0)
    took = []
    for i in range(20):
        state.accept(LocalModel("n0", 1, 2 + i, SIZE, ("cpu", "memory"), basis, (0.1, 0.2), None, 3, 100), stream, 0.0)
        began = time.process_time()
        state.refresh(0.0)
        took.append(time.process_time() - began)
    return float(np.median(took))


def _measured(server: psutil.Popen, port: int, authority: str) -> dict[str, float]:
    generator = _Generator(port, authority)
    try:
        rate = generator.ask("rate")["per_second"]
        print(f"a node asks {rate:.2f} times a second; {CONNECTIONS} connections, TLS, {MEASURE:.0f} s for each row")
        print(
            f"{'nodes':>6} {'asked/s':>8} {'p50 ms':>7} {'p99 ms':>8} {'server core':>12} {'generator':>10} {'MB':>6}"
        )
        empty = server.memory_info().rss
        rows = [_row(server, generator, nodes, empty) for nodes in SIZES]
        saturation = _saturation(server, generator)
    finally:
        generator.end()
    served = [row for row in rows if row["p99"] <= P99_LIMIT]
    reached = served[-1] if served else rows[0]
    five = next(row for row in rows if row["nodes"] == 5_000)
    return {
        "nodes_at_own_rate": reached["nodes"],
        "exchanges_per_second": round(saturation, 0),
        "p99_ms": round(five["p99"], 1),
        "p99_ms_at_limit": round(reached["p99"], 1),
        "kb_per_node": round(rows[-1]["kb"], 1),
        **{f"p99_ms_{row['nodes']:.0f}": round(row["p99"], 1) for row in rows},
    }


def _with_classes(server: psutil.Popen, port: int, authority: str) -> dict[str, float]:
    generator = _Generator(port, authority)
    try:
        generator.ask("nodes", count=CLASS_NODES)
        before = server.memory_info().rss
        generator.ask("tell_classes")
        per_class = (server.memory_info().rss - before) / 1024 / CLASSES
        generator.ask("listen")
        cpu = server.cpu_times()
        answer = generator.ask("measure", seconds=MEASURE)
    finally:
        generator.end()
    core = _cpu(server, cpu) / answer["seconds"]
    print(
        f"{CLASS_NODES} nodes, {CLASSES} classes, a stream of class costs to each: {answer['rate']:.0f} questions/s, "
        f"p50 {answer['p50']:.1f} ms, p99 {answer['p99']:.1f} ms; a new class reaches a scheduler after "
        f"{answer['told']:.2f} s (worst of {answer['tries']:.0f}); {answer['pushed']:.0f} messages of class costs/s; "
        f"server core {core:.0%}, generator {answer['core']:.0%}; {per_class:.1f} kB for a class"
    )
    return {
        "p99_ms_classes": round(answer["p99"], 1),
        "kb_per_class": round(per_class, 1),
        "class_told_s": round(answer["told"], 2),
    }


def _row(server: psutil.Popen, generator: _Generator, nodes: int, empty: int) -> dict[str, float]:
    generator.ask("nodes", count=nodes)
    before = server.cpu_times()
    answer = generator.ask("measure", seconds=MEASURE)
    core = _cpu(server, before) / answer["seconds"]
    rss = server.memory_info().rss
    print(
        f"{nodes:>6} {answer['rate']:>8.0f} {answer['p50']:>7.1f} {answer['p99']:>8.1f} {core:>11.0%} "
        f"{answer['core']:>10.0%} {rss / 2**20:>6.0f}",
        flush=True,
    )
    return {"nodes": nodes, "p99": answer["p99"], "kb": (rss - empty) / 1024 / nodes}


def _saturation(server: psutil.Popen, generator: _Generator) -> float:
    generator.ask("saturate")
    before = server.cpu_times()
    answer = generator.ask("measure", seconds=SATURATE)
    core = _cpu(server, before) / answer["seconds"]
    print(
        f"saturation: {answer['rate']:.0f} exchanges/s with {IN_FLIGHT} always under way, p99 {answer['p99']:.0f} ms; "
        f"server core {core:.0%}, generator {answer['core']:.0%}"
    )
    return float(answer["rate"])


def _cpu(process: psutil.Popen, before: Any) -> float:
    now = process.cpu_times()
    return float(now.user + now.system - before.user - before.system)


def _server(cert: Path, key: Path) -> tuple[psutil.Popen, int]:
    flags = ["--listen", "127.0.0.1:0", "--grpc-listen", "127.0.0.1:0", "--tls-cert", str(cert), "--tls-key", str(key)]
    flags.append("--allow-anonymous-clients")  # each connection speaks for many nodes
    command = [sys.executable, "-m", "carico.cli", "aggregator", *flags]
    cores = _cores()
    os.sched_setaffinity(0, cores[:1])  # inherited by every thread of the child; gRPC starts several
    server = psutil.Popen(command, stderr=subprocess.PIPE, text=True)
    os.sched_setaffinity(0, cores)
    said = []
    for line in server.stderr:
        if "gRPC on port" in line:
            return server, int(line.split("gRPC on port ")[1].split(",")[0])
        said.append(line)
    raise RuntimeError(f"the aggregator did not start: {''.join(said)}")


def _cores() -> list[int]:
    return sorted(os.sched_getaffinity(0))


class _Generator:
    """The other process, spoken to in lines of JSON."""

    def __init__(self, port: int, authority: str) -> None:
        command = [sys.executable, "-m", "bench.aggregator_load", str(port), authority]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, what: str, **arguments: float) -> dict[str, float]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps({"what": what, **arguments}), file=self._process.stdin, flush=True)
        answer: dict[str, float] = json.loads(self._process.stdout.readline())
        return answer

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


# What runs in the generator's process


def _traces() -> list[Trace]:
    return [_trace(next(case for case in CASES if case.name == name)) for name in CASES_PLAYED]


def _trace(case: Any) -> Trace:
    """What a node on this case says, and when, by the real rule."""
    recording = record(case, seed=1)
    pipeline, asking = Pipeline(EstimateSettings(), recording.dimensions), Asking(10.0, 0.1)
    scale = SIZE.vector(recording.dimensions)
    trace, last = [], 0.0
    for sample, pods in zip(recording.samples, recording.pods, strict=True):
        if pipeline.update(sample, pods) is None:
            continue
        model = _model(pipeline, recording.dimensions, pods.running, scale)
        if asking.wait(model, sample.at, has_answer=True) <= 0:
            asking.asked(model, sample.at)
            trace.append((sample.at - last, local.encode(model)))
            last = sample.at
    return trace


def _model(pipeline: Pipeline, dimensions: tuple[str, ...], pods: int, scale: Vector) -> LocalModel:
    evidence = pipeline.evidence()
    assert evidence is not None
    own = evidence.cost
    cost = None if own is None else CostBelief(tuple(own.mean * scale), tuple(own.variance * scale**2))
    baseline = tuple(np.maximum(evidence.baseline * scale, 0.0))
    return LocalModel("node", 1, 0, SIZE, dimensions, evidence.basis, baseline, cost, pods, evidence.samples)


class _Load:
    """Nodes that ask as recorded, each on a stream of its own."""

    def __init__(self, port: int, authority: str) -> None:
        dialer = Dialer(f"127.0.0.1:{port}", TlsFiles(tls_ca=Path(authority)), "the benchmark")
        self._channels: list[Any] = [dialer.open(dialer.target) for _ in range(CONNECTIONS)]
        self._listening: list[Any] = [dialer.open(dialer.target) for _ in range(CONNECTIONS)]
        self._traces = _traces()
        self._tasks: list[asyncio.Task[None]] = []
        self._calls: list[Any] = []
        self._sequence = itertools.count(1)
        self._latency: list[float] = []
        self._tells_classes = False
        self._told_all: set[int] = set()  # nodes that have told all their classes
        self._heard: dict[str, float] = {}  # a new class, and when a scheduler heard of it
        self._pushed = 0

    def rate(self) -> dict[str, float]:
        questions = sum(len(trace) for trace in self._traces)
        return {"per_second": questions / sum(gap for trace in self._traces for gap, _ in trace)}

    async def nodes(self, count: int) -> dict[str, float]:
        """Adds nodes until there are `count`, and waits until they are at their pace."""
        for i in range(len(self._tasks), int(count)):
            self._tasks.append(asyncio.create_task(self._node(i)))
            if i % 10 == 9:
                await asyncio.sleep(10 / JOIN_RATE)
        await asyncio.sleep(WARM_UP)
        return {}

    async def _node(self, i: int) -> None:
        trace = self._traces[i % len(self._traces)]
        call = self._channels[i % CONNECTIONS].stream_stream(METHOD)()
        self._calls.append(call)
        dice = random.Random(i)
        start = dice.randrange(len(trace))
        await self._ask(call, i, trace[start][1])
        # The gap that was running when this node came in is partly over.
        await asyncio.sleep(dice.random() * trace[(start + 1) % len(trace)][0])
        for gap, message in itertools.islice(itertools.cycle(trace), start + 1, None):
            await self._ask(call, i, message)
            await asyncio.sleep(gap)

    async def _ask(self, call: Any, i: int, message: bytes) -> None:
        said = local.parse(message)
        said.node, said.sequence = f"node-{i}", next(self._sequence)
        if self._tells_classes:
            said.class_costs.extend(self._class_costs(i))
        began = time.perf_counter()
        await call.write(said.SerializeToString())
        await call.read()
        self._latency.append(time.perf_counter() - began)

    def _class_costs(self, i: int) -> list[Any]:
        """All of the node's classes at first, then some that moved."""
        mine = [(i * 7 + j * j) % CLASSES for j in range(CLASSES_PER_NODE)]
        told = random.sample(mine, CLASSES_TOLD) if i in self._told_all else mine
        self._told_all.add(i)
        return [_class_cost(f"class-{number}") for number in dict.fromkeys(told)]

    async def tell_classes(self) -> dict[str, float]:
        """From now on; returns when every node has told all of its classes."""
        self._tells_classes = True
        while len(self._told_all) < len(self._tasks):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        await asyncio.sleep(WARM_UP)
        return {}

    async def listen(self) -> dict[str, float]:
        """Every node opens its stream of class costs, and schedulers theirs."""
        for i in range(SCHEDULERS):
            self._tasks.append(asyncio.create_task(self._hear(i, classes.Query(0, 0, frozenset()))))
        for i in range(CLASS_NODES):
            names = [f"team-a/class-{(i * 7 + j * j) % CLASSES}" for j in range(CLASSES_PER_NODE)]
            query = classes.Query(0, 256, frozenset(classes.ClassName(name, "5d9c7b") for name in names))
            self._tasks.append(asyncio.create_task(self._hear(i, query)))
            if i % 10 == 9:
                await asyncio.sleep(10 / JOIN_RATE)
        await asyncio.sleep(WARM_UP)
        return {}

    async def _hear(self, i: int, query: classes.Query) -> None:
        call = self._listening[i % len(self._listening)].stream_stream(CLASSES_METHOD)()
        self._calls.append(call)
        await call.write(classes.encode_query(query))
        while True:
            message = await call.read()
            self._pushed += 1
            if not query.limit:
                now = time.perf_counter()
                for cost in classes.decode(message).costs:
                    self._heard.setdefault(cost.key.family, now)

    async def measure(self, seconds: float) -> dict[str, float]:
        self._latency.clear()
        pushed, told = self._pushed, []
        began, cpu = time.perf_counter(), time.process_time()
        while time.perf_counter() < began + seconds:
            await asyncio.sleep(1.0)
            if self._pushed:
                told.append(await self._new_class(f"new-{len(told)}"))
        took = time.perf_counter() - began
        p50, p99 = np.percentile(self._latency, [50, 99]) * 1000
        core = (time.process_time() - cpu) / took
        answer = {"seconds": took, "rate": len(self._latency) / took, "p50": p50, "p99": p99, "core": core}
        return answer | {"told": max(told, default=0.0), "tries": len(told), "pushed": (self._pushed - pushed) / took}

    async def _new_class(self, name: str) -> float:
        """Seconds from a node's first word of a class until a scheduler has heard of it."""
        call = self._channels[0].stream_stream(METHOD)()
        said = local.parse(self._traces[0][10][1])
        said.node, said.sequence = name, next(self._sequence)
        said.class_costs.append(_class_cost(name))
        began = time.perf_counter()
        await call.write(said.SerializeToString())
        await call.read()
        while f"team-a/{name}" not in self._heard:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        call.cancel()
        return self._heard[f"team-a/{name}"] - began

    async def saturate(self) -> dict[str, float]:
        """Instead of the nodes: streams that ask again as soon as they are answered."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = [asyncio.create_task(self._for_ever(i)) for i in range(IN_FLIGHT)]
        await asyncio.sleep(2.0)
        return {}

    async def _for_ever(self, i: int) -> None:
        call = self._channels[i % CONNECTIONS].stream_stream(METHOD)()
        message = self._traces[0][10][1]
        while True:
            await self._ask(call, 1_000_000 + i, message)


def _class_cost(name: str) -> Any:
    """Figures that moved: each node says something else each time."""
    cpu, memory = random.uniform(0.3, 0.5), random.uniform(2e8, 4e8)
    key = ClassKey("team-a", f"team-a/{name}", "5d9c7b")
    figures = ((cpu, memory), (0.01, 1e15), (1.5 * cpu, 1.5 * memory), (cpu, memory))
    return class_cost.message_of(ClassCost(key, 2, 10.0, *figures, 3.0))


async def _generate(port: int, authority: str) -> None:
    os.sched_setaffinity(0, [max(_cores())])
    load = _Load(port, authority)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        order = json.loads(line)
        what = order.pop("what")
        answer = load.rate() if what == "rate" else await getattr(load, what)(**order)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    asyncio.run(_generate(int(sys.argv[1]), sys.argv[2]))
