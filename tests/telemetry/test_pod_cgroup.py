"""One pod's cgroup in all shapes that machines have: texts in files, where the kernel's would be."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from carico.errors import SourceError, SourceMissing
from carico.telemetry.pod_cgroup import LOOK_EVERY, STAT_EVERY, CgroupStats, PodGroup, find_trees
from carico.types import PodCounters

POD = "kubepods/burstable/pod1d2c-77"
MIB = 2**20
# As kernels print them: v2 by 6.1, v1 by 6.18, without the fields that are not read.
V2 = {
    "cpu.stat": "usage_usec 2500000\nuser_usec 2000000\nsystem_usec 500000\nnr_periods 30\nnr_throttled 12\n"
    "throttled_usec 750000\nnr_bursts 0\nburst_usec 0\n",
    "cpu.pressure": "some avg10=1.53 avg60=0.87 avg300=0.22 total=1250000\n"
    "full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
    "cpu.max": "50000 100000\n",
    "memory.current": f"{90 * MIB}\n",
    "memory.stat": f"anon {60 * MIB}\nfile {25 * MIB}\nkernel 1138688\ninactive_anon 0\nactive_anon 1\n"
    f"inactive_file {20 * MIB}\nactive_file 5242880\n",
    "memory.swap.current": f"{3 * MIB}\n",
    "memory.max": f"{200 * MIB}\n",
}
V1 = {
    "cpu/cpu.stat": "nr_periods 30\nnr_throttled 12\nthrottled_time 750000000\nnr_bursts 0\nburst_time 0\n",
    "cpu/cpu.cfs_quota_us": "50000\n",
    "cpu/cpu.cfs_period_us": "100000\n",
    "cpuacct/cpuacct.usage": "2500000000\n",
    "memory/memory.usage_in_bytes": f"{90 * MIB}\n",
    "memory/memory.stat": "cache 0\ninactive_file 4096\nhierarchical_memory_limit 9223372036854771712\n"
    f"total_swap {3 * MIB}\ntotal_inactive_file {20 * MIB}\ntotal_active_file 0\n",
    "memory/memory.limit_in_bytes": f"{200 * MIB}\n",
}
ALL = PodCounters(2.5, 1.25, 0.75, 70 * MIB, 3 * MIB, 200 * MIB, 0.5)


class Host:
    """A tree of control groups out of text files."""

    def __init__(self, root: Path, kind: str) -> None:
        self.root, self.kind = root, kind
        if kind == "v2":
            self.write("cgroup.controllers", "cpu memory\n")
            for name, text in V2.items():
                self.write(f"{POD}/{name}", text)
            return
        for name, text in V1.items():
            tree, file = name.split("/")
            self.write(f"{tree}/cgroup.procs", "")
            self.write(f"{tree}/{POD}/{file}", text)
        if kind == "hybrid":
            self.write("unified/cgroup.controllers", "\n")
            self.write(f"unified/{POD}/cpu.pressure", V2["cpu.pressure"])

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def group(self) -> PodGroup:
        return PodGroup(find_trees(self.root), "/" + POD)

    @property
    def cpu(self) -> str:
        return POD if self.kind == "v2" else f"cpu/{POD}"


@pytest.fixture(params=["v1", "v2", "hybrid"])
def host(tmp_path: Path, request: pytest.FixtureRequest) -> Host:
    return Host(tmp_path, request.param)


def test_every_counter_of_every_shape(host: Host) -> None:
    expected = ALL._replace(some_seconds=None) if host.kind == "v1" else ALL
    assert host.group().read(0.0) == pytest.approx(expected)


def test_no_limits(host: Host) -> None:
    if host.kind == "v2":
        host.write(f"{POD}/cpu.max", "max 100000\n")
        host.write(f"{POD}/memory.max", "max\n")
    else:
        host.write(f"cpu/{POD}/cpu.cfs_quota_us", "-1\n")
        host.write(f"memory/{POD}/memory.limit_in_bytes", "9223372036854771712\n")
    counters = host.group().read(0.0)
    assert (counters.memory_limit, counters.cpu_limit_cores) == (None, None)


def test_a_container_with_a_limit_of_its_own_is_throttled_beside_its_pod(host: Host) -> None:
    """Throttled time of a group is not in that of the group above."""
    group = host.group()
    assert group.read(0.0).throttled_seconds == 0.75
    quota = {"cpu.max": "20000 100000\n"} if host.kind == "v2" else {"cpu.cfs_quota_us": "20000\n"}
    stat = V2["cpu.stat"] if host.kind == "v2" else V1["cpu/cpu.stat"]
    for name, text in {**quota, "cpu.cfs_period_us": "100000\n", "cpu.stat": stat}.items():
        host.write(f"{host.cpu}/limited/{name}", text)
    host.write(f"{host.cpu}/free/cpu.stat", stat)
    host.write(f"{host.cpu}/free/cpu.max", "max 100000\n")
    assert group.read(1.0).throttled_seconds == 1.5, "seen as soon as the folder has one more"


def test_limits_that_change_are_seen_after_a_while(host: Host) -> None:
    group = host.group()
    group.read(0.0)
    name, text = ("cpu.max", "80000 100000\n") if host.kind == "v2" else ("cpu.cfs_quota_us", "80000\n")
    host.write(f"{host.cpu}/{name}", text)
    assert group.read(1.0).cpu_limit_cores == 0.5
    assert group.read(1.0 + LOOK_EVERY).cpu_limit_cores == 0.8


def test_memory_stat_is_read_when_the_memory_in_use_changes(tmp_path: Path) -> None:
    """A file that is read grows the cache and not the working set, at once; a stat alone that changes can wait."""
    host = Host(tmp_path, "v2")
    group = host.group()
    assert group.read(0.0).memory_working_set == 70 * MIB
    host.write(f"{POD}/memory.current", f"{890 * MIB}\n")
    host.write(f"{POD}/memory.stat", f"anon 1\ninactive_file {820 * MIB}\n")
    assert group.read(1.0).memory_working_set == 70 * MIB
    host.write(f"{POD}/memory.stat", f"anon 1\ninactive_file {800 * MIB}\n")
    assert group.read(2.0).memory_working_set == 70 * MIB
    assert group.read(1.0 + STAT_EVERY).memory_working_set == 90 * MIB


def test_more_inactive_cache_than_memory_is_no_negative_working_set(tmp_path: Path) -> None:
    host = Host(tmp_path, "v2")
    host.write(f"{POD}/memory.current", "4096\n")
    assert host.group().read(0.0).memory_working_set == 0


def test_no_pressure_and_no_swap_accounting_are_ordinary(tmp_path: Path) -> None:
    host = Host(tmp_path, "v2")
    (tmp_path / POD / "cpu.pressure").unlink()
    (tmp_path / POD / "memory.swap.current").unlink()
    group = host.group()
    for now in (0.0, 20.0):
        assert group.read(now)[1:5] == (None, 0.75, 70 * MIB, 0)


def test_cpu_and_cpuacct_mounted_together(tmp_path: Path) -> None:
    host = Host(tmp_path, "v1")
    (tmp_path / "cpu").rename(tmp_path / "cpu,cpuacct")
    shutil.rmtree(tmp_path / "cpuacct")
    host.write(f"cpu,cpuacct/{POD}/cpuacct.usage", "2500000000\n")
    assert host.group().read(0.0).usage_seconds == 2.5


def test_no_trees(tmp_path: Path) -> None:
    with pytest.raises(SourceMissing, match="no cgroup trees"):
        find_trees(tmp_path)


@pytest.mark.parametrize("text", ["", "usage_usec\n", "usage_usec -5\n", "usage_usec x\n", "system_usec 3\n"])
def test_texts_that_make_no_sense_are_refused(tmp_path: Path, text: str) -> None:
    host = Host(tmp_path, "v2")
    host.write(f"{POD}/cpu.stat", text)
    with pytest.raises(SourceError):
        host.group().read(0.0)


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_bounded_number_of_pods_keeps_its_files_open(tmp_path: Path) -> None:
    host = Host(tmp_path, "v2")
    for i in range(8):
        shutil.copytree(tmp_path / POD, tmp_path / f"kubepods/pod{i}")
    before = open_files()
    stats = CgroupStats(host.root, lambda: 5.0, most_open=3)
    for _ in range(2):
        assert [stats.read(f"u{i}", f"/kubepods/pod{i}") for i in range(8)] == [(5.0, ALL)] * 8
    assert open_files() - before == 3 * 5
    stats.keep([f"u{i}" for i in range(2, 8)])
    assert open_files() - before == 1 * 5
    stats.read("u7", "/kubepods/pod7")
    assert open_files() - before > 1 * 5, "another takes the free place"
    stats.keep([])
    assert open_files() == before


def test_a_pod_whose_group_is_gone_has_no_counters_and_no_open_files(tmp_path: Path) -> None:
    host = Host(tmp_path, "v2")
    before = open_files()
    stats = CgroupStats(host.root, lambda: 5.0, most_open=3)
    assert stats.read("u", POD) == (5.0, ALL)
    shutil.rmtree(tmp_path / POD)
    assert stats.read("u", POD) is None
    assert stats.read("none", None) is None
    assert open_files() == before
    Host(tmp_path, "v2")
    assert stats.read("u", POD) == (5.0, ALL)
