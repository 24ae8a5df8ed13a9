"""How many messages a server processes in one iteration of its event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from carico.wire.turns import MessageTurns

T = TypeVar("T")


def played(play: Callable[[], Awaitable[T]]) -> T:
    return asyncio.run(asyncio.wait_for(play(), 30))


async def iterations(counts: list[int], until: Callable[[], bool]) -> None:
    """Appends to `counts` how many messages each iteration of the loop has processed."""
    while not until():
        counts.append(0)
        await asyncio.sleep(0)


def test_messages_that_come_at_once_are_spread_over_iterations_in_their_order() -> None:
    async def play() -> tuple[list[int], list[int]]:
        turns = MessageTurns(4)
        done: list[int] = []
        counts: list[int] = []

        async def process(i: int) -> None:
            await turns.take()
            done.append(i)
            counts[-1] += 1

        counting = asyncio.create_task(iterations(counts, lambda: len(done) == 50))
        await asyncio.gather(counting, *(process(i) for i in range(50)))
        return done, counts

    done, counts = played(play)
    assert done == list(range(50))
    assert max(counts) <= 8, "those of one refill, and those that came in the same iteration"
    assert sum(counts) == 50


def test_a_stream_that_ends_while_it_waits_takes_no_turn() -> None:
    async def play() -> list[int]:
        turns = MessageTurns(2)
        done: list[int] = []

        async def process(i: int) -> None:
            await turns.take()
            done.append(i)

        tasks = [asyncio.create_task(process(i)) for i in range(20)]
        await asyncio.sleep(0)
        for task in tasks[2:10]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return done

    assert played(play) == [0, 1, *range(10, 20)]


def test_a_message_alone_waits_for_nothing() -> None:
    async def play() -> bool:
        turns = MessageTurns(2)
        for _ in range(100):
            take = turns.take()
            try:
                take.send(None)
            except StopIteration:
                await asyncio.sleep(0)
            else:
                return False
        return True

    assert played(play)
