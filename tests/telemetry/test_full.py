"""How much memory pods may fill, by what is known of the node."""

from __future__ import annotations

from pathlib import Path

import pytest

from carico.agent.full import FullAmounts
from carico.runtime import PodTable
from carico.runtime.pods import PodListing, Sandbox
from carico.settings import AgentSettings
from carico.telemetry.full import EVICTION, full_memory, limit_above
from carico.types import NodeSize

GIB = 2.0**30
EIGHT = NodeSize(cores=4, memory_bytes=8 * GIB)


def test_without_a_limit_the_kubelets_default_threshold_is_kept_free() -> None:
    """99 % of 8 GiB leave 82 MiB: a kubelet evicts before a node is that full."""
    full = full_memory(EIGHT)
    assert full.source == "machine"
    assert 8 * GIB - full.bytes > EVICTION + 0.005 * 8 * GIB


@pytest.mark.parametrize("size", [64 * 2.0**20, 150 * 2.0**20])
def test_a_tiny_machine_keeps_half_for_pods(size: float) -> None:
    assert full_memory(NodeSize(cores=1, memory_bytes=size)).bytes == size / 2


def test_invalid_values_are_ignored() -> None:
    for allocatable in (0.0, 9 * GIB):
        assert full_memory(EIGHT, allocatable=allocatable).source == "machine"
    assert full_memory(EIGHT, kubepods=2.0**62).source == "machine"


def test_the_setting_is_an_upper_bound() -> None:
    assert full_memory(EIGHT, allocatable=7 * GIB, ratio=0.5) == (4 * GIB, "setting")
    assert full_memory(EIGHT, allocatable=3 * GIB, ratio=0.5) == (3 * GIB, "allocatable")


@pytest.mark.parametrize("version", [1, 2])
def test_the_limit_of_the_group_that_holds_all_pods(tmp_path: Path, version: int) -> None:
    top = tmp_path / "memory" if version == 1 else tmp_path
    name = "memory.limit_in_bytes" if version == 1 else "memory.max"
    if version == 1:
        for tree in ("cpu", "cpuacct", "memory"):
            (tmp_path / tree).mkdir()
            (tmp_path / tree / "cgroup.procs").touch()
    else:
        (tmp_path / "cgroup.controllers").touch()
    (top / "cluster/kubepods/burstable/pod1").mkdir(parents=True)
    (top / "cluster/kubepods" / name).write_text(f"{int(6 * GIB)}\n")
    (top / "cluster/kubepods/burstable" / name).write_text(f"{int(GIB)}\n")
    (top / "cluster/kubepods/burstable/pod1" / name).write_text("4096\n")
    assert limit_above(tmp_path, ["/cluster/kubepods/burstable/pod1"]) == 6 * GIB
    assert limit_above(tmp_path, []) is None


class Received:
    def __init__(self) -> None:
        self.calls: list[tuple[float, ...]] = []

    def __call__(self, amounts: tuple[float, ...], size: NodeSize) -> None:  # noqa: ARG002
        self.calls.append(amounts)


def test_the_pipeline_gets_every_change_once(tmp_path: Path) -> None:
    settings, received = AgentSettings(cgroup_root=tmp_path), Received()
    full = FullAmounts(settings, PodTable(settings), received)
    full.update(EIGHT)
    full.update(EIGHT)
    full.allocatable(NodeSize(cores=3.5, memory_bytes=7 * GIB))
    full.allocatable(NodeSize(cores=3.5, memory_bytes=7 * GIB))
    assert [round(amounts[1] / GIB, 2) for amounts in received.calls] == [7.82, 7.0]
    assert received.calls[-1][0] == pytest.approx(2 * 4 * 0.99)
    assert full.memory == (7 * GIB, "allocatable")


def test_cpu_by_utilisation_alone_holds_one_thread_per_core(tmp_path: Path) -> None:
    settings = AgentSettings(cgroup_root=tmp_path, cpu="utilisation", full={"cpu": 0.5})
    full = FullAmounts(settings, PodTable(settings), Received())
    full.update(EIGHT)
    assert full.amounts[0] == 2.0


def test_pods_with_cgroups_tell_the_limit_above_them(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").touch()
    (tmp_path / "kubepods").mkdir()
    (tmp_path / "kubepods/memory.max").write_text(f"{int(5 * GIB)}\n")
    settings = AgentSettings(cgroup_root=tmp_path)
    table = PodTable(settings)
    table.replace_all(PodListing({"s": Sandbox("u", workload=True, cgroup="/kubepods/podu")}, {}, {"s": 0.0}), 0.0)
    full = FullAmounts(settings, table, Received())
    full.update(EIGHT)
    assert full.memory == (5 * GIB, "kubepods")
