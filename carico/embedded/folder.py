"""A temporary folder that exists as long as this process.

Its creator holds a lock on it, which the kernel releases however that process ends. So the next process can find
unused folders and remove them. The lock file gets its name only once the lock is held: a folder without that file is
still being created and is left alone.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = "carico-demo-"
LOCK = "lock"


@contextmanager
def own_folder(prefix: str = PREFIX) -> Iterator[Path]:
    remove_unused(prefix)
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    lock = _lock(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _lock(folder: Path) -> int:
    """Lock the folder; returns the descriptor that holds the lock."""
    unnamed = folder / f".{LOCK}"
    lock = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    unnamed.rename(folder / LOCK)
    return lock


def remove_unused(prefix: str = PREFIX) -> None:
    """Remove folders of this user that no process has locked."""
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        try:
            if not is_own_folder(folder):
                continue
            lock = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue  # removed, or just created and not locked yet
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:
            pass
        finally:
            os.close(lock)


def is_own_folder(path: Path) -> bool:
    """Whether it is a folder of this user; a symbolic link is not."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
