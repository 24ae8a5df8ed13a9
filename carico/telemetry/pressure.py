"""/proc/pressure/{cpu,memory,io}: the share of time in which some task waited for a resource (PSI).

    some avg10=0.12 avg60=0.05 avg300=0.01 total=386808213       total in µs
    full …

`avg10` is updated only every 2 s; `total` is exact at every read, so usage is Δtotal / Δt with the measured Δt.
A kernel may lack PSI (no such file) or have it disabled (the read fails with EOPNOTSUPP): both are SourceMissing.
See https://docs.kernel.org/accounting/psi.html.
"""

from __future__ import annotations

from pathlib import Path

from carico.errors import SourceError
from carico.telemetry.procfs import KernelFile
from carico.telemetry.source import clamped, counter, rate

MICROSECOND = 1e-6


def parse_total(text: bytes) -> int:
    """µs since boot in which at least one task waited.

    >>> parse_total(b"some avg10=0.00 avg60=0.00 avg300=0.00 total=42\\nfull avg10=0.00")
    42
    """
    line = text.split(b"\n", 1)[0]
    at = line.rfind(b"total=")
    if at < 0 or not line.startswith(b"some "):
        raise SourceError(f"pressure has {line[:80]!r} instead of some … total=")
    return counter(line[at + 6 :].strip(), "pressure total")


class Pressure:
    """The source of one resource's pressure."""

    def __init__(self, proc: Path, resource: str) -> None:
        self.name = f"pressure_{resource}"
        self._file = KernelFile(proc / "pressure" / resource, size=512)
        self.fetch = self._file.read
        self._before: tuple[float, int] | None = None

    def usage(self, fetched: bytes, now: float) -> float | None:
        before, self._before = self._before, None  # after invalid text there is no previous value
        total = parse_total(fetched)
        self._before = (now, total)
        waited = rate(before, now, total)
        return None if waited is None else clamped(waited * MICROSECOND)
