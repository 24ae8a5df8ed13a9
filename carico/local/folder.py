"""A folder for as long as this process lives.

It is locked by whoever made it, and the kernel gives the lock up however that process ends. So the next one can tell
which folders nobody uses any more, and removes them. The lock gets its name only when it is held: a folder without one
is being made, and left alone.
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
def own_folder() -> Iterator[Path]:
    remove_unused()
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    lock = _lock(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _lock(folder: Path) -> int:
    """The descriptor that holds it."""
    unnamed = folder / f".{LOCK}"
    lock = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    unnamed.rename(folder / LOCK)
    return lock


def remove_unused() -> None:
    """Folders of this user that nobody holds a lock on."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        try:
            if not is_own_folder(folder):
                continue
            lock = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue  # gone, or made a moment ago and not locked yet
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:
            pass
        finally:
            os.close(lock)


def is_own_folder(path: Path) -> bool:
    """A folder of this user; a link to one is not, wherever it leads."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
