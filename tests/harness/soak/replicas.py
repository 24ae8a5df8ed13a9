"""Two real `carico scheduler` processes, restarted when they end, as by a Deployment."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import msgspec
import psutil

from harness.cluster.cluster import Cluster
from harness.cluster.ports import free_port
from harness.soak.history import Memory
from harness.soak.recorder import Recorder

AGAIN_AFTER = 1.0  # s until one that exited is restarted
LOST_LEASE = "the lease was lost"
ERROR = re.compile(r"^[ |]*[\w.]*(Error|Exception)\b")
# The last decisions are kept in a ring; a small one is full long before memory is measured. Few slots for requests, so
# that a fault which occupied them would be noticed.
FLAGS = ("--plaintext", "--decisions", "1000", "--binders", "16")


@dataclass
class Replica:
    name: str
    kubeconfig: Path
    log: Path
    cluster: Cluster
    grpc_port: int = field(default_factory=free_port)
    page_port: int = field(default_factory=free_port)
    lives: int = 0
    killed: bool = False  # by the benchmark
    crashes: list[str] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None
    flags: tuple[str, ...] = FLAGS

    @property
    def identity(self) -> str:
        """A new one at every start, as in a cluster."""
        return f"{self.name}-{self.lives}"

    def start(self) -> None:
        self.lives += 1
        self.killed = False
        addresses = (
            "--grpc-listen",
            f"127.0.0.1:{self.grpc_port}",
            "--listen",
            "127.0.0.1:0",
            "--debug-listen",
            f"127.0.0.1:{self.page_port}",
        )
        words = ("scheduler", "--kubeconfig", str(self.kubeconfig), *addresses, "--identity", self.identity)
        # Marked as part of the cluster, so that it ends with the cluster.
        environment = os.environ | self.cluster.run.environment | {"OPENBLAS_NUM_THREADS": "1"}
        with self.log.open("ab") as log:
            command = [sys.executable, "-m", "carico.cli", *words, *self.flags]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    def kill(self) -> None:
        assert self.process is not None
        self.killed = True
        self.process.send_signal(signal.SIGKILL)

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    async def keep_running(self, start_again: asyncio.Event) -> None:
        """Until cancelled; while `start_again` is clear a killed one is not restarted."""
        try:
            while True:
                await asyncio.sleep(0.2)
                if self.alive:
                    continue
                if self.process is not None and not self.killed:
                    self._explain_end()
                    await asyncio.sleep(AGAIN_AFTER)
                await start_again.wait()
                self.start()
        finally:
            if self.process is not None:
                self.process.kill()
                self.process.wait()

    def _explain_end(self) -> None:
        """Record a crash; a leader that could not renew its Lease exits correctly."""
        assert self.process is not None
        end = self.log.read_text(errors="replace")[-6000:].splitlines()
        if not any(LOST_LEASE in line for line in end[-3:]):
            why = next((line for line in reversed(end) if ERROR.search(line)), "no error in its log").strip(" |")
            self.crashes.append(f"{self.identity} ended with code {self.process.returncode}: {why[:200]}")

    async def page(self, path: str) -> Any:
        """A page of JSON; None if there is no response."""
        return await asyncio.to_thread(self._page, path)

    def _page(self, path: str) -> Any:
        try:
            with urlopen(f"http://127.0.0.1:{self.page_port}{path}", timeout=10) as answer:
                return msgspec.json.decode(answer.read())
        except (URLError, OSError, msgspec.DecodeError):
            return None

    def note_memory(self, recorder: Recorder) -> None:
        if self.alive:
            assert self.process is not None
            try:
                mb = psutil.Process(self.process.pid).memory_info().rss / 1e6
            except psutil.Error:
                return
            recorder.note(Memory(at=time.monotonic(), process=self.identity, mb=mb))
