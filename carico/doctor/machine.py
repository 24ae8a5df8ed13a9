"""The machine: what the agent reads from its kernel."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from carico.doctor.finding import Finding, ok, problem
from carico.errors import SourceError
from carico.settings import AgentSettings
from carico.telemetry.cgroup import find_place
from carico.telemetry.limits import cpu_quota, find_limits, memory_limit
from carico.telemetry.pressure import parse_total

GIB = float(1 << 30)
FIRST_WITH_PSI = (4, 20)
SLOW_CLOCKS = ("jiffies", "acpi_pm", "hpet", "refined-jiffies")  # a read of these costs a microsecond and more
CLOCK_SOURCE = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")


def look(settings: AgentSettings) -> list[Finding]:
    return [
        kernel(platform.release()),
        cores(),
        counters(settings.proc_root),
        pressure(settings.proc_root),
        cgroup(settings.proc_root, settings.cgroup_root),
        clock_source(CLOCK_SOURCE),
    ]


def kernel(release: str) -> Finding:
    """
    >>> kernel("6.1.0-13-amd64").state, kernel("4.15.0").state
    ('ok', 'warning')
    """
    numbers = tuple(int(word) for word in release.split("-")[0].split(".")[:2] if word.isdigit())
    if numbers < FIRST_WITH_PSI:
        return problem("kernel", release, "4.20 is the first kernel that measures pressure (PSI)", needed=False)
    return ok("kernel", release)


def cores() -> Finding:
    usable = len(os.sched_getaffinity(0))
    machine = os.cpu_count() or usable
    return ok("cores", f"{machine}" if usable == machine else f"{machine}, of which this process may use {usable}")


def counters(proc: Path) -> Finding:
    try:
        for name in ("stat", "meminfo"):
            (proc / name).read_bytes()
    except OSError as error:
        return problem(
            "counters",
            f"{error.filename}: {error.strerror}",
            "mount the host's /proc and name it with --proc-root",
            needed=True,
        )
    return ok("counters", f"{proc}/stat and {proc}/meminfo can be read")


def pressure(proc: Path) -> Finding:
    instead = "until then cpu comes from utilisation and the run queue"
    try:
        for resource in ("cpu", "memory", "io"):
            parse_total((proc / "pressure" / resource).read_bytes())
    except FileNotFoundError:
        return problem("pressure", "this kernel has no PSI", f"use a kernel with CONFIG_PSI=y; {instead}", needed=False)
    except OSError:
        return problem("pressure", "PSI is switched off", f"boot with psi=1; {instead}", needed=False)
    except SourceError as error:
        return problem("pressure", str(error), f"report this kernel to Carico; {instead}", needed=False)
    return ok("pressure", "PSI of cpu, memory and io")


def cgroup(proc: Path, root: Path) -> Finding:
    try:
        version = find_place(proc, root, "cpu").version
    except (SourceError, OSError) as error:
        return problem(
            "cgroup", str(error), "mount the host's cgroup tree and name it with --cgroup-root", needed=False
        )
    quotas = find_limits(proc, root, "cpu", cpu_quota, float(os.cpu_count() or 1))
    limits = find_limits(proc, root, "memory", memory_limit, _memory(proc))
    limited_to = [f"{min(limit.amount for limit in quotas):g} cores"] if quotas else []
    limited_to += [f"{min(limit.amount for limit in limits) / GIB:.1f} GiB"] if limits else []
    return ok(
        "cgroup",
        f"version {version}, "
        + (f"this process is limited to {' and '.join(limited_to)}" if limited_to else "no limits"),
    )


def _memory(proc: Path) -> float:
    """Bytes of the machine; without a number every limit counts."""
    try:
        words = (proc / "meminfo").read_text().split()
        return float(words[words.index("MemTotal:") + 1]) * 1024
    except (OSError, ValueError, IndexError):
        return float("inf")


def clock_source(file: Path) -> Finding:
    try:
        source = file.read_text().strip()
    except OSError:
        return ok("clock", "the kernel does not say where it takes the time from")
    if source in SLOW_CLOCKS:
        return problem(
            "clock",
            f"clock source {source}, which is slow to read",
            "boot with clocksource=tsc if the machine has it",
            needed=False,
        )
    return ok("clock", f"clock source {source}")
