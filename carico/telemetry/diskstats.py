"""/proc/diskstats: the share of time in which a disk was busy (https://docs.kernel.org/admin-guide/iostats.html).

     254  0 vda 235995 36539 8528650 134220 58272 290394 30809376 134202 0 65720 272586 …
     ↑ major, minor, name, then eleven counters or more; the tenth is ms with at least one request in progress

A disk that serves requests in parallel can be 100 % busy and still accept more: this dimension is off by default.
"""

from __future__ import annotations

from pathlib import Path

from carico.errors import SourceError, SourceMissing
from carico.telemetry.procfs import KernelFile
from carico.telemetry.source import clamped, counter, rate

NAME, BUSY = 2, 12  # positions in the line
MILLISECOND = 1e-3
# Devices in memory, or backed by a file on another disk: their I/O is not a disk's, or would count twice.
NO_DISKS = (b"loop", b"ram", b"zram", b"sr", b"fd")


def parse_busy(text: bytes) -> dict[str, int]:
    """Busy ms since boot, by disk and partition."""
    busy: dict[str, int] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) <= NAME:
            raise SourceError(f"/proc/diskstats: {line[:80]!r} has no device name or too few counters")
        if len(words) > BUSY and not words[NAME].startswith(NO_DISKS):
            busy[words[NAME].decode("latin-1")] = counter(words[BUSY], "/proc/diskstats busy time")
    return busy


class Disk:
    """The source of the disk dimension: one device, or the busiest of all when `device` is empty."""

    name = "diskstats"

    def __init__(self, proc: Path, device: str) -> None:
        self._file = KernelFile(proc / "diskstats", pages=True)
        self._device = device
        self._before: dict[str, tuple[float, int]] = {}

    def fetch(self) -> bytes:
        return self._file.read()

    def usage(self, fetched: bytes, now: float) -> float | None:
        before, self._before = self._before, {}
        busy = self._wanted(parse_busy(fetched))
        self._before = {name: (now, value) for name, value in busy.items()}
        rates = [r for name, value in busy.items() if (r := rate(before.get(name), now, value)) is not None]
        return clamped(max(rates) * MILLISECOND) if rates else None

    def _wanted(self, busy: dict[str, int]) -> dict[str, int]:
        if not self._device and busy:
            return busy
        if self._device in busy:
            return {self._device: busy[self._device]}
        known = ", ".join(sorted(busy)) or "none"
        raise SourceMissing(f"no disk {self._device!r} here; disk_device can be one of: {known}")
