"""A scheduler that only receives reports, in a separate thread: the target of agents in tests and benchmarks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Self

from carico.clock import SystemClock
from carico.settings import ServerTlsFiles
from carico.types import NodeReport
from carico.wire import report_server
from carico.wire.server import GrpcServer


class ListeningScheduler:
    """Serves Capacity.Report with TLS; `reports` grows as they arrive."""

    def __init__(self, cert: Path, key: Path, *, heartbeat: float = 5.0, port: int = 0) -> None:
        self.reports: list[NodeReport] = []
        self.silent: list[str] = []
        self.refused: list[str] = []
        self._heartbeat = heartbeat
        self._port = port  # 0: a free one
        self._files = ServerTlsFiles(tls_cert=cert, tls_key=key, allow_anonymous_clients=True)
        self._arrived = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._server, port = asyncio.run_coroutine_threadsafe(self._serve(), self._loop).result(30)
        self.target = f"localhost:{port}"
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._server.stop(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    async def _serve(self) -> tuple[GrpcServer, int]:
        service = report_server.ReportService(self, SystemClock(), self.refused.append)
        server = GrpcServer(f"127.0.0.1:{self._port}", self._files, {report_server.METHOD: service.method})
        return server, await server.start()

    def wait_for(self, enough: Callable[[NodeReport], bool], seconds: float = 30.0) -> NodeReport:
        """The first report for which `enough` holds."""

        def found() -> NodeReport | None:
            return next((report for report in self.reports if enough(report)), None)

        with self._arrived:
            self._arrived.wait_for(found, timeout=seconds)
        report = found()
        assert report is not None, f"no such report within {seconds} s among {len(self.reports)}: {self.reports[-1:]}"
        return report

    # The protocol carico.wire.report_server.Listener:

    def on_report(self, report: NodeReport) -> None:
        with self._arrived:
            self.reports.append(report)
            self._arrived.notify_all()

    def on_disconnect(self, node: str) -> None:
        self.silent.append(node)

    def heartbeat(self) -> float:
        return self._heartbeat

    def leads(self) -> bool:
        return True
