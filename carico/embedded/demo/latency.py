"""Response times of a small HTTP server, for a client that sends ten requests per second."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

EVERY = 0.1  # s between two requests
PATIENCE = 10.0  # s; a response that takes longer counts as this long
REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


async def request(port: int) -> float:
    """Seconds from opening the connection to the end of the response; OSError if there is none."""
    began = time.perf_counter()
    try:
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(REQUEST)
                answer = await reader.read()
            finally:
                writer.close()
    except TimeoutError:
        return PATIENCE
    if not answer.startswith(b"HTTP/1.0 200"):
        raise OSError(f"port {port} answered {answer[:40]!r}")
    return time.perf_counter() - began


async def until_it_answers(port: int, seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while True:
            with suppress(OSError):
                await request(port)
                return
            await asyncio.sleep(0.05)


async def keep_requesting(port: int, answers: list[float]) -> None:
    """Until cancelled. A request does not wait for the previous one: a slow server gets no pause."""
    loop, waiting = asyncio.get_running_loop(), set[asyncio.Task[None]]()
    due = loop.time()
    try:
        while True:
            task = asyncio.create_task(_one(port, answers))
            waiting.add(task)
            task.add_done_callback(waiting.discard)
            due = max(due + EVERY, loop.time())
            await asyncio.sleep(due - loop.time())
    finally:
        for task in waiting:
            task.cancel()


async def _one(port: int, answers: list[float]) -> None:
    with suppress(OSError):
        answers.append(await request(port))
