"""`carico agent`: settings, signals, exit code."""

from __future__ import annotations

import argparse
import asyncio
import signal

from carico import flags
from carico.agent.process import AgentProcess
from carico.beat import BeatLoop
from carico.clock import SystemClock
from carico.settings import AgentSettings


def add_arguments(parser: flags.CommandParser) -> None:
    flags.add_settings(parser, AgentSettings)


def run(args: argparse.Namespace) -> int:
    settings = flags.settings_of(AgentSettings, "agent", args)
    with asyncio.Runner(loop_factory=BeatLoop) as runner:
        runner.run(_run(settings))
    return 0


async def _run(settings: AgentSettings) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await AgentProcess(settings, SystemClock()).run(stop)
