"""The embedded cluster for tests: the same interface as `cluster.Cluster`, so that one test can run on both.

Both processes are real ones: `python -m carico.embedded.apiserver`, and `carico.embedded.simulated` for its nodes.
"""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.cluster.api import Api, Object

PATIENCE = 60.0  # s


class Module:
    """`python -m NAME`, with its log in a file; tests can wait for log lines."""

    def __init__(self, log: Path, name: str, *argv: str) -> None:
        self._log, self.command = log, (name, *argv)
        with log.open("wb") as file:
            command = [sys.executable, "-m", name, *argv]
            self._child = subprocess.Popen(
                command, stdout=file, stderr=file, env=os.environ | {"PYTHONUNBUFFERED": "1"}
            )

    @property
    def pid(self) -> int:
        return self._child.pid

    def log(self) -> str:
        return self._log.read_text()

    def wait_for(self, pattern: str, seconds: float = PATIENCE) -> re.Match[str]:
        deadline = time.monotonic() + seconds
        while (found := re.search(pattern, self.log())) is None:
            assert self._child.poll() is None, f"it ended:\n{self.log()}"
            assert time.monotonic() < deadline, f"no {pattern!r} within {seconds} s:\n{self.log()}"
            time.sleep(0.02)
        return found

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        if self._child.poll() is None:
            self._child.send_signal(number)
        return self._child.wait(timeout=PATIENCE)


class EmbeddedCluster:
    def __init__(self, folder: Path, nodes: int = 0, prefix: str = "kwok-") -> None:
        self.kubeconfig, self.logs = folder / "kubeconfig", folder / "logs"
        self._started: list[Module] = []
        where = ("--kubeconfig", str(self.kubeconfig))
        try:
            self.server = self._start(folder / "api.log", "carico.embedded.apiserver", *where, "--logs", str(self.logs))
            self.server.wait_for("API server at")
            self.api = Api(self.kubeconfig)
            if nodes:
                flags = (*where, "--nodes", str(nodes), "--prefix", prefix)
                self._start(folder / "nodes.log", "carico.embedded.simulated", *flags).wait_for("nodes are there")
        except BaseException:
            self.stop()
            raise

    def _start(self, log: Path, *command: str) -> Module:
        self._started.append(Module(log, *command))
        return self._started[-1]

    def stop(self) -> None:
        if "api" in self.__dict__:
            self.api.close()
        for process in reversed(self._started):
            process.stop(signal.SIGKILL)

    def create(self, item: Object, namespace: str = "default") -> Object:
        return self.api.post(f"/api/v1/namespaces/{namespace}/{item['kind'].lower()}s", item)

    @contextmanager
    def namespace(self) -> Iterator[str]:
        name = f"test-{secrets.token_hex(4)}"
        self.api.post("/api/v1/namespaces", {"metadata": {"name": name}})
        try:
            yield name
        finally:
            self.api.delete(f"/api/v1/namespaces/{name}")

    def wait_for(self, what: str, condition: Callable[[], Any], seconds: float = 120.0) -> Any:
        deadline = time.monotonic() + seconds
        while not (value := condition()):
            assert time.monotonic() < deadline, f"{what}: not within {seconds:.0f} s"
            time.sleep(0.05)
        return value
