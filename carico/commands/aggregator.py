"""`carico aggregator`: settings, signals, exit code."""

from __future__ import annotations

import argparse
import asyncio

from carico.aggregator.process import Aggregator
from carico.clock import SystemClock
from carico.flags import CommandParser, add_settings, settings_of
from carico.process import run_until_signal
from carico.settings import AggregatorSettings


def add_arguments(parser: CommandParser) -> None:
    add_settings(parser, AggregatorSettings)


def run(args: argparse.Namespace) -> int:
    settings = settings_of(AggregatorSettings, "aggregator", args)

    async def serve(stop: asyncio.Event) -> None:
        await Aggregator(settings, SystemClock(), collect_garbage=True).run(stop)

    run_until_signal(serve)
    return 0
