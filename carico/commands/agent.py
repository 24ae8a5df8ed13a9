"""`carico agent`: settings, signals, exit code."""

from __future__ import annotations

import argparse
import asyncio

from carico import flags
from carico.agent.process import AgentProcess
from carico.clock import SystemClock
from carico.process import run_until_signal
from carico.settings import AgentSettings
from carico.tick_loop import TickLoop


def add_arguments(parser: flags.CommandParser) -> None:
    flags.add_settings(parser, AgentSettings)


def run(args: argparse.Namespace) -> int:
    settings = flags.settings_of(AgentSettings, "agent", args)

    async def serve(stop: asyncio.Event) -> None:
        await AgentProcess(settings, SystemClock()).run(stop)

    run_until_signal(serve, TickLoop)
    return 0
