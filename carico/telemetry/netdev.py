"""/proc/net/dev: bytes per second on a network link, as a share of its capacity.

      eth0: 1533684080   72355    0 …      5103565   49517 …
            received: bytes, seven more    sent: bytes, seven more

Links are full duplex, so the direction with more traffic counts. The capacity of the path behind the link is not
available from the kernel: `network_bytes_per_second` sets it. Interfaces are those of process 1, because in a mounted
/proc of the host `net` is the network namespace of the reader.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from carico.errors import SourceError, SourceMissing
from carico.telemetry.procfs import KernelFile, read_once
from carico.telemetry.source import clamped, counter, rate

RECEIVED, SENT = 0, 8  # positions after the colon
NOWHERE6 = b"0" * 32  # the IPv6 address ::


class Traffic(NamedTuple):
    """Bytes since the interface came up."""

    received: int
    sent: int


def parse_traffic(text: bytes, device: str) -> Traffic:
    for line in text.splitlines():
        name, colon, rest = line.partition(b":")
        if colon and name.strip() == device.encode():
            words = rest.split()
            if len(words) <= SENT:
                raise SourceError(f"/proc/net/dev: {line[:80]!r} is too short")
            return Traffic(*(counter(words[i], "/proc/net/dev bytes") for i in (RECEIVED, SENT)))
    raise SourceMissing(f"no network interface {device!r} here; set network_device to one of /proc/net/dev")


def default_device(routes: bytes, routes6: bytes) -> str:
    """The interface of the default route, from /proc/net/route and /proc/net/ipv6_route."""
    for line in routes.splitlines()[1:]:
        words = line.split()
        if len(words) > 7 and words[1] == words[7] == b"00000000":
            return words[0].decode("latin-1")
    for line in routes6.splitlines():
        words = line.split()
        if len(words) > 9 and words[0] == NOWHERE6 and words[1] == b"00" and words[9] != b"lo":
            return words[9].decode("latin-1")
    raise SourceMissing("there is no default route; set network_device to an interface of /proc/net/dev")


def _network_of(proc: Path) -> Path:
    return proc / "1" / "net" if (proc / "1" / "net" / "dev").exists() else proc / "net"


def _text(path: Path) -> bytes:
    try:
        return read_once(path)
    except SourceMissing:
        return b""  # a kernel without this protocol does not have the file


class Network:
    """The source of the network dimension; an empty `device` selects the one with the default route."""

    name = "netdev"

    def __init__(self, proc: Path, device: str, bytes_per_second: float) -> None:
        self._net = _network_of(proc)
        self._file = KernelFile(self._net / "dev", pages=True)
        self._device = device
        self._full = bytes_per_second
        self._before: tuple[float, Traffic] | None = None

    def fetch(self) -> bytes:
        return self._file.read()

    def usage(self, fetched: bytes, now: float) -> float | None:
        before, self._before = self._before, None
        if not self._device:
            self._device = default_device(_text(self._net / "route"), _text(self._net / "ipv6_route"))
        traffic = parse_traffic(fetched, self._device)
        self._before = (now, traffic)
        if before is None:
            return None
        rates = [rate((before[0], old), now, new) for old, new in zip(before[1], traffic, strict=True)]
        known = [r for r in rates if r is not None]
        return clamped(max(known) / self._full) if len(known) == len(rates) else None
