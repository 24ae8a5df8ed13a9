"""Whatever happens to the writer: every write ends once, in order and within its bounds."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from carico.errors import HttpError
from carico.kube.client import Fence
from carico.kube.writes import Urgency, Write
from harness.kube.scripted import Desk, says

LANES = (
    (Urgency.EVICTION, Urgency.NOMINATION),
    (Urgency.CONDITION, Urgency.ANNOTATION),
    (Urgency.SCHEDULED_EVENT, Urgency.EVENT),
    (Urgency.NODE_CAPACITY,),
)
ENDS = st.sampled_from([None, says(500), says(500), says(429, 3.0), says(403), HttpError("cut"), "hangs"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 3), st.sampled_from(list(Urgency)), st.lists(ENDS, max_size=3)),
        st.tuples(st.just("time"), st.sampled_from([0.0, 0.01, 0.3, 5.0, 20.0])),
        st.tuples(st.just("unwanted"), st.integers(0, 50)),
    ),
    max_size=60,
)


class World:
    """Writes of all kinds, and what must hold of every one of them."""

    def __init__(self, workers: int, event_workers: int, most: int) -> None:
        self.desk = Desk(workers=workers, event_workers=event_workers, most=dict.fromkeys(Urgency, most))
        self.limit = dict.fromkeys(Urgency, workers)
        self.limit |= {Urgency.EVENT: event_workers, Urgency.SCHEDULED_EVENT: event_workers}
        self.puts: list[tuple[int, Urgency]] = []  # key and urgency, in order
        self.ends: dict[int, list[Exception | None]] = {}
        self.tried: set[int] = set()
        self.unwanted: set[int] = set()
        self.in_flight: dict[int, int] = {}  # key to number
        self.newest_sent: dict[int, int] = {}  # key to number
        self.wrong: list[str] = []  # the writer would contain an AssertionError

    def put(self, key: int, urgency: Urgency, ends: list[Any]) -> None:
        number, left = len(self.puts), list(ends)
        self.puts.append((key, urgency))
        self.ends[number] = []

        def wanted() -> bool:
            self.check_order(number)
            self.tried.add(number)
            return number not in self.unwanted

        async def send(_: Fence) -> None:
            self.hold(key not in self.in_flight, "two writes of one key at once")
            self.hold(self.newest_sent.get(key, 0) <= number, "an older write after a newer one")
            self.newest_sent[key] = self.in_flight[key] = number
            together = sum(self.puts[other][1] in lane_of(urgency) for other in self.in_flight.values())
            self.hold(together <= self.limit[urgency], "too many at once")
            try:
                end = left.pop(0) if left else None
                await self.desk.clock.sleep(30.0 if end == "hangs" else 0.05)
                if isinstance(end, Exception):
                    raise end
            finally:
                del self.in_flight[key]

        self.desk.writer.put(Write(key, urgency, send, wanted, self.ends[number].append))

    def check_order(self, number: int) -> None:
        """Nothing more urgent that could start as well, and never was tried, waits behind this one."""
        _, urgency = self.puts[number]
        for other, (key, more) in enumerate(self.puts):
            if more < urgency and more in lane_of(urgency) and other not in self.tried and not self.ends[other]:
                gone = other in self.unwanted or key in self.in_flight or self.replaced(other)
                self.hold(gone or self.key_rests(other), "a more urgent one waits")

    def hold(self, fact: bool, otherwise: str) -> None:
        if not fact:
            self.wrong.append(otherwise)

    def replaced(self, number: int) -> bool:
        return any(key == self.puts[number][0] for key, _ in self.puts[number + 1 :])

    def key_rests(self, number: int) -> bool:
        """Whether it took over the back-off of an earlier write of its key."""
        key = self.puts[number][0]
        return any(other in self.tried for other, (its, _) in enumerate(self.puts[:number]) if its == key)

    def check_ends(self) -> None:
        assert not self.wrong
        for number, ends in self.ends.items():
            assert len(ends) <= 1
            assert ends or self.replaced(number) or number in self.unwanted
        assert len(self.desk.writer) == 0


def lane_of(urgency: Urgency) -> tuple[Urgency, ...]:
    return next(lane for lane in LANES if urgency in lane)


@settings(max_examples=300)
@given(STEPS, st.integers(1, 3), st.integers(1, 3), st.integers(1, 8))
def test_every_write_ends_once_in_order_and_within_its_bounds(
    steps: list[Any], workers: int, event_workers: int, most: int
) -> None:
    async def scenario() -> None:
        world = World(workers, event_workers, most)
        async with world.desk.at_work():
            for step in steps:
                if step[0] == "put":
                    world.put(*step[1:])
                elif step[0] == "time":
                    await world.desk.clock.turn(step[1])
                else:
                    world.unwanted.add(step[1])
            await world.desk.until(lambda: not len(world.desk.writer), within=3000.0, step=10.0)
        world.check_ends()

    asyncio.run(scenario())
