"""The life of a process: its parts run until a signal, or until one of them ends; then it stops all of them.

Agent, aggregator and scheduler each have `run(stop)`, which returns after `stop` was set and everything has ended, and
raises the error of a part that failed. `run_until_signal` calls it.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

Part = Coroutine[Any, Any, object]


def run_until_signal(
    run: Callable[[asyncio.Event], Part], loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
) -> None:
    """Calls `run(stop)` in a new event loop; SIGTERM and SIGINT set `stop`."""

    async def main() -> None:
        stop = asyncio.Event()
        call_on_stop_signals(stop.set)
        await run(stop)

    # Ctrl-C before the signal handler is installed raises KeyboardInterrupt.
    with contextlib.suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())


def call_on_stop_signals(callback: Callable[[], object]) -> None:
    """Calls back, in the running event loop, at every SIGTERM and SIGINT."""
    loop = asyncio.get_running_loop()
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, callback)


async def run_parts(stop: asyncio.Event, parts: Iterable[Part]) -> None:
    """Runs all parts until `stop` is set or one of them ends; cancels the others and raises the error of that one."""
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        await first_to_end(stop, tasks)
    finally:
        await cancel(tasks)


async def first_to_end(stop: asyncio.Event, tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Waits until `stop` is set or a task ends; raises the error of a task that failed."""
    stopping = asyncio.create_task(stop.wait())
    try:
        done, _ = await asyncio.wait({stopping, *tasks}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
    for task in done - {stopping}:
        task.result()


async def cancel(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancels the tasks and waits until all of them have ended; their errors are ignored."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
