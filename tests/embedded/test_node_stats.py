"""The embedded node serves what its pods use, from their processes, and the agent's own client reads it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from carico.clock import SystemClock
from carico.embedded.node.usage import PodUsage, Usage, tree
from carico.errors import UsageError
from carico.pod_class import class_of
from carico.recording.format import load
from carico.runtime.cri import cri
from carico.runtime.cri_stats import CriStats
from carico.runtime.pods import PodTable
from carico.settings import RuntimeSettings
from carico.types import MeasuredPod, PodCounters
from harness.embedded.node_place import Place, play, until

MB = 1e6
HOLDS = "held = b'x' * 60_000_000\nwhile True: pass"
FORKS = """
import os, signal
held = bytearray(b"x") * 40_000_000
if os.fork() == 0:
    signal.pause()
signal.pause()
"""


@contextmanager
def running(script: str) -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", script], start_new_session=True)
    try:
        yield process.pid
    finally:
        os.killpg(process.pid, 9)
        process.wait()


def look_until(account: PodUsage, pids: list[int], holds: Callable[[Usage], bool]) -> Usage:
    while not holds(usage := account.look(pids)):
        time.sleep(0.01)
    return usage


def test_processor_time_and_memory_of_a_busy_process() -> None:
    account = PodUsage()
    with running(HOLDS) as pid:
        first = look_until(account, [pid], lambda usage: usage.memory > 60 * MB)
        later = look_until(account, [pid], lambda usage: usage.cpu > first.cpu + 0.3)
        assert later.memory < 100 * MB
        assert later.waited >= first.waited
    ended = account.look([])
    assert ended.cpu >= later.cpu  # what it had used stays used
    assert ended.memory == 0
    with running(HOLDS) as pid:  # its container started again
        assert account.look([pid]).cpu >= ended.cpu


def test_children_are_of_the_pod_and_pages_that_they_share_count_once() -> None:
    account = PodUsage()
    with running(FORKS) as pid:
        while len(tree(pid)) < 2:
            time.sleep(0.01)
        usage = account.look([pid])
    assert 40 * MB < usage.memory < 75 * MB


def test_waiting_is_that_of_all_threads() -> None:
    """Two busy processes on one processor wait for each other half of the time."""
    cpu = min(os.sched_getaffinity(0))
    script = f"import os\nos.sched_setaffinity(0, [{cpu}])\nos.fork()\nwhile True: pass"
    account = PodUsage()
    with running(script) as pid:
        look_until(account, [pid], lambda _: len(tree(pid)) == 2)
        first = account.look([pid])
        later = look_until(account, [pid], lambda usage: usage.cpu > first.cpu + 0.5)
    # Whatever else runs on this machine can only make them wait longer.
    assert later.waited - first.waited > 0.5 * (later.cpu - first.cpu)


def test_the_agents_client_reads_what_the_node_serves(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        table = PodTable(RuntimeSettings())
        source = cri(place.socket, table, SystemClock())
        stats = CriStats(lambda: place.socket, SystemClock())
        tasks = [asyncio.create_task(part) for part in (source.run(), stats.run())]
        limits = {"resources": {"limits": {"memory": "200M"}}, "image": "tool:1"}
        made = await place.pod("busy", sys.executable, "-c", HOLDS, container=limits)
        uid = made["metadata"]["uid"]
        await place.until_phase("busy", "Running")
        await until(lambda: uid in table.workload())
        await until(lambda: table.workload()[uid].running)
        assert table.workload()[uid].key == class_of("default", "busy", {}, {}, ["tool:1"])
        first = await told(stats, uid, lambda counters: counters.memory_working_set > 60 * MB)
        later = await told(stats, uid, lambda counters: counters.usage_seconds > first[1].usage_seconds + 0.3)
        assert later[0] > first[0]
        assert later[1].some_seconds is not None
        assert later[1].memory_limit == 200 * MB
        await place.delete("busy", grace=0)
        await until(lambda: stats.read(uid, None) is None)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    play(scenario, tmp_path)


async def told(stats: CriStats, uid: str, holds: Callable[[PodCounters], bool]) -> tuple[float, PodCounters]:
    found: list[tuple[float, PodCounters]] = []

    def look() -> bool:
        read = stats.read(uid, None)
        if read is not None and holds(read[1]):
            found.append(read)
        return bool(found)

    await until(look)
    return found[0]


def test_a_recording_has_what_each_pod_used(tmp_path: Path) -> None:
    file = tmp_path / "recording"

    async def scenario(place: Place) -> None:
        made = await place.pod("busy", sys.executable, "-c", HOLDS, container={"image": "tool:1"})
        await place.until_phase("busy", "Running")
        process = recorder(file, place.socket)
        try:
            await until(lambda: any(pod.demand is not None and pod.demand[1] > 60 * MB for pod in recorded(file)))
        finally:
            process.terminate()
            await asyncio.to_thread(process.wait)
        pod = next(pod for pod in recorded(file) if pod.demand is not None)
        assert (pod.uid, pod.key) == (made["metadata"]["uid"], class_of("default", "busy", {}, {}, ["tool:1"]))
        assert pod.use is not None

    play(scenario, tmp_path)
    replay = [sys.executable, "-m", "carico.cli", "replay", str(file), "--json"]
    assert subprocess.run(replay, capture_output=True, check=True).stdout


def recorder(file: Path, socket: Path) -> subprocess.Popen[bytes]:
    words = ["record", str(file), "--rate-hz", "50", "--runtime", "cri", "--cri-socket", str(socket)]
    return subprocess.Popen([sys.executable, "-m", "carico.cli", *words], stdout=subprocess.DEVNULL)


def recorded(file: Path) -> list[MeasuredPod]:
    try:
        return [pod for second in load(file).pods for pod in second.pods]
    except UsageError:
        return []  # its head is not written yet
