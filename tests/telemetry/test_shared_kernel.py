"""Signs that several nodes share one kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from carico.telemetry.shared_kernel import kubepods_trees, why_shared


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    (tmp_path / "proc/2").mkdir(parents=True)
    (tmp_path / "proc/2/comm").write_text("kthreadd\n")
    return tmp_path


def pods(machine: Path, *groups: str) -> None:
    for group in groups:
        (machine / "cgroup" / group).mkdir(parents=True)


def why(machine: Path) -> str | None:
    return why_shared(machine / "proc", machine / "cgroup")


@pytest.mark.parametrize(
    "groups",
    [
        (),
        ("kubepods/besteffort/pod1", "kubepods/pod2"),
        ("memory/kubepods/burstable/pod1", "cpu/kubepods/burstable/pod1"),
        ("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice",),
        ("kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod1.slice",),
        ("kubepods/pod1", "left-behind/kubepods/besteffort"),  # a cluster that has ended
    ],
)
def test_a_machine_of_its_own(machine: Path, groups: tuple[str, ...]) -> None:
    pods(machine, *groups)
    assert why(machine) is None


@pytest.mark.parametrize("second", ["bash\n", None])
def test_a_node_in_a_container(machine: Path, second: str | None) -> None:
    """In a process namespace of its own the second process is anybody, or has ended."""
    (machine / "proc/2/comm").unlink()
    if second:
        (machine / "proc/2/comm").write_text(second)
    assert (why(machine) or "").startswith("this node is a container: process 2 of")


@pytest.mark.parametrize(
    ("files", "is_alone"),
    [
        (("cgroup.controllers",), True),
        (("cgroup.controllers", "cgroup.events"), False),  # the root of a cgroup namespace: a node in a container
        (("memory/release_agent",), True),
        (("memory/tasks",), False),
        ((), False),
    ],
)
def test_an_agent_in_a_pod_decides_by_the_cgroup_tree(machine: Path, files: tuple[str, ...], is_alone: bool) -> None:
    """In a pod process 2 is never kthreadd."""
    (machine / "proc/2/comm").unlink()
    (machine / "proc/self/ns").mkdir(parents=True)
    (machine / "proc/self/ns/pid").symlink_to("pid:[4026532201]")
    for file in files:
        (machine / "cgroup" / file).parent.mkdir(parents=True, exist_ok=True)
        (machine / "cgroup" / file).touch()
    assert (why(machine) is None) == is_alone


def test_two_kubelets_on_one_machine(machine: Path) -> None:
    pods(machine, "one/kubepods/besteffort/pod1", "two/kubepods/pod2")
    assert why(machine) == "several kubelets have pods here: /one/kubepods, /two/kubepods"


def test_no_cgroups_at_all(tmp_path: Path) -> None:
    assert kubepods_trees(tmp_path / "none") == []
