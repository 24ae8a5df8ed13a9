"""/proc/meminfo: how much memory is used (https://docs.kernel.org/filesystems/proc.html).

`available` is MemAvailable, the kernel's estimate of what can be allocated without swapping. `free` is MemFree +
Buffers + Cached, as in the report; it includes tmpfs, which cannot be reclaimed. Kernels before 3.14 have no
MemAvailable: there `free` is used.
"""

from __future__ import annotations

import logging
from pathlib import Path

from carico.errors import SourceError
from carico.telemetry.procfs import KernelFile
from carico.telemetry.source import clamped, counter

log = logging.getLogger(__name__)

KIBIBYTE = 1024  # bytes
FREE = (b"MemFree:", b"Buffers:", b"Cached:")


def field(text: bytes, name: bytes) -> int | None:
    """A field in KiB; None if this kernel does not have it.

    >>> field(b"MemTotal:  100 kB\\nSwapCached:  1 kB\\nCached:  7 kB\\n", b"Cached:")
    7
    """
    at = 0 if text.startswith(name) else text.find(b"\n" + name) + 1
    if at == 0 and not text.startswith(name):
        return None
    words = text[at + len(name) : at + len(name) + 64].split(None, 1)
    return counter(words[0] if words else b"", f"/proc/meminfo {name.decode()}")


def total(text: bytes) -> int:
    """Memory of the machine in KiB."""
    size = field(text, b"MemTotal:")
    if not size:
        raise SourceError(f"/proc/meminfo has no MemTotal above 0: {text[:40]!r}")
    return size


def used_by_available(text: bytes) -> float | None:
    """Share of memory that is not available; None where the kernel has no MemAvailable."""
    available = field(text, b"MemAvailable:")
    return None if available is None else clamped(1 - available / total(text))


def used_by_free(text: bytes) -> float:
    """Share of memory that is neither free nor buffer nor cache."""
    parts = [field(text, name) for name in FREE]
    if parts[0] is None:
        raise SourceError("/proc/meminfo has neither MemAvailable nor MemFree")
    return clamped(1 - sum(part or 0 for part in parts) / total(text))


class MemorySource:
    """The source of memory usage. `form` is `available` or `free`."""

    name = "meminfo"

    def __init__(self, proc: Path, form: str) -> None:
        self._file = KernelFile(proc / "meminfo")
        self.fetch = self._file.read
        self._form = form

    def usage(self, fetched: bytes, now: float) -> float | None:  # noqa: ARG002  a level, not a counter
        if self._form == "available":
            used = used_by_available(fetched)
            return self._without_available(fetched) if used is None else used
        return used_by_free(fetched)

    def _without_available(self, text: bytes) -> float:
        used = used_by_free(text)  # raises on invalid text, which does not indicate an old kernel
        log.warning("%s has no MemAvailable: memory is counted from free, buffers and cached", self._file.path)
        self._form = "free"
        return used

    def size(self) -> int:
        """Bytes of the machine."""
        return total(self._file.read()) * KIBIBYTE
