"""Starts one run and watches it until it is ready; the bare container runtime is the smallest kind.

    with Containerd(version="1.6") as runtime:
        channel = grpc.insecure_channel(f"unix://{runtime.socket}")

The constructor returns when everything is ready, or raises ClusterError with the reason. The run lives as long as this
process, unless `detach` is called.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from . import binaries, builder, containerd, images, runs, sealed
from .daemons import ended_mark, log_tail
from .errors import ClusterError
from .inner import FAILED, READY
from .supervisor import DETACH

SBIN = ":/usr/sbin:/sbin"

NOTHING: dict[str, Any] = {
    "sealed": False,
    "containerd": None,
    "control_plane": False,
    "nodes": 0,
    "extenders": [],
    "audited": "",
    "binaries": {},
    "user_port": None,
    "inherit": [],
}


class Started:
    """A run: its folder, an outer supervisor (supervisor.py) and access to its namespaces if it is sealed."""

    def __init__(self, spec: dict[str, Any], say: Callable[[str], None] = lambda _: None) -> None:
        self.run = runs.create()
        self._say = say
        try:
            self._start_supervisor(NOTHING | {"link": str(self.run.link)} | spec)
            self._wait_until_ready()
        except BaseException:
            self.stop()
            raise

    @property
    def folder(self) -> Path:
        return self.run.folder

    def _start_supervisor(self, spec: dict[str, Any]) -> None:
        (self.folder / "spec.json").write_text(json.dumps(spec))
        python = {"PYTHONDONTWRITEBYTECODE": "1"}
        # `su` may leave root without the folders of ip, nft and mount on PATH.
        path = {"PATH": os.environ.get("PATH", "") + SBIN}
        with open(self.folder / "logs" / "supervisor.log", "ab") as log:
            self._supervisor = subprocess.Popen(
                [sys.executable, "-m", "harness.cluster.supervisor", str(self.run.link)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=os.environ | self.run.environment | python | path,
                start_new_session=True,
                pass_fds=spec["inherit"],
            )

    def _wait_until_ready(self, seconds: float = 420.0) -> None:
        deadline = time.monotonic() + seconds
        seen = 0
        while True:
            lines = self.steps()
            for at, text in lines[seen:]:
                if text == READY:
                    return
                if text.startswith(FAILED):
                    raise ClusterError(text.removeprefix(FAILED))
                self._say(f"{at:6.1f} s  {text}")
            seen = len(lines)
            if self._supervisor.poll() is not None:
                log = self.folder / "logs" / "supervisor.log"
                raise ClusterError(f"the cluster ended while it started:\n{log_tail(log)}")
            if time.monotonic() > deadline:
                raise ClusterError(f"the cluster was not ready within {seconds:.0f} s; it had reached: {lines[-1:]}")
            time.sleep(0.05)

    def steps(self) -> list[tuple[float, str]]:
        """The steps that the inner process has completed: seconds since its start, and the step."""
        file = self.folder / "progress"
        whole = file.read_text().rpartition("\n")[0] if file.exists() else ""
        return [(at, text) for at, text in map(json.loads, whole.splitlines())]

    @property
    def started_in(self) -> float:
        """Seconds from the inner process' first step to ready."""
        return self.steps()[-1][0]

    def enter(self, argv: list[str]) -> list[str]:
        """The command line that runs `argv` inside the namespaces (give absolute paths)."""
        pid = runs.init_pid(self.run)
        if pid is None:
            raise ClusterError(f"cluster {self.run.id} is not sealed, or has ended")
        return sealed.enter(pid, argv)

    def inside(self, *argv: str) -> str:
        """Run a program inside the namespaces and return what it prints."""
        done = subprocess.run(
            self.enter(list(argv)), capture_output=True, text=True, env=os.environ | self.run.environment
        )
        if done.returncode != 0:
            raise ClusterError(f"{' '.join(argv)}: {done.stderr.strip()}")
        return done.stdout

    @contextmanager
    def without(self, part: str) -> Iterator[None]:
        """Kill a component and keep it stopped; afterwards it is restarted, and may take a while to be ready."""
        pid = runs.process_of(self.run, part)
        if pid is None:
            raise ClusterError(f"no {part} runs in cluster {self.run.id}: {self.steps()[-1][1]}")
        held, ended = self.run.held / part, ended_mark(self.run.held, part)
        held.touch()
        try:
            os.kill(pid, signal.SIGKILL)
            while not ended.exists():  # until the inner process has reaped it
                if (last := self.steps()[-1][1]).startswith(FAILED):
                    raise ClusterError(last)
                time.sleep(0.01)
            yield
        finally:
            held.unlink()

    def detach(self) -> None:
        """Let the cluster continue when this process ends; `make cluster-down` ends it."""
        assert self._supervisor.stdin is not None
        self._supervisor.stdin.write(DETACH)
        self._supervisor.stdin.close()

    def stop(self) -> None:
        """End it and remove everything."""
        runs.sweep(self.run)
        if supervisor := getattr(self, "_supervisor", None):
            supervisor.wait()
            supervisor.stdin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Containerd(Started):
    """A real containerd with CRI, pause image and pod network, sealed in separate namespaces, without a kubelet.

    Needs root. Give pod sandboxes `cgroup_parent`, so that their cgroups are removed with the run.
    """

    pause_image = images.PAUSE
    busybox_image = images.BUSYBOX

    def __init__(self, version: str = "2", say: Callable[[str], None] = lambda _: None) -> None:
        built = builder.build(binaries.CONTAINERD) if version == "2" else containerd.system_binaries()
        self.ctr_binary = built["ctr"]
        self.version = version
        super().__init__({"sealed": True, "containerd": version, "binaries": built}, say)

    @property
    def socket(self) -> Path:
        """The runtime's socket, for containerd's own services and for CRI; visible on the host."""
        return self.folder / containerd.SOCKET

    @property
    def cgroup_parent(self) -> str:
        return f"/{self.run.cgroup}"

    def ctr(self, *argv: str) -> str:
        """containerd's own client, in the namespace that CRI uses."""
        return self.inside(self.ctr_binary, "-a", str(self.socket), "-n", "k8s.io", *argv)
