"""The cases of the closed loop: which pods there are, and on which nodes.

Where the cpu decides, pods consist of continuously busy threads: the demand of threads that sleep depends on how full
the node is (carico/sim/sharing.py), so the true number of pods that fit would not be defined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count

import numpy as np

from carico.sim.closed_loop import Case
from carico.sim.machine import Hardware
from carico.sim.workload import SimPod, WorkPhase, bursting, growing, ramping, rotated, starting_up, steady
from carico.sim.world import ArrivalStream
from carico.types import ClassKey

GIB = float(1 << 30)
MEMORY = 64 * GIB
ENDLESS = 1e9  # s

Make = Callable[[np.random.Generator], tuple[WorkPhase, ...]]


@dataclass(frozen=True)
class Kind:
    """A class of pods."""

    name: str
    phases: Make
    share: float = 1.0  # of the pods of its stream
    in_step: bool = False
    nodes: frozenset[str] = frozenset()
    cpu_limit: float = float("inf")
    requests: tuple[float, float] = (0.0, 0.0)


def memory(ratio: float) -> float:
    """Bytes."""
    return ratio * MEMORY


def around(rng: np.random.Generator, seconds: float) -> float:
    """Within 10 % of `seconds`."""
    return float(seconds * rng.uniform(0.9, 1.1))


def plain(name: str, threads: float, ratio: float, seconds: float, **more: object) -> Kind:
    """Pods with constant demand."""
    return Kind(name, lambda rng: steady(around(rng, seconds), threads, memory(ratio)), **more)  # type: ignore[arg-type]


def pods(seed: int, number: int, kinds: tuple[Kind, ...]) -> Iterator[SimPod]:
    """The same pods in the same order for every admission method."""
    rng = np.random.default_rng([seed, 3, number])
    shares = np.cumsum([kind.share for kind in kinds])
    drawn = 0
    while True:
        drawn += 1
        kind = kinds[int(np.searchsorted(shares, rng.random() * shares[-1], side="right"))]
        yield SimPod(
            uid=f"{kind.name}-{number}-{drawn}",
            key=ClassKey("team", f"team/{kind.name}"),
            phases=kind.phases(rng),
            kubelet_delay=float(rng.uniform(0.15, 0.5)),
            in_step=kind.in_step,
            nodes=kind.nodes,
            cpu_limit=kind.cpu_limit,
            requests=kind.requests,
        )


def queue(*kinds: Kind, number: int = 0, **more: object) -> Callable[[int], ArrivalStream]:
    return lambda seed: ArrivalStream(pods(seed, number, kinds), **more)  # type: ignore[arg-type]


def streams(*makers: Callable[[int], ArrivalStream]) -> Callable[[int], list[ArrivalStream]]:
    return lambda seed: [make(seed) for make in makers]


def one(cores: float, base: tuple[float, float] = (0.05, 0.12)) -> dict[str, Hardware]:
    return {"node": Hardware(cores, MEMORY, base)}


def several(count: int, cores: float) -> dict[str, Hardware]:
    return {f"node-{i}": Hardware(cores, MEMORY) for i in range(count)}


def resident(name: str, phases: tuple[WorkPhase, ...], **more: object) -> SimPod:
    """A pod that runs before the agent starts."""
    return SimPod(name, ClassKey("team", f"team/{name}"), phases, 0.0, **more)  # type: ignore[arg-type]


def simple(name: str, cores: float, of: Kind, **more: object) -> Case:
    """One node and an endless queue of one class."""
    return Case(name, one(cores), streams(queue(of)), **more)  # type: ignore[arg-type]


def unlike(rng: np.random.Generator) -> tuple[WorkPhase, ...]:
    """Pods that differ by up to 30 % from their class."""
    return steady(around(rng, 30), float(rng.integers(7, 14)), memory(0.075 * rng.uniform(0.7, 1.3)))


def out_of_step(rng: np.random.Generator) -> tuple[WorkPhase, ...]:
    cycle = bursting(200, (0.64, 8.0), memory(0.02), on=5, off=15)
    return rotated(cycle, float(rng.uniform(0, 20)))


LIGHT = plain("light", 1, 0.01, 20)
HEAVY = plain("heavy", 10, 0.2, 60)
HEAVY_WITH_REQUESTS = plain("heavy", 10, 0.2, 60, requests=(10.0, memory(0.2)))
PI = plain("pi", 1, 0.01, 7, share=24.0)
SKLEARN = Kind("sklearn", lambda rng: ramping(around(rng, 30), 0.8, memory(0.25), ramp=6))
SMALL = plain("small", 1, 0.02, 30)


def loading(rng: np.random.Generator, threads: float, ratio: float, burn: float = 1e9) -> tuple[WorkPhase, ...]:
    """A program is loaded, works for `burn` seconds, and then only holds its memory."""
    life = around(rng, 45)
    load, work = WorkPhase(0.4, 0.15, memory(0.001)), WorkPhase(min(burn, life), threads, memory(ratio))
    return (load, work, WorkPhase(life - work.seconds, 0.005, memory(ratio))) if burn < life else (load, work)


def touching(rng: np.random.Generator, ratio: float, seconds: float) -> tuple[WorkPhase, ...]:
    """Touches its memory slowly, for which it needs little cpu, and then only holds it."""
    load, first = WorkPhase(0.4, 0.15, memory(0.001)), WorkPhase(0.1, 0.06, memory(0.001))
    ramp = WorkPhase(seconds, 0.06, memory(ratio), ramp=True)
    return (load, first, ramp, WorkPhase(around(rng, 45) - seconds, 0.005, memory(ratio)))


# As in bench/real_node.py.
REAL_EVERY = 5.0  # s
REAL_THREADS = 5.0  # busy threads at most
REAL = (
    *[Kind(f"busy-{n}", lambda rng, n=n: loading(rng, n, 0.01)) for n in (1, 2, 4)],  # type: ignore[misc]
    Kind("start-up", lambda rng: loading(rng, 1, 0.01, burn=5)),
    Kind("throttled", lambda rng: loading(rng, 1, 0.01), cpu_limit=0.2),
    Kind("slow", lambda rng: touching(rng, 0.02, 10)),
    Kind("touch", lambda rng: loading(rng, 0.005, 0.015)),
)


def real_mix(seed: int) -> Iterator[SimPod]:
    """One pod every REAL_EVERY seconds; where its threads would be too many, one that only touches its memory."""
    rng = np.random.default_rng([seed, 3, 0])
    alive: list[tuple[float, float]] = []  # s, end; threads
    for drawn in count():
        now = drawn * REAL_EVERY
        alive = [one for one in alive if one[0] > now]
        kind = REAL[int(rng.integers(len(REAL)))]
        pod = next(pods(int(rng.integers(1 << 30)), drawn, (kind,)))
        if sum(threads for _, threads in alive) + pod.peak[0] > REAL_THREADS:
            pod = next(pods(int(rng.integers(1 << 30)), drawn, (REAL[-1],)))
        alive.append((now + 2.0 + pod.life, pod.peak[0]))
        yield pod


def light_then_heavy(name: str, heavy: Kind, **more: object) -> Case:
    """One class ends where the other begins, on a node that is still full of the first."""
    return Case(
        name,
        one(24),
        streams(queue(LIGHT, end=150.0), queue(heavy, number=1, begin=150.0)),
        seconds=450,
        cold=(150, 300),
        known=(300, 450),
        **more,  # type: ignore[arg-type]
    )


def new_class(name: str, requests: float, delay: float) -> Case:
    """300 memory pods of an unmeasured class whose requests are the share `requests` of the truth."""
    asked = (requests * 0.8, requests * memory(0.2))
    return Case(
        name,
        several(10, 8),
        streams(queue(plain("new", 0.8, 0.2, 40, requests=asked), begin=10.0, count=300)),
        seconds=400,
        cold=(10, 160),
        known=(160, 300),
        sharing_delay=delay,
    )


STEADY = (
    simple("cold cpu 7 s", 4, plain("a", 2, 0.05, 7)),
    simple("cold cpu 30 s", 4, plain("a", 2, 0.05, 30)),
    simple("cold memory", 4, plain("a", 0.4, 0.25, 30)),
    simple("short 0.5/s", 16, plain("a", 7, 0.02, 7)),
    simple("short 1/s", 32, plain("a", 7, 0.02, 7)),
    simple("short 2/s", 64, plain("a", 7, 0.02, 7)),
    simple("short 4/s", 16, plain("a", 1, 0.01, 7)),
    simple("drain 6 s", 16, plain("a", 1, 0.01, 7), drain=6.0),
    light_then_heavy("light then heavy", HEAVY_WITH_REQUESTS),
    Case(
        "light idle heavy",
        one(24),
        streams(queue(LIGHT, end=100.0), queue(HEAVY, number=1, begin=220.0)),
        seconds=520,
        cold=(220, 370),
        known=(370, 520),
    ),
    Case(
        "mix 4:1",
        one(24),
        streams(queue(plain("light", 1, 0.01, 20, share=4.0), plain("heavy", 10, 0.2, 60), window=8)),
        seconds=450,
        known=(150, 450),
    ),
    Case("mix 24:1", one(4), streams(queue(PI, SKLEARN, window=8)), seconds=450, known=(150, 450)),
    simple(
        "start-up",
        8,
        Kind("a", lambda rng: starting_up(around(rng, 60), 0.16, memory(0.06), burn=6, burn_threads=4)),
    ),
    Case("stuck", one(12), streams(queue(SMALL)), present=(resident("stuck", steady(1, 1, memory(0.02)), stuck=True),)),
    Case(
        "crash loop",
        one(12),
        streams(queue(SMALL)),
        present=(resident("crash", steady(5, 1, memory(0.02)), crashes=True),),
    ),
    simple("256 cores", 256, plain("tiny", 1, 0.001, 60)),
    simple("1 core", 1, plain("a", 0.15, 0.18, 20)),
    Case(
        "threads",
        one(8),
        streams(queue(*[plain(f"threads-{n}", n, 0.01 * n, 20) for n in (1, 2, 4)], window=8)),
        seconds=450,
        known=(150, 450),
    ),
    Case(
        "throttled",
        one(8),
        streams(queue(SMALL)),
        present=(resident("throttled", steady(ENDLESS, 4, memory(0.02)), cpu_limit=1.0),),
    ),
    Case("agent restart", one(16, (0.05, 0.5)), streams(queue(plain("a", 1, 0.03, 120))), restart=150.0),
    simple("unlike 30 %", 64, Kind("a", unlike)),
    new_class("new class 10 nodes", requests=0.25, delay=1.0),
    new_class("new class told late", requests=0.25, delay=10.0),
    Case(
        "others 2/s",
        one(16),
        streams(queue(plain("a", 1, 0.01, 7), every=0.5, placed_by_others=True)),
        admitted=False,
    ),
    Case(
        "young pods",
        one(2, (0.02, 0.05)),
        lambda seed: [ArrivalStream(real_mix(seed), every=REAL_EVERY, placed_by_others=True)],
        seconds=400,
        admitted=False,
    ),
    Case(
        "9 light 1 heavy",
        several(10, 8),
        streams(
            *[
                queue(
                    plain("light", 0.3, 0.01, 20, nodes=frozenset((f"node-{i}",))),
                    number=i,
                    every=2.0,
                    placed_by_others=True,
                )
                for i in range(9)
            ],
            queue(
                plain("heavy", 3.2, 0.1, 20, nodes=frozenset(("node-9",))), number=9, every=9.0, placed_by_others=True
            ),
        ),
        admitted=False,
    ),
)
OTHERS = (
    simple(
        "bursts out of step",
        16,
        Kind("a", out_of_step),
        kind="bursts",
        seconds=900,
        counts_from=250,
        cold=(0, 250),
        known=(250, 900),
    ),
    simple(
        "bursts in step",
        16,
        Kind("a", lambda _: bursting(200, (0.64, 8.0), memory(0.02), on=5, off=15), in_step=True),
        kind="bursts",
        seconds=900,
        counts_from=250,
        cold=(0, 250),
        known=(250, 900),
    ),
    simple(
        "growth",
        4,
        Kind("a", lambda rng: growing(around(rng, 300), 0.16, (memory(0.03), memory(0.22)), over=240)),
        kind="growth",
        seconds=1200,
        counts_from=350,
        cold=(0, 350),
        known=(350, 1200),
    ),
    light_then_heavy("heavy without requests", HEAVY, kind="other"),
    simple("threads that sleep", 4, plain("a", 0.3, 0.01, 30), kind="other"),
)
CASES = (*STEADY, *OTHERS)
