"""The bare runtime: each version runs a container, and what it created ends with it."""

from __future__ import annotations

import pytest

from harness.cluster.fixtures import needs_containerd
from harness.cluster.handle import Containerd
from harness.cluster.runs import hierarchies

pytestmark = [pytest.mark.cluster, needs_containerd]


def test_it_runs_a_container_of_the_work_image(containerd: Containerd) -> None:
    place = ["--cgroup", f"{containerd.cgroup_parent}/one"]
    said = containerd.ctr("run", "--rm", *place, containerd.busybox_image, "one", "/bin/sh", "-c", "echo $((6*7))")
    assert said.strip() == "42"


def test_its_socket_is_reachable_from_the_host(containerd: Containerd) -> None:
    assert containerd.socket.is_socket()
    assert len(str(containerd.socket)) < 108


def test_its_cgroups_are_in_a_branch_of_their_own(containerd: Containerd) -> None:
    assert all((top / containerd.cgroup_parent.lstrip("/")).is_dir() for top in hierarchies())
