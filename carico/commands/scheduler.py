"""`carico scheduler`: settings, signals, exit code."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys

from carico.flags import CommandParser, add_settings, settings_of
from carico.process import run_until_signal
from carico.scheduler.gc_control import GcControl
from carico.scheduler.process import Scheduler
from carico.settings import SchedulerSettings

log = logging.getLogger(__name__)


def add_arguments(parser: CommandParser) -> None:
    add_settings(parser, SchedulerSettings)


def run(args: argparse.Namespace) -> int:
    settings = settings_of(SchedulerSettings, "scheduler", args)

    async def serve(stop: asyncio.Event) -> None:
        scheduler = Scheduler(settings, garbage=GcControl(ours=True))
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, lambda: _dump(scheduler))
        await scheduler.run(stop)
        log.info("ended")

    run_until_signal(serve, _fast_loop)
    return 0


def _fast_loop() -> asyncio.AbstractEventLoop:
    """uvloop's, imported here so that no other command of `carico` loads it."""
    import uvloop

    return uvloop.new_event_loop()


def _dump(scheduler: Scheduler) -> None:
    """Writes the ring of decisions to standard error, and logs whether the ledger is consistent."""
    sys.stderr.write(scheduler.parts.ring.dump().decode())
    try:
        scheduler.parts.ledger.validate()
        log.info("the ledger is consistent")
    except AssertionError as error:
        log.error("the ledger is inconsistent: %s", error)
