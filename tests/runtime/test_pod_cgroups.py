"""Where a pod's cgroup is: both drivers, both versions, a kubelet with a root of its own, nodes inside containers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from carico.clock import SystemClock
from carico.runtime.api import containerd_containers_pb2 as containers_pb
from carico.runtime.api import containerd_events_pb2 as events_pb
from carico.runtime.containerd import KIND, SANDBOX_JSON, containerd
from carico.runtime.pod_cgroups import PodCgroups
from carico.runtime.pods import PodTable
from carico.settings import RuntimeSettings
from harness.node.container_pods import eventually, following
from harness.node.fake_containerd import FakeContainerd

UID = "1d2c-77"
SYSTEMD = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1d2c_77.slice"


def tree(root: Path, *folders: str) -> PodCgroups:
    for folder in folders:
        (root / "cgroup" / folder.strip("/")).mkdir(parents=True)
    return PodCgroups(root / "cgroup", root / "proc")


def process(root: Path, pid: int, text: str) -> None:
    (root / "proc" / str(pid)).mkdir(parents=True)
    (root / "proc" / str(pid) / "cgroup").write_text(text)


@pytest.mark.parametrize(
    ("folder", "parent", "found"),
    [
        (f"kubepods/burstable/pod{UID}", f"/kubepods/burstable/pod{UID}", f"/kubepods/burstable/pod{UID}"),
        (f"memory/kubepods/pod{UID}", f"/kubepods/pod{UID}", f"/kubepods/pod{UID}"),
        (f"memory/root/of/kubepods/pod{UID}", f"/root/of/kubepods/pod{UID}", f"/root/of/kubepods/pod{UID}"),
        (SYSTEMD, SYSTEMD.rpartition("/")[2], SYSTEMD),
        (f"unified{SYSTEMD}", SYSTEMD.rpartition("/")[2], SYSTEMD),
    ],
    ids=["v2 cgroupfs", "v1 cgroupfs", "a kubelet with a cgroup root", "v2 systemd", "hybrid systemd"],
)
def test_the_cgroup_given_by_the_kubelet_is_used(tmp_path: Path, folder: str, parent: str, found: str) -> None:
    assert tree(tmp_path, folder).find(UID, parent) == found


def test_an_agent_that_sees_a_branch_of_the_tree_finds_the_end_of_the_path(tmp_path: Path) -> None:
    assert (
        tree(tmp_path, f"kubepods/pod{UID}").find(UID, f"/docker/5e/kubelet/kubepods/pod{UID}") == f"/kubepods/pod{UID}"
    )


@pytest.mark.parametrize("text", ["0::{}/s1\n", "9:name=systemd:/x\n4:memory:{}/s1\n2:cpu,cpuacct:{}/s1\n"])
def test_a_node_in_a_container_seen_from_outside_is_found_by_its_process(tmp_path: Path, text: str) -> None:
    whole = f"/docker/5e/kubelet/kubepods/pod{UID}"
    cgroups = tree(tmp_path, whole)
    process(tmp_path, 7, text.replace("{}", whole))
    assert cgroups.find(UID, f"/kubelet/kubepods/pod{UID}") is None
    assert cgroups.find(UID, f"/kubelet/kubepods/pod{UID}", 7) == whole


@pytest.mark.parametrize("parent", ["", "/", "/k8s.io", "/kubepods", f"/kubepods/../pod{UID}", "/kubepods/pod1d2c"])
def test_a_cgroup_that_is_not_the_pods_alone_is_none(tmp_path: Path, parent: str) -> None:
    cgroups = tree(tmp_path, "k8s.io/s1", "kubepods/pod1d2c", f"pod{UID}x")
    process(tmp_path, 7, "0::/k8s.io/s1\n")
    assert cgroups.find(UID, parent, 7) is None


def test_a_tree_that_cannot_be_seen_is_none(tmp_path: Path) -> None:
    assert PodCgroups(tmp_path / "none", tmp_path / "none").find(UID, f"/kubepods/pod{UID}", 7) is None


def sandbox(uid: str, parent: str) -> Any:
    container = containers_pb.Container(id=f"box-{uid}", labels={KIND: "sandbox"})
    config = {"metadata": {"uid": uid, "namespace": "n"}, "labels": {"app": "web"}, "linux": {"cgroup_parent": parent}}
    container.extensions[SANDBOX_JSON].value = json.dumps({"Metadata": {"Config": config}}).encode()
    return container


def test_containerd_has_it_in_the_sandbox_or_in_its_task(place: Path) -> None:
    cgroups = tree(place, "kubepods/podaa", "outer/kubepods/podbb")
    process(place, 7, "0::/outer/kubepods/podbb/s1\n")

    async def scenario() -> None:
        path, fake = place / "c.sock", FakeContainerd(sandbox("aa", "/kubepods/podaa"))
        source = containerd(path, PodTable(RuntimeSettings()), SystemClock(), cgroups)
        async with fake.on(path), following(source):
            assert source.table.workload()["aa"].cgroup == "/kubepods/podaa"
            fake.running["box-bb"] = sandbox("bb", "/kubepods/podbb")
            fake.say("/containers/create", events_pb.ContainerCreate(id="box-bb"))
            fake.say("/tasks/start", events_pb.TaskStart(container_id="box-bb", pid=7))
            await eventually(lambda: "bb" in source.table.workload(), "bb is counted")
            assert source.table.workload()["bb"].cgroup == "/outer/kubepods/podbb"

    asyncio.run(scenario())
