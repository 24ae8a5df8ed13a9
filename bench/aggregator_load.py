"""How many nodes one aggregator serves at the agents' own sending rule, and its saturation; TLS on.

The server is a real `carico aggregator` on one core; the nodes are streams of a load generator, a separate process on
another core, over CONNECTIONS TLS connections. The times and contents of a node's requests were recorded from real
pipelines and the real sending rule on synthetic nodes whose pods start and stop every few seconds: busier than most
clusters.

Then the same with class costs, each time on a new server: each of 5,000 nodes runs 30 of 2,000 classes and keeps a
stream of class costs open, and three schedulers receive all changes. What nodes report of their classes is

classes: more than any agent sends: three of them with every request, with random figures, ± 25 to 33 %;
agents: recorded from real class tables and the agents' own rule, on nodes that start a pod every 50 s.

CASE=nodes, classes or agents, or several separated by commas, runs only these parts. NODES=500 makes the latter two
smaller.

A request without a response counts with its age, and a stream that ends counts as lost: neither may improve a figure.
The nodes ignore `next_ask_seconds`, which real agents obey, so the load does not fall when the server is overloaded.
Beside a loaded machine compare the server's processor time per exchange and per message of class costs, not p99.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
from grpc import aio

from carico.aggregator.state import AggregatorState
from carico.estimate.pipeline import Pipeline
from carico.settings import AggregatorSettings, EstimateSettings, TlsFiles
from carico.types import ClassCost, ClassKey, CostBelief, LocalModel, NodeSize, Vector
from carico.wire.certificates import Authority
from carico.wire.channel import Dialer
from carico.wire.class_news import ClassNews
from carico.wire.client import END
from carico.wire.codec import class_cost, classes, local
from carico.wire.exchange_policy import ExchangePolicy
from harness.estimate.synthetic import CASES, record
from harness.estimate.synthetic_classes import ClassNode

CONNECTIONS = 128
SIZES = (500, 1_000, 2_000, 5_000, 10_000)
CASES_PLAYED = (".08/.03", ".02/.005", "bursts", "overload")
JOIN_RATE = 400  # new nodes per second between two sizes
WARM_UP, MEASURE = 6.0, 12.0  # s, for each size
CLASS_WARM_UP = 120  # s in which a node measures its classes before its trace begins
ARRIVAL_LIMIT = 60.0  # s
RECONNECT = 2.0  # s, at most: that of the real client
SATURATE = 8.0  # s
IN_FLIGHT = 256  # streams that send again as soon as they have the response
P99_LIMIT = 100.0  # ms
METHOD = "/carico.wire.v1.Aggregation/Exchange"
CLASSES_METHOD = "/carico.wire.v1.Aggregation/Classes"
CLASS_NODES = int(os.environ.get("NODES", "5000"))
CLASSES, CLASSES_PER_NODE, CLASSES_SENT, SCHEDULERS = 2_000, 30, 3, 3
SIZE = NodeSize(8, 2.0**35)


class Question(NamedTuple):
    gap: float  # s since the previous one
    message: bytes
    class_costs: tuple[ClassCost, ...] = ()  # the family of a class is its number on the node


class Trace(NamedTuple):
    """What one node sends, repeated."""

    questions: list[Question]
    classes: tuple[ClassCost, ...] = ()  # all that it knows when the trace begins


def run() -> dict[str, float]:
    """Prints the table; runs in the parent of server and generator."""
    parts = {"nodes": _measured, "classes": _with_classes, "agents": _with_agents}
    wanted = [name for name in os.environ.get("CASE", "").split(",") if name] or list(parts)
    if unknown := set(wanted) - set(parts):
        raise SystemExit(f"CASE: {', '.join(sorted(unknown))} is none of {', '.join(parts)}")
    if "nodes" in wanted:
        for nodes in (SIZES[0], 5_000, SIZES[-1]):
            print(f"making the model of {nodes} nodes: {_making(nodes) * 1000:.1f} ms")
    with tempfile.TemporaryDirectory() as folder:
        authority = Authority(Path(folder))
        pair = authority.issue("carico:aggregator", "127.0.0.1")
        figures: dict[str, float] = {}
        for name in wanted:
            log = Path(folder, f"{name}.log")
            server, port = _server(pair.cert, pair.key, log)
            try:
                figures |= parts[name](server, port, str(authority.cert))
            finally:
                server.terminate()
                server.wait(60)
                print("".join(f"server: {line}\n" for line in log.read_text().splitlines()[1:20]), end="", flush=True)
        return figures


def _making(nodes: int) -> float:
    """Seconds of processor time."""
    state = AggregatorState(AggregatorSettings(warmup=0.0), "bench", 1)
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
    generator = _Generator(port, authority, "nodes")
    try:
        rate = generator.call("rate")["per_second"]
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
    answer = _class_load(server, port, authority, "classes drawn at random", "classes")
    return {
        "p99_ms_classes": round(answer["p99"], 1),
        "kb_per_class": round(answer["kb"], 1),
        "class_told_s": round(answer["arrival"], 2),
        "server_us_per_exchange_classes": round(answer["us"], 0),
        "streams_lost_classes": answer["lost"],
    }


def _with_agents(server: psutil.Popen, port: int, authority: str) -> dict[str, float]:
    answer = _class_load(server, port, authority, "classes by the agents' rule", "agents")
    return {
        "p99_ms_agents": round(answer["p99"], 1),
        "class_told_s_agents": round(answer["arrival"], 2),
        "server_us_per_exchange_agents": round(answer["us"], 0),
        "streams_lost_agents": answer["lost"],
    }


def _class_load(server: psutil.Popen, port: int, authority: str, what: str, case: str) -> dict[str, float]:
    generator = _Generator(port, authority, case)
    try:
        generator.call("nodes", count=CLASS_NODES)
        before = server.memory_info().rss
        generator.call("send_classes")
        per_class = (server.memory_info().rss - before) / 1024 / CLASSES
        generator.call("listen")
        print(f"measuring for {MEASURE:.0f} s", flush=True)
        cpu = server.cpu_times()
        answer = generator.call("measure", seconds=MEASURE)
    finally:
        generator.end()
    used = _cpu(server, cpu)
    core = used / answer["seconds"]
    answer["us"] = used * 1e6 / max(answer["rate"] * answer["seconds"], 1.0)
    print(
        f"{what}: {CLASS_NODES} nodes, {CLASSES} classes, a stream of class costs to each: "
        f"{answer['rate']:.0f} questions/s with {answer['class_rate']:.0f} class costs/s, "
        f"p50 {answer['p50']:.1f} ms, p99 {answer['p99']:.1f} ms; a new class reaches a scheduler after "
        f"{answer['arrival']:.2f} s (worst of {answer['tries']:.0f}); {answer['pushed']:.0f} messages of costs/s; "
        f"server core {core:.0%}, generator {answer['core']:.0%}; {per_class:.1f} kB for a class; "
        f"{answer['us']:.0f} us of the server per exchange; {answer['lost']:.0f} streams lost, "
        f"{answer['pending']:.0f} requests without a response; load average {os.getloadavg()[0]:.1f}",
        flush=True,
    )
    return answer | {"kb": per_class}


def _row(server: psutil.Popen, generator: _Generator, nodes: int, empty: int) -> dict[str, float]:
    generator.call("nodes", count=nodes)
    before = server.cpu_times()
    answer = generator.call("measure", seconds=MEASURE)
    core = _cpu(server, before) / answer["seconds"]
    rss = server.memory_info().rss
    print(
        f"{nodes:>6} {answer['rate']:>8.0f} {answer['p50']:>7.1f} {answer['p99']:>8.1f} {core:>11.0%} "
        f"{answer['core']:>10.0%} {rss / 2**20:>6.0f}",
        flush=True,
    )
    return {"nodes": nodes, "p99": answer["p99"], "kb": (rss - empty) / 1024 / nodes}


def _saturation(server: psutil.Popen, generator: _Generator) -> float:
    generator.call("saturate")
    before = server.cpu_times()
    answer = generator.call("measure", seconds=SATURATE)
    core = _cpu(server, before) / answer["seconds"]
    print(
        f"saturation: {answer['rate']:.0f} exchanges/s with {IN_FLIGHT} always in flight, p99 {answer['p99']:.0f} ms; "
        f"server core {core:.0%}, generator {answer['core']:.0%}"
    )
    return float(answer["rate"])


def _cpu(process: psutil.Popen, before: Any) -> float:
    now = process.cpu_times()
    return float(now.user + now.system - before.user - before.system)


def _server(cert: Path, key: Path, log: Path) -> tuple[psutil.Popen, int]:
    flags = ["--listen", "127.0.0.1:0", "--grpc-listen", "127.0.0.1:0", "--tls-cert", str(cert), "--tls-key", str(key)]
    flags.append("--allow-anonymous-clients")  # each connection carries many nodes
    command = [sys.executable, "-m", "carico.cli", "aggregator", *flags]
    cores = _cores()
    os.sched_setaffinity(0, cores[:1])  # inherited by every thread of the child; gRPC starts several
    with log.open("w") as file:  # not a pipe: the server would stop at a full one
        server = psutil.Popen(command, stderr=file, text=True)
    os.sched_setaffinity(0, cores)
    while server.poll() is None:
        if (found := re.search(r"gRPC on port (\d+)", log.read_text())) is not None:
            return server, int(found[1])
        time.sleep(0.1)
    raise RuntimeError(f"the aggregator did not start: {log.read_text()}")


def _cores() -> list[int]:
    return sorted(os.sched_getaffinity(0))


class _Generator:
    """The generator's process, controlled by lines of JSON."""

    def __init__(self, port: int, authority: str, case: str) -> None:
        command = [sys.executable, "-m", "bench.aggregator_load", str(port), authority, case]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def call(self, what: str, **arguments: float) -> dict[str, float]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps({"what": what, **arguments}), file=self._process.stdin, flush=True)
        answer: dict[str, float] = json.loads(self._process.stdout.readline())
        return answer

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


# What runs in the generator's process


def _traces(*, with_classes: bool) -> list[Trace]:
    cases = [next(case for case in CASES if case.name == name) for name in CASES_PLAYED]
    return [_trace(case, ClassNode(i) if with_classes else None) for i, case in enumerate(cases)]


def _trace(case: Any, class_node: ClassNode | None) -> Trace:
    """What a node on this case sends, and when, by the real rule."""
    recording = record(case, seed=1)
    pipeline, asking = Pipeline(EstimateSettings(), recording.dimensions), ExchangePolicy(10.0, 0.1)
    scale = SIZE.vector(recording.dimensions)
    questions, last = [], 0.0
    news, limits = ClassNews(), class_cost.limits_of(SIZE, recording.dimensions)
    first: tuple[ClassCost, ...] = ()
    if class_node is not None:
        for second in range(-CLASS_WARM_UP, 0):
            first = class_node.costs(float(second))
            news.take(first, limits, float(second))
    for sample, pods in zip(recording.samples, recording.pods, strict=True):
        if pipeline.update(sample, pods) is None:
            continue
        model = _model(pipeline, recording.dimensions, pods.running, scale)
        costs = class_node.costs(sample.at) if class_node is not None else ()
        has_news = news.has_any(costs, ("cpu", "memory"), sample.at)
        if asking.wait(model, sample.at, has_answer=True, has_news=has_news) <= 0:
            asking.sent(model, sample.at)
            sent = news.take(costs, limits, sample.at)
            questions.append(Question(sample.at - last, local.encode(model), sent))
            last = sample.at
    return Trace(questions, first)


def _model(pipeline: Pipeline, dimensions: tuple[str, ...], pods: int, scale: Vector) -> LocalModel:
    evidence = pipeline.evidence()
    assert evidence is not None
    own = evidence.cost
    cost = None if own is None else CostBelief(tuple(own.mean * scale), tuple(own.variance * scale**2))
    baseline = tuple(np.maximum(evidence.baseline * scale, 0.0))
    return LocalModel("node", 1, 0, SIZE, dimensions, evidence.basis, baseline, cost, pods, evidence.samples)


class _Load:
    """Nodes that send requests as recorded, each on a separate stream."""

    def __init__(self, port: int, authority: str, case: str) -> None:
        dialer = Dialer(f"127.0.0.1:{port}", TlsFiles(tls_ca=Path(authority)), "the benchmark")
        self._channels: list[Any] = [dialer.open(dialer.target) for _ in range(CONNECTIONS)]
        self._listening: list[Any] = [dialer.open(dialer.target) for _ in range(CONNECTIONS)]
        self._by_rule = case == "agents"
        self._traces = _traces(with_classes=self._by_rule)
        self._tasks: list[asyncio.Task[None]] = []
        self._calls: dict[int, Any] = {}  # the open stream of each node
        self._lost: Counter[str] = Counter()  # streams that the server or the connection ended, by reason
        self._sequence = itertools.count(1)
        self._latency: list[float] = []
        self._tells_classes = False
        self._sends_all: set[int] = set()  # nodes that have sent all their classes
        self._received_at: dict[str, float] = {}  # a new class, and when a scheduler received it
        self._pushed = 0
        self._sent = 0
        self._asked_at: dict[int, float] = {}  # nodes that wait for a response

    def rate(self) -> dict[str, float]:
        questions = [question for trace in self._traces for question in trace.questions]
        return {"per_second": len(questions) / sum(question.gap for question in questions)}

    async def nodes(self, count: int) -> dict[str, float]:
        """Add nodes until there are `count`, and wait until they send requests at their normal rate."""
        for i in range(len(self._tasks), int(count)):
            self._tasks.append(asyncio.create_task(self._node(i)))
            if i % 10 == 9:
                await asyncio.sleep(10 / JOIN_RATE)
        await asyncio.sleep(WARM_UP)
        return {}

    async def _node(self, i: int) -> None:
        trace = self._traces[i % len(self._traces)]
        dice = random.Random(i)
        questions = trace.questions
        start = dice.randrange(len(questions))
        await self._send_request(i, questions[start])
        # Part of the gap that was in progress when this node joined is over.
        await asyncio.sleep(dice.random() * questions[(start + 1) % len(questions)].gap)
        for question in itertools.islice(itertools.cycle(questions), start + 1, None):
            await self._send_request(i, question)
            await asyncio.sleep(question.gap)

    async def _send_request(self, i: int, question: Question) -> None:
        """A node whose stream is lost opens another one, as the real client does; the time counts from the first."""
        began = self._asked_at[i] = time.perf_counter()
        while not await self._exchanged(i, question):  # noqa: ASYNC110
            await asyncio.sleep(random.uniform(0.5, 1.0) * RECONNECT)
        self._latency.append(time.perf_counter() - began)
        del self._asked_at[i]

    async def _exchanged(self, i: int, question: Question) -> bool:
        is_new = i not in self._calls
        if is_new:
            self._calls[i] = self._channels[i % CONNECTIONS].stream_stream(METHOD)()
        message = local.parse(question.message)
        message.node, message.sequence = f"node-{i}", next(self._sequence)
        if self._tells_classes:
            message.class_costs.extend(self._recorded(i, question) if self._by_rule else self._drawn(i))
            self._sent += len(message.class_costs)
            self._sends_all.add(i)
        try:
            await self._calls[i].write(message.SerializeToString())
            if await self._calls[i].read() is not END:
                return True
            self._lose("ended", is_new=is_new)
        except (aio.AioRpcError, asyncio.InvalidStateError) as error:
            self._lose(_why(error), is_new=is_new)
        del self._calls[i]
        self._sends_all.discard(i)
        return False

    def _lose(self, why: str, *, is_new: bool) -> None:
        self._lost[f"{why}, {'before' if is_new else 'after'} the first response"] += 1

    def _drawn(self, i: int) -> list[Any]:
        """All of the node's classes at first, then some with changed figures."""
        mine = _classes_of(i)
        sent = random.sample(mine, CLASSES_SENT) if i in self._sends_all else mine
        return [_class_cost(name) for name in sent]

    def _recorded(self, i: int, question: Question) -> list[Any]:
        """The same by the agents' rule."""
        costs = question.class_costs if i in self._sends_all else self._traces[i % len(self._traces)].classes
        mine = _classes_of(i)
        keys = [_key(mine[int(cost.key.family)]) for cost in costs]
        return class_cost.messages_of(dataclasses.replace(cost, key=key) for cost, key in zip(costs, keys, strict=True))

    async def send_classes(self) -> dict[str, float]:
        """Send class costs from now on; returns when every node has sent all of its classes."""
        self._tells_classes = True
        while any(i not in self._sends_all and not task.done() for i, task in enumerate(self._tasks)):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        await asyncio.sleep(WARM_UP)
        return {}

    async def listen(self) -> dict[str, float]:
        """Every node and every scheduler opens a stream of class costs."""
        for i in range(SCHEDULERS):
            self._tasks.append(asyncio.create_task(self._read_costs(i, classes.Query(0, 0, frozenset()))))
        for i in range(CLASS_NODES):
            query = classes.Query(0, 256, frozenset(classes.name_of(_key(name)) for name in _classes_of(i)))
            self._tasks.append(asyncio.create_task(self._read_costs(i, query)))
            if i % 10 == 9:
                await asyncio.sleep(10 / JOIN_RATE)
        await asyncio.sleep(WARM_UP)
        return {}

    async def _read_costs(self, i: int, query: classes.Query) -> None:
        while True:
            await self._read_until_lost(self._listening[i % len(self._listening)], query)
            await asyncio.sleep(random.uniform(0.5, 1.0) * RECONNECT)

    async def _read_until_lost(self, channel: Any, query: classes.Query) -> None:
        call, is_new = channel.stream_stream(CLASSES_METHOD)(), True
        try:
            await call.write(classes.encode_query(query))
            while (message := await call.read()) is not END:
                is_new = False
                self._pushed += 1
                if not query.limit:
                    now = time.perf_counter()
                    for cost in classes.decode(message).costs:
                        self._received_at.setdefault(cost.key.family, now)
            self._lose("ended", is_new=is_new)
        except (aio.AioRpcError, asyncio.InvalidStateError) as error:
            self._lose(_why(error), is_new=is_new)

    async def measure(self, seconds: float) -> dict[str, float]:
        self._latency.clear()
        pushed, costs = self._pushed, self._sent
        arrivals: list[float] = []
        began, cpu = time.perf_counter(), time.process_time()
        while time.perf_counter() < began + seconds:
            await asyncio.sleep(1.0)
            if self._pushed:
                arrivals.append(await self._new_class(f"new-{len(arrivals)}"))
        took = time.perf_counter() - began
        now = time.perf_counter()
        for why, count in self._lost.items():
            print(f"{count} streams lost: {why}", file=sys.stderr)
        pending = [now - at for at in self._asked_at.values()]
        p50, p99 = np.percentile(self._latency + [age for age in pending if age > P99_LIMIT / 1000], [50, 99]) * 1000
        core = (time.process_time() - cpu) / took
        answer = {"seconds": took, "rate": len(self._latency) / took, "p50": p50, "p99": p99, "core": core}
        answer |= {"pushed": (self._pushed - pushed) / took, "class_rate": (self._sent - costs) / took}
        answer |= {"lost": self._lost.total(), "pending": len(pending)}
        return answer | {"arrival": max(arrivals, default=0.0), "tries": len(arrivals)}

    async def _new_class(self, name: str) -> float:
        """Seconds from a node's first report of a class until a scheduler has received it."""
        call = self._channels[0].stream_stream(METHOD)()
        message = local.parse(self._traces[0].questions[10].message)
        message.node, message.sequence = name, next(self._sequence)
        message.class_costs.append(_class_cost(name))
        began = time.perf_counter()
        await call.write(message.SerializeToString())
        await call.read()
        while f"team-a/{name}" not in self._received_at and time.perf_counter() < began + ARRIVAL_LIMIT:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        call.cancel()
        return self._received_at.get(f"team-a/{name}", time.perf_counter()) - began

    async def saturate(self) -> dict[str, float]:
        """Replace the nodes by streams that send the next request as soon as they have the response."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._asked_at.clear()
        self._tasks = [asyncio.create_task(self._for_ever(i)) for i in range(IN_FLIGHT)]
        await asyncio.sleep(2.0)
        return {}

    async def _for_ever(self, i: int) -> None:
        question = self._traces[0].questions[10]
        while True:
            await self._send_request(1_000_000 + i, question)


def _why(error: Exception) -> str:
    return f"{error.code().name} {error.details()}" if isinstance(error, aio.AioRpcError) else repr(error)


def _classes_of(i: int) -> list[str]:
    """A node's classes; each class runs on 75 of 5,000 nodes."""
    return [f"class-{(i * 7 + j * j) % CLASSES}" for j in range(CLASSES_PER_NODE)]


def _key(name: str) -> ClassKey:
    return ClassKey("team-a", f"team-a/{name}", "5d9c7b")


def _class_cost(name: str) -> Any:
    """Random figures: each node reports different ones each time."""
    cpu, memory = random.uniform(0.3, 0.5), random.uniform(2e8, 4e8)
    figures = ((cpu, memory), (0.01, 1e15), (1.5 * cpu, 1.5 * memory), (cpu, memory))
    return class_cost.message_of(ClassCost(_key(name), 2, 10.0, *figures, 3.0))


async def _generate(port: int, authority: str, case: str) -> None:
    os.sched_setaffinity(0, [max(_cores())])
    load = _Load(port, authority, case)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        order = json.loads(line)
        what = order.pop("what")
        answer = load.rate() if what == "rate" else await getattr(load, what)(**order)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    asyncio.run(_generate(int(sys.argv[1]), *sys.argv[2:]))
