"""Files of the kernel, such as those in /proc.

A file is opened once and read with a single `pread` at offset 0: half the cost of opening it each time, and the kernel
generates the whole text in that call, so that all its numbers are of the same time.

That holds for files with a single record: stat, meminfo, pressure. Files with a line per item (mounts, disks,
interfaces, routes) return at most a page per call whatever the requested size, so these are read until the end
(`pages`).
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from carico.errors import SourceError, SourceMissing

# Errors where a file exists but its feature is disabled or not supported.
SWITCHED_OFF = frozenset({errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL})


class KernelFile:
    """One file that remains open. A failed read closes it, so that the next one opens it again."""

    def __init__(self, path: Path, size: int = 4096, *, pages: bool = False) -> None:
        self.path = path
        self._pages = pages
        self._size = size  # bytes to request; grows until the whole text fits
        self._fd = -1

    def read(self) -> bytes:
        try:
            if self._fd < 0:
                self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            text = os.pread(self._fd, self._size, 0)
            while len(text) == self._size:
                self._size *= 2
                text = os.pread(self._fd, self._size, 0)
            while self._pages and (more := os.pread(self._fd, self._size, len(text))):
                text += more
        except OSError as error:
            self.close()
            raise self._problem(error) from error
        return text

    def _problem(self, error: OSError) -> SourceError:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return SourceMissing(f"{self.path} does not exist")
        if error.errno in SWITCHED_OFF:
            return SourceMissing(f"{self.path} is switched off in this kernel")
        return SourceError(f"{self.path}: {error.strerror}")

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        self.close()


def read_once(path: Path) -> bytes:
    """Reads a file without keeping it open."""
    file = KernelFile(path, pages=True)
    try:
        return file.read()
    finally:
        file.close()
