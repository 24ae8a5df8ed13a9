"""`carico aggregator`: settings, signals, exit code."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import signal

from carico.aggregator import garbage
from carico.aggregator.process import Aggregator
from carico.clock import SystemClock
from carico.flags import CommandParser, add_settings, settings_of
from carico.settings import AggregatorSettings

log = logging.getLogger(__name__)


def add_arguments(parser: CommandParser) -> None:
    add_settings(parser, AggregatorSettings)


def run(args: argparse.Namespace) -> int:
    settings = settings_of(AggregatorSettings, "aggregator", args)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(settings))
    return 0


async def _serve(settings: AggregatorSettings) -> None:
    aggregator = Aggregator(settings, SystemClock())
    end = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end.set)
    await aggregator.start()
    collecting = asyncio.create_task(garbage.run(SystemClock()))
    try:
        await aggregator.until(end)
    finally:
        log.info("ending")
        collecting.cancel()
        await aggregator.stop()
