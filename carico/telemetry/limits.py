"""Cpu and memory against the cgroup limits of this process, for `carico top` in a container.

/proc/stat and /proc/meminfo show the machine without limits. Several cgroups may have one (the container, its pod, its
slice): the one with the highest usage counts.

    cpu      time used / (quota · Δt)
    pressure time in which the cgroup was throttled / (quota · Δt): n busy tasks with a quota of q cores, one per core,
             give (n − q)/q, the same as pressure on a machine of q cores
    memory   (used − inactive file cache) / limit: the cache is reclaimed before the OOM killer runs

Files: https://docs.kernel.org/admin-guide/cgroup-v2.html, https://docs.kernel.org/admin-guide/cgroup-v1/memory.html.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from carico.errors import SourceError, SourceMissing
from carico.telemetry.cgroup import find_place
from carico.telemetry.procfs import read_once
from carico.telemetry.source import clamped, counter, rate

log = logging.getLogger(__name__)

SECONDS = {"usage_usec": 1e-6, "throttled_usec": 1e-6, "throttled_time": 1e-9, "cpuacct.usage": 1e-9}


class Limit(NamedTuple):
    """A cgroup with a limit, in cores or bytes."""

    folder: Path
    version: int
    amount: float


def value_of(text: bytes, key: str) -> int:
    """The number of `key` in `key number` lines.

    >>> value_of(b"nr_periods 3\\nthrottled_time 17\\n", "throttled_time")
    17
    """
    for line in text.splitlines():
        words = line.split()
        if len(words) == 2 and words[0] == key.encode():
            return counter(words[1], key)
    raise SourceError(f"the cgroup's statistics have no {key}")


def parse_quota(text: bytes) -> float | None:
    """Cores from `quota period`, as in v2's cpu.max; v1's -1 and v2's max mean no limit.

    >>> parse_quota(b"50000 100000"), parse_quota(b"max 100000"), parse_quota(b"-1 100000")
    (0.5, None, None)
    """
    words = text.split()
    if len(words) != 2:
        raise SourceError(f"cpu quota is {text[:40]!r} instead of quota and period")
    if words[0] in (b"max", b"-1"):
        return None
    quota, period = (counter(word, "cpu quota") for word in words)
    return quota / period if quota and period else None


def cpu_quota(folder: Path, version: int) -> float | None:
    """Cores that a cgroup may use; None without a limit."""
    if version == 2:
        return parse_quota(read_once(folder / "cpu.max"))
    parts = [read_once(folder / f"cpu.cfs_{part}_us").strip() for part in ("quota", "period")]
    return parse_quota(b" ".join(parts))


def memory_limit(folder: Path, version: int) -> float | None:
    """Bytes that a cgroup may use; None without a limit. v1 shows "no limit" as a number near 2^63."""
    text = read_once(folder / ("memory.max" if version == 2 else "memory.limit_in_bytes")).strip()
    return None if text == b"max" else counter(text, "memory limit")


def memory_used(folder: Path, version: int) -> int:
    """Bytes in use without inactive file cache, which can be reclaimed."""
    names = ("memory.current", "inactive_file") if version == 2 else ("memory.usage_in_bytes", "total_inactive_file")
    used = counter(read_once(folder / names[0]).strip(), names[0])
    return max(0, used - value_of(read_once(folder / "memory.stat"), names[1]))


def find_limits(
    proc: Path, cgroup_root: Path, controller: str, limit: Callable[[Path, int], float | None], machine: float
) -> tuple[Limit, ...]:
    """The cgroups of this process whose limit is less than the machine's amount."""
    try:
        place = find_place(proc, cgroup_root, controller)
    except SourceError as error:
        level = logging.DEBUG if isinstance(error, SourceMissing) else logging.WARNING
        log.log(level, "no limits of %s: %s", controller, error)
        return ()
    found = [(folder, _amount(limit, folder, place.version)) for folder in place.folders]
    return tuple(
        Limit(folder, place.version, amount) for folder, amount in found if amount is not None and 0 < amount < machine
    )


def _amount(limit: Callable[[Path, int], float | None], folder: Path, version: int) -> float | None:
    try:
        return limit(folder, version)
    except SourceError:
        return None  # the root cgroup has no files with limits, and an unreadable limit is ignored


class LimitedMemory:
    """The source of memory under limits."""

    name = "cgroup_memory"

    def __init__(self, limits: tuple[Limit, ...]) -> None:
        self._limits = limits

    def fetch(self) -> list[int]:
        return [memory_used(limit.folder, limit.version) for limit in self._limits]

    def usage(self, fetched: list[int], now: float) -> float | None:  # noqa: ARG002  a level, not a counter
        return clamped(max(used / limit.amount for used, limit in zip(fetched, self._limits, strict=True)))


class LimitedCpu:
    """The source of cpu time, or of throttled time, under quotas."""

    def __init__(self, limits: tuple[Limit, ...], what: str) -> None:
        self.name = f"cgroup_{what}"
        self._limits = limits
        self._read = _read_usage if what == "cpu" else _read_throttled
        self._before: dict[Path, tuple[float, int]] = {}

    def fetch(self) -> list[tuple[int, float]]:
        return [self._read(limit) for limit in self._limits]

    def usage(self, fetched: list[tuple[int, float]], now: float) -> float | None:
        ratios = [self._ratio(limit, *counted, now) for limit, counted in zip(self._limits, fetched, strict=True)]
        known = [ratio for ratio in ratios if ratio is not None]
        return clamped(max(known)) if len(known) == len(ratios) else None

    def _ratio(self, limit: Limit, count: int, seconds: float, now: float) -> float | None:
        before = self._before.get(limit.folder)
        self._before[limit.folder] = (now, count)
        grown = rate(before, now, count)
        return None if grown is None else grown * seconds / limit.amount


def _read_usage(limit: Limit) -> tuple[int, float]:
    """A counter of cpu time and its unit in seconds. In v1 it belongs to cpuacct, mounted with `cpu` or separately."""
    if limit.version == 2:
        return value_of(read_once(limit.folder / "cpu.stat"), "usage_usec"), SECONDS["usage_usec"]
    return counter(read_once(usage_file(limit.folder)).strip(), "cpuacct.usage"), SECONDS["cpuacct.usage"]


def usage_file(folder: Path) -> Path:
    """v1's file with the cpu time of a cgroup.

    >>> str(usage_file(Path("/sys/fs/cgroup/cpu/docker/abc")))
    '/sys/fs/cgroup/cpuacct/docker/abc/cpuacct.usage'
    """
    own = folder / "cpuacct.usage"
    if own.exists():
        return own
    at = next((i for i, part in enumerate(folder.parts) if part == "cpu"), None)
    return own if at is None else Path(*folder.parts[:at], "cpuacct", *folder.parts[at + 1 :], "cpuacct.usage")


def _read_throttled(limit: Limit) -> tuple[int, float]:
    key = "throttled_usec" if limit.version == 2 else "throttled_time"
    return value_of(read_once(limit.folder / "cpu.stat"), key), SECONDS[key]
