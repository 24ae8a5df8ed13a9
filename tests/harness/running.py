"""A real `carico agent` process with access to its log and metrics: for tests and for the benchmark of its cost."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator


class Process:
    """A `carico` process; tests can wait for its log lines."""

    def __init__(self, *words: str, environ: dict[str, str] | None = None) -> None:
        command = [sys.executable, "-m", "carico.cli", *words]
        env = {**os.environ, **(environ or {})}
        self._child = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=env)
        self.lines: list[str] = []
        self._arrived = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._child.pid

    def log(self) -> str:
        return "\n".join(self.lines)

    def wait_for(self, pattern: str, seconds: float = 30.0) -> re.Match[str]:
        """The first log line that matches, already written or future."""

        def found() -> re.Match[str] | None:
            return next((match for line in self.lines if (match := re.search(pattern, line))), None)

        with self._arrived:
            self._arrived.wait_for(found, timeout=seconds)
        match = found()
        assert match is not None, f"no line matches {pattern!r} within {seconds} s:\n{self.log()}"
        return match

    def stop(self, number: signal.Signals = signal.SIGTERM, seconds: float = 30.0) -> int:
        if self._child.poll() is None:
            self._child.send_signal(number)
        code = self._child.wait(timeout=seconds)
        self._reader.join(timeout=seconds)
        assert self._child.stderr is not None
        self._child.stderr.close()
        return code

    def _read(self) -> None:
        assert self._child.stderr is not None
        for line in self._child.stderr:
            with self._arrived:
                self.lines.append(line.rstrip())
                self._arrived.notify_all()


class AgentProcess(Process):
    def __init__(self, *flags: str, environ: dict[str, str] | None = None) -> None:
        super().__init__("agent", "--listen", "127.0.0.1:0", "--node-name", "node-1", *flags, environ=environ)
        self.port = int(self.wait_for(r"metrics on port (\d+)")[1])

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def ready(self) -> None:
        self.wait_until(lambda: self.get("/readyz")[0] == 200, "ready")

    def wait_until(self, holds: Callable[[], bool], what: str, attempts: int = 300) -> None:
        """Poll ten times a second: another process has no clock that a test could control."""
        for _ in range(attempts):
            if holds():
                return
            threading.Event().wait(0.1)
        raise AssertionError(f"never {what}:\n{self.get('/metrics')[1]}\n{self.log()}")


@contextlib.contextmanager
def agent(*flags: str, environ: dict[str, str] | None = None) -> Iterator[AgentProcess]:
    process = AgentProcess(*flags, environ=environ)
    try:
        yield process
    finally:
        process.stop(signal.SIGKILL)
