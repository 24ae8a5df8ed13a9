"""Finding one's own group in trees of many shapes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from carico.errors import SourceMissing
from carico.telemetry.cgroup import find_place

HYBRID = (
    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
)


def place(tmp_path: Path, cgroup: str, mountinfo: str, controller: str = "memory") -> Any:
    (tmp_path / "self").mkdir()
    (tmp_path / "self/cgroup").write_text(cgroup)
    (tmp_path / "self/mountinfo").write_text(mountinfo)
    return find_place(tmp_path, Path("/sys/fs/cgroup"), controller)


def folders(*names: str) -> tuple[Path, ...]:
    return tuple(Path("/sys/fs/cgroup") / name for name in names)


def test_mixed_machine_takes_v1_and_lists_the_groups_above(tmp_path: Path) -> None:
    found = place(tmp_path, "4:memory:/a/b\n0::/\n", HYBRID)
    assert found == (1, folders("memory/a/b", "memory/a", "memory"))


def test_mount_that_shows_a_part_of_the_tree(tmp_path: Path) -> None:
    mount = "35 31 0:32 /kube/pod1 /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    assert place(tmp_path, "4:memory:/kube/pod1/c\n", mount).folders == folders("memory/c", "memory")


def test_group_outside_the_namespace(tmp_path: Path) -> None:
    mount = "35 31 0:32 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n"
    assert place(tmp_path, "0::/../other\n", mount) == (2, folders(""))


def test_mounted_elsewhere(tmp_path: Path) -> None:
    mount = "35 31 0:32 / /mnt/my\\040groups rw - cgroup2 cgroup rw\n"
    assert place(tmp_path, "0::/x\n", mount).folders == (Path("/mnt/my groups/x"), Path("/mnt/my groups"))


def test_no_tree(tmp_path: Path) -> None:
    with pytest.raises(SourceMissing, match="memory"):
        place(tmp_path, "4:pids:/\n", "35 31 0:32 / /x rw - cgroup cgroup rw,pids\n")
