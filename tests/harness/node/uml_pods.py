"""Runs inside User-Mode Linux: pods of cgroup v2 with real controllers, read as the agent reads them.

Prints what was read; the judgement is the test's, outside. One processor and no PSI.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from carico.runtime.meter import PodMeter
from carico.runtime.pods import WorkloadPod
from carico.settings import TelemetrySettings
from carico.telemetry.pod_cgroup import CgroupStats
from carico.telemetry.sampler import Sampler

ROOT = Path("/sys/fs/cgroup")
MIB = 2**20
PATIENCE = 60.0  # s
TOUCH = """
import sys
held = bytearray(int(sys.argv[1]) << 20)
for i in range(0, len(held), 4096): held[i] = 1
print("ready", flush=True)
sys.stdin.readline()
"""
# Reads a file once: its pages are inactive page cache.
READ_FILE = """
import os, sys
path = "/var/tmp/carico-uml-%d" % os.getpid()
with open(path, "wb+") as file:
    os.unlink(path)
    file.write(bytes(int(sys.argv[1]) << 20))
    file.flush(); os.fsync(file.fileno()); file.seek(0)
    while file.read(1 << 20): pass
    print("ready", flush=True)
    sys.stdin.readline()
"""
BUSY = "while True: pass"
# Measures itself against the limits of its own groups. The instants are given, so that only counters decide.
OWN_LIMITS = """
import json, sys, threading, time
from carico.settings import TelemetrySettings
from carico.telemetry.sampler import Sampler
held = bytearray(b"x") * (int(sys.argv[1]) << 20)
def busy():
    while True: pass
for _ in range(2): threading.Thread(target=busy, daemon=True).start()
def counted():
    words = open(sys.argv[2] + "/cpu.stat").read().split()
    stat = dict(zip(words[::2], map(int, words[1::2])))
    return [stat["usage_usec"] / 1e6, stat["throttled_usec"] / 1e6]
sampler = Sampler(TelemetrySettings(own_limits=True))
around = [counted()]
sampler.read(0.0)
around.append(counted())
end = time.monotonic() + float(sys.argv[3])
while min(b - a for a, b in zip(around[1], counted())) < 0.5 and time.monotonic() < end: time.sleep(0.1)
around.append(counted())
sampler.read(100.0)
around.append(counted())
size = sampler.size()
print(json.dumps({"cores": size.cores, "bytes": size.memory_bytes, **sampler.raw, "counted": around}), flush=True)
"""


class Pod:
    """A group of a pod with one container, as a kubelet and a runtime make them."""

    def __init__(self, name: str, **limits: str) -> None:
        self.uid = name
        self.path = f"/kubepods/pod{name}"
        self.folder = ROOT / self.path.lstrip("/")
        self.container = self.folder / "container"
        self.folder.mkdir(parents=True)
        if "+memory" not in (ROOT / "kubepods/cgroup.subtree_control").read_text():
            (ROOT / "kubepods/cgroup.subtree_control").write_text("+cpu +memory")
        (self.folder / "cgroup.subtree_control").write_text("+cpu +memory")
        self.container.mkdir()
        self.limit(self.folder, **limits)
        self.processes: list[subprocess.Popen[bytes]] = []

    def limit(self, folder: Path, **limits: str) -> None:
        for name, value in limits.items():
            (folder / name.replace("_", ".")).write_text(value)

    def run(
        self, program: str, *arguments: str, wait: bool = True, flags: tuple[str, ...] = ("-S",)
    ) -> subprocess.Popen[bytes]:
        entering = f"open('{self.container}/cgroup.procs', 'w').write('0')\n"
        command = [sys.executable, *flags, "-c", entering + program, *arguments]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.processes.append(process)
        if wait:
            assert process.stdout is not None
            process.stdout.readline()
        return process

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()
        for folder in (self.container, self.folder):
            end = time.monotonic() + PATIENCE
            while folder.exists() and time.monotonic() < end:
                with contextlib.suppress(OSError):
                    folder.rmdir()

    def number(self, name: str) -> int:
        return int((self.folder / name).read_text())

    def events(self) -> dict[str, int]:
        return {words[0]: int(words[1]) for words in map(str.split, open(self.folder / "memory.events"))}


def read(stats: CgroupStats, pod: Pod) -> dict[str, float | None]:
    answer = stats.read(pod.uid, pod.path)
    assert answer is not None, pod.path
    return answer[1]._asdict()


def memory(stats: CgroupStats) -> dict[str, object]:
    """Touches memory, reads a file, and gives the memory back."""
    pod = Pod("memory")
    empty = read(stats, pod)
    touching = pod.run(TOUCH, "48")
    touched = read(stats, pod)
    pod.run(READ_FILE, "32")
    with_cache = read(stats, pod)
    current = pod.number("memory.current")
    touching.communicate(b"\n")
    given_back = read(stats, pod)
    peak = pod.number("memory.peak") if (pod.folder / "memory.peak").exists() else None
    pod.end()
    gone = stats.read(pod.uid, pod.path)
    return {
        "empty": empty,
        "touched": touched,
        "with_cache": with_cache,
        "current": current,
        "given_back": given_back,
        "peak": peak,
        "gone": gone,
    }


def out_of_memory(stats: CgroupStats) -> dict[str, object]:
    pod = Pod("oom", memory_max=str(40 * MIB))
    process = pod.run(TOUCH, "100", wait=False)
    with contextlib.suppress(BrokenPipeError):
        process.communicate(timeout=PATIENCE)
    after = read(stats, pod)
    result = {"status": process.returncode, "events": pod.events(), "after": after}
    pod.end()
    return result


def throttled(stats: CgroupStats, *, container: bool) -> dict[str, object]:
    """A busy process with a fifth of the processor: the limit is the pod's, or one container's alone."""
    pod = Pod("container" if container else "limited")
    pod.limit(pod.container if container else pod.folder, cpu_max="20000 100000")
    before = read(stats, pod)
    started = time.monotonic()
    pod.run(BUSY, wait=False)
    table = {pod.uid: WorkloadPod(pod.uid, None, started, True, pod.path)}
    meter = PodMeter(lambda: table, stats, lambda: 1.0, ("cpu", "memory"), 0.01)
    meter.measure(time.monotonic())
    end = time.monotonic() + PATIENCE
    while ((after := read(stats, pod))["throttled_seconds"] or 0.0) < 1.0 and time.monotonic() < end:
        time.sleep(0.1)
    measured = meter.measure(time.monotonic())[0]
    result = {"before": before, "after": after, "measured": measured, "throttled": meter.throttled}
    pod.end()
    return result


def busy(stats: CgroupStats, count: int) -> dict[str, object]:
    """Busy processes of one pod on one processor: the run queue shows their demand."""
    pod = Pod("busy")
    for _ in range(count):
        pod.run(BUSY, wait=False)
    sampler = Sampler(TelemetrySettings())
    table = {pod.uid: WorkloadPod(pod.uid, None, 0.0, True, pod.path)}
    meter = PodMeter(lambda: table, stats, sampler.stretch, ("cpu", "memory"), 0.01)
    time.sleep(1.0)
    meter.measure(time.monotonic())
    before = [delays(process.pid) for process in pod.processes]
    start = time.monotonic()
    for _ in range(30):
        time.sleep(0.1)
        sampler.read(time.monotonic())
    measured = meter.measure(time.monotonic())[0]
    after = [delays(process.pid) for process in pod.processes]
    pod.end()
    wanted = sum(sum(b) - sum(a) for a, b in zip(before, after, strict=True)) / (time.monotonic() - start)
    return {"measured": measured, "wanted": wanted}


def own_limits() -> dict[str, object]:
    """A process under limits of the group above its own, as `carico top` in a container of a limited pod."""
    pod = Pod("own", cpu_max="50000 100000", memory_max=str(160 * MIB))
    process = pod.run(OWN_LIMITS, "32", str(pod.folder), str(PATIENCE), wait=False, flags=())
    told, _ = process.communicate(timeout=2 * PATIENCE)
    pod.end()
    return dict(json.loads(told))


def delays(pid: int) -> tuple[float, float]:
    """s run and waited; nothing where the kernel does not report it."""
    try:
        run, waited, _ = Path(f"/proc/{pid}/schedstat").read_text().split()
    except OSError:
        return 0.0, 0.0
    return int(run) * 1e-9, int(waited) * 1e-9


def main() -> None:
    stats = CgroupStats(ROOT, time.monotonic, 16)
    result = {
        "kernel": os.uname().release,
        "memory": memory(stats),
        "oom": out_of_memory(stats),
        "limited": throttled(stats, container=False),
        "container": throttled(stats, container=True),
        "busy": busy(stats, 3),
        "own_limits": own_limits(),
    }
    print("carico-uml: " + json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
