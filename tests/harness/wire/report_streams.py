"""A scheduler that only receives reports, on the test's event loop, and helpers for tests of streams."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from carico import flags
from carico.clock import SystemClock
from carico.settings import AgentSettings, ServerTlsFiles, TlsFiles
from carico.types import NodeReport
from carico.wire.report_server import METHOD, ReportService
from carico.wire.server import GrpcServer

PLAIN = ServerTlsFiles(plaintext=True)


class Scheduler:
    """A listener that records calls, behind a real server."""

    def __init__(self, files: ServerTlsFiles, heartbeat: float = 5.0) -> None:
        self.reports: list[NodeReport] = []
        self.silent: list[str] = []
        self.refused: list[str] = []
        self._heartbeat = heartbeat
        self.news = asyncio.Event()
        self.service = ReportService(self, SystemClock(), self._refuse)
        self._files = files
        self.server: GrpcServer | None = None

    async def start(self, port: int = 0) -> int:
        self.server = GrpcServer(f"127.0.0.1:{port}", self._files, {METHOD: self.service.method})
        return await self.server.start()

    async def stop(self, grace: float = 0.2) -> None:
        assert self.server is not None
        await self.server.stop(grace)

    def on_report(self, report: NodeReport) -> None:
        self.reports.append(report)
        self.news.set()

    def on_disconnect(self, node: str) -> None:
        self.silent.append(node)
        self.news.set()

    def heartbeat(self) -> float:
        return self._heartbeat

    def leads(self) -> bool:
        return True

    def _refuse(self, reason: str) -> None:
        self.refused.append(reason)
        self.news.set()

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                self.news.clear()
                await self.news.wait()


def with_files(files: TlsFiles, *targets: str) -> AgentSettings:
    names = flags.names(TlsFiles)
    return AgentSettings(schedulers=targets, **{name: getattr(files, name) for name in names})


def running(test: Callable[..., Awaitable[object]]) -> Callable[..., None]:
    """Run an async test on its own event loop."""

    def run(**arguments: Any) -> None:
        asyncio.run(asyncio.wait_for(test(**arguments), 60))

    run.__name__ = test.__name__
    run.__doc__ = test.__doc__
    run.__signature__ = inspect.signature(test)  # type: ignore[attr-defined]
    return run


async def ended(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
