"""A scheduler that only receives reports, on the test's event loop, and helpers for tests of streams."""

from __future__ import annotations

import asyncio
import inspect

from carico import flags
from carico.clock import SystemClock
from carico.settings import AgentSettings, ServerTlsFiles, TlsFiles
from carico.wire.report_server import METHOD, ReportService
from carico.wire.server import GrpcServer

PLAIN = ServerTlsFiles(plaintext=True)


class Scheduler:
    """A listener that records calls, behind a real server."""

    def __init__(self, files, heartbeat=5.0):
        self.reports, self.silent, self.refused, self._heartbeat = [], [], [], heartbeat
        self.news = asyncio.Event()
        self.service = ReportService(self, SystemClock(), self._refuse)
        self._files = files
        self.server = None

    async def start(self, port=0):
        self.server = GrpcServer(f"127.0.0.1:{port}", self._files, {METHOD: self.service.method})
        return await self.server.start()

    def reported(self, report):
        self.reports.append(report)
        self.news.set()

    def fell_silent(self, node):
        self.silent.append(node)
        self.news.set()

    def heartbeat(self):
        return self._heartbeat

    def leads(self):
        return True

    def _refuse(self, reason):
        self.refused.append(reason)
        self.news.set()

    async def until(self, condition):
        async with asyncio.timeout(30):
            while not condition():
                self.news.clear()
                await self.news.wait()


def with_files(files, *targets):
    names = flags.names(TlsFiles)
    return AgentSettings(schedulers=targets, **{name: getattr(files, name) for name in names})


def running(test):
    """Run an async test on its own event loop."""

    def run(**arguments):
        asyncio.run(asyncio.wait_for(test(**arguments), 60))

    run.__name__ = test.__name__
    run.__doc__ = test.__doc__
    run.__signature__ = inspect.signature(test)
    return run


async def ended(task):
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
