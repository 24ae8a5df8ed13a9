"""The folder of a cluster: kubeconfig, logs, sockets, and a lock that its supervisor holds as long as it lives.

The kernel releases the lock however the supervisor ends, so a process number that was reused is never mistaken for it.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from carico.errors import CaricoError, UsageError

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
LONGEST_SOCKET = 107  # bytes in the path of a unix socket
TRIES = 20  # to take a lock that another process may hold only briefly to test it
PAUSE = 0.05  # s


def base(environ: Mapping[str, str] = os.environ) -> Path:
    return Path(environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "carico" / "clusters"


def every() -> list[ClusterFolder]:
    try:
        return [ClusterFolder(folder) for folder in sorted(base().iterdir()) if folder.is_dir()]
    except OSError:
        return []


def named(name: str) -> ClusterFolder:
    if not NAME.fullmatch(name):
        raise UsageError(f"{name!r} cannot be a cluster's name: use lower-case letters, digits and dashes, at most 40")
    return ClusterFolder(base() / name)


class ClusterFolder:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = folder.name
        self.kubeconfig = folder / "kubeconfig"
        self.log = folder / "log"
        self._lock = folder / "lock"
        self._state = folder / "state.json"

    @property
    def exists(self) -> bool:
        return self._lock.exists()

    def make(self) -> int:
        """Create an empty folder and lock it; returns the descriptor that holds the lock."""
        if len(os.fsencode(self.folder / "cri.sock")) > LONGEST_SOCKET:
            raise UsageError(f"{self.folder}: too long a path for sockets; set XDG_STATE_HOME to a shorter one")
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise CaricoError(f"{error.filename}: {error.strerror}; set XDG_STATE_HOME to another place") from error
        if not _locked(lock):
            os.close(lock)
            raise CaricoError(f"cluster {self.name!r} already exists; `carico cluster delete {self.name}` deletes it")
        for left in self.folder.iterdir():
            if left != self._lock:
                shutil.rmtree(left) if left.is_dir() else left.unlink()
        return lock

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def supervisor(self) -> int | None:
        """Its process number, while it lives; otherwise None."""
        try:
            file = os.open(self._lock, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return int(os.read(file, 32) or 0) or None
        else:
            return None
        finally:
            os.close(file)

    def write_state(self, state: Mapping[str, Any]) -> None:
        """Write the supervisor's state, once everything runs."""
        new = self._state.with_name("state.new")
        new.write_text(json.dumps(state))
        new.replace(self._state)

    def read_state(self) -> dict[str, Any] | None:
        """The state that the supervisor wrote; None until everything runs."""
        try:
            return dict(json.loads(self._state.read_text()))
        except (OSError, ValueError):
            return None


def _locked(file: int) -> bool:
    for _ in range(TRIES):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(PAUSE)
    return False
