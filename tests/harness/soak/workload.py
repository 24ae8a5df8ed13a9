"""Pods of many kinds and three priorities that are created and deleted, for as long as the soak lasts."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
import time
from dataclasses import dataclass, field
from typing import Any

from harness.cluster.api import Api, Object
from harness.soak.cluster import NAMESPACE, attempt, insist
from harness.soak.observer import PLAIN, UNITS

PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
GRACE = (2, 6)  # s
TICK = 0.1  # s
AT_ONCE = 0.7  # share of each kind's pods that are created at the beginning
NAMES = 12  # that pods of kinds with fixed names share


@dataclass(frozen=True)
class Kind:
    """`pods` exist at a time, `life` seconds each on average, whether they run or wait."""

    name: str
    pods: int
    life: float = 45.0
    cpu: str = "250m"
    pool: str = ""
    priority: str = ""
    units: str = ""
    scheduler: str = "carico"
    annotations: dict[str, str] = field(default_factory=dict)
    spec: dict[str, Any] = field(default_factory=dict)
    fixed_names: bool = False  # a deleted pod is replaced by one of the same name, as in a StatefulSet

    @property
    def plain(self) -> bool:
        return not self.spec and self.units != TYPO

    def pod(self, name: str, rng: random.Random) -> Object:
        annotations = self.annotations | ({UNITS: self.units} if self.units else {})
        labels = {"kind": self.name} | ({PLAIN: "yes"} if self.plain else {})
        room = {"requests": {"cpu": self.cpu, "memory": "64Mi"}}
        spec: dict[str, Any] = {
            "schedulerName": self.scheduler,
            "terminationGracePeriodSeconds": rng.randint(*GRACE),
            "containers": [{"name": "c", "image": "registry.invalid/none", "resources": room}],
        }
        if self.pool:
            spec["nodeSelector"] = {"pool": self.pool}
        if self.priority:
            spec["priorityClassName"] = self.priority
        return {"metadata": {"name": name, "labels": labels, "annotations": annotations}, "spec": spec | self.spec}


TYPO = "lots"
_selector = {"labelSelector": {"matchLabels": {"kind": "spread"}}}
_spread = [{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}]
_apart = [{"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"kind": "apart"}}}]
KINDS = (
    Kind("anywhere", 100),
    Kind("open", 150, cpu="500m", pool="open"),
    Kind("filler", 50, cpu="1", pool="full"),  # more than the pool can take, by requests
    Kind("middle", 6, life=20, cpu="1", pool="full", priority="middle"),
    Kind("urgent", 4, life=15, cpu="2", pool="full", priority="high"),
    Kind("tight", 40, pool="tight"),  # with the next two more than the pool can take, by Pod-Capacity
    Kind("half", 16, pool="tight", units="0.5"),
    Kind("double", 6, pool="tight", units="2"),
    Kind("typo", 3, life=30, pool="open", units=TYPO),
    Kind("spread", 20, pool="open", spec={"topologySpreadConstraints": [_spread[0] | _selector]}),
    Kind(
        "apart", 20, pool="open",
        spec={"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _apart}}},
    ),
    Kind("stuck", 36, life=240, cpu="100m", pool="pulls", annotations={"carico.test/pull": "fails"}),
    Kind("beside", 6, life=20, cpu="100m", pool="pulls"),
    Kind("job", 10, life=20, pool="open", annotations={"carico.test/runs-for": "6s"}),
    Kind("stateful", 10, life=25, pool="open", fixed_names=True),
    Kind("stock", 50, scheduler="default-scheduler", priority="stock"),
)  # fmt: skip


class Workload:
    def __init__(self, api: Api, rng: random.Random) -> None:
        self._api, self._rng = api, rng
        self._due: list[tuple[float, int, str, Any]] = []  # when, order, what to do, with what
        self._tasks: set[asyncio.Task[Any]] = set()
        self._order = itertools.count()
        self.goes_on = asyncio.Event()  # clear: nothing is created or deleted
        self.goes_on.set()
        self._numbers = itertools.count()

    async def run(self) -> None:
        now = time.monotonic()
        for kind in KINDS:
            for _ in range(int(AT_ONCE * kind.pods)):
                self._at(now + self._rng.uniform(0, 15), "first", kind)
            self._at(now + self._rng.expovariate(kind.pods / kind.life), "next", kind)
        try:
            while True:
                await self.goes_on.wait()
                while self._due and self._due[0][0] <= time.monotonic():
                    _, _, what, which = heapq.heappop(self._due)
                    self._do(what, which)
                await asyncio.sleep(TICK)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _at(self, when: float, what: str, which: Any) -> None:
        heapq.heappush(self._due, (when, next(self._order), what, which))

    def _do(self, what: str, which: Any) -> None:
        now = time.monotonic()
        if what == "delete":
            self._start(insist(self._api.delete, f"{PODS}/{which}"))
        elif what == "fix-units":
            self._start(insist(self._api.patch, f"{PODS}/{which}", {"metadata": {"annotations": {UNITS: "0.5"}}}))
        else:
            if what == "next":
                self._at(now + self._rng.expovariate(which.pods / which.life), "next", which)
            number = next(self._numbers)
            if which.fixed_names:
                number %= NAMES
            self._start(self.create(which, f"{which.name}-{number}"))

    async def create(self, kind: Kind, name: str) -> None:
        if await attempt(self._api.post, PODS, kind.pod(name, self._rng)) is None:
            return  # the API server is unavailable, or a pod of that name still exists
        now, life = time.monotonic(), self._rng.expovariate(1 / kind.life)
        self._at(now + 2 + life, "delete", name)
        if kind.units == TYPO:
            self._at(now + 1 + life / 2, "fix-units", name)

    def _start(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # a pod that could not be deleted for minutes remains; the checks show the effect
