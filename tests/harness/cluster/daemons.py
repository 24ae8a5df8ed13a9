"""The long-running components of one cluster, children of its inner process.

Each writes to `logs/<name>.log` and ends with its parent. In a sealed cluster the inner process is process 1 and also
inherits the orphans of the container runtime, so all waiting goes through one `reap`.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from .errors import ClusterError

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def die_with_parent() -> None:
    """Between fork and exec: the kernel sends SIGKILL when the parent ends (PR_SET_PDEATHSIG)."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def log_tail(log: Path, lines: int = 15) -> str:
    """The end of a log, indented, for an error message."""
    try:
        text = log.read_text(errors="replace")
    except OSError as error:
        return f"    ({error})"
    return "\n".join(f"    {line[:400]}" for line in text.splitlines()[-lines:])


def ended_mark(held: Path, name: str) -> Path:
    """The file that exists while a held component has ended and was not restarted."""
    return held / f"{name}.ended"


class Daemons:
    """Starts components, detects their end, waits for conditions.

    A component whose name is in the folder `held` may end. Then its name with `.ended` stands there too, until it is
    restarted; that happens when the name is removed. Wait for `.ended` before removing it: a component that
    ends while its name is not there is a failure of the cluster.
    """

    def __init__(self, logs: Path, held: Path) -> None:
        self._logs, self._held = logs, held
        self._names: dict[int, str] = {}
        self._commands: dict[str, tuple[list[str], dict[str, str] | None, tuple[int, ...]]] = {}
        self._away: set[str] = set()
        self._children: list[subprocess.Popen[bytes]] = []

    def start(
        self, name: str, argv: list[str], environment: dict[str, str] | None = None, pass_fds: tuple[int, ...] = ()
    ) -> None:
        """Start a component; from now on its end is an error."""
        with open(self._logs / f"{name}.log", "ab") as log:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | (environment or {}),
                preexec_fn=die_with_parent,
                pass_fds=pass_fds,
            )
        self._names[child.pid] = name
        self._commands[name] = (argv, environment, pass_fds)
        self._children.append(child)  # kept, so that no finaliser warns about a child that still runs

    def reap(self) -> None:
        """Reap ended children; raise if one of them was a component."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            name = self._names.pop(pid, None)
            if name and (self._held / name).exists():
                self._away.add(name)
                ended_mark(self._held, name).touch()
            elif name:
                log = self._logs / f"{name}.log"
                code = os.waitstatus_to_exitcode(status)
                raise ClusterError(f"{name} ended with code {code}; the end of {log}:\n{log_tail(log)}")

    def revive(self) -> None:
        """Restart components that are no longer held."""
        for name in [name for name in self._away if not (self._held / name).exists()]:
            self._away.discard(name)
            self.start(name, *self._commands[name])
            ended_mark(self._held, name).unlink(missing_ok=True)

    def wait_for(self, what: str, ready: Callable[[], bool], seconds: float = 120.0, log: str | None = None) -> None:
        """Poll until `ready`; raise early if a component ends."""
        deadline = time.monotonic() + seconds
        while True:
            self.reap()
            began = time.monotonic()
            try:
                if ready():
                    return
            except OSError:
                pass  # not listening yet
            if time.monotonic() > deadline:
                tail = f"; the end of its log:\n{log_tail(self._logs / f'{log}.log')}" if log else ""
                raise ClusterError(f"{what} was not ready within {seconds:.0f} s{tail}")
            # A check that is itself expensive (1,000 nodes listed) must not slow down what it waits for.
            time.sleep(max(0.05, 3 * (time.monotonic() - began)))
