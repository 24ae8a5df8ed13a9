"""Pods out of cgroup trees of both drivers and versions. A folder stands in for the tree: it has the same shape."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carico.runtime.cgroups import FULL_LOOK_EVERY, LOOK_EVERY, CgroupSource, pod_uid
from carico.runtime.pods import PodTable
from carico.settings import RuntimeSettings
from carico.testing import ManualClock
from carico.types import PodCount

A, B, C = (f"{digit * 8}-0000-4000-8000-{digit * 12}" for digit in "abc")


def systemd(uid: str, qos: str = "") -> str:
    middle = f"kubepods-{qos}.slice/" if qos else ""
    return f"kubepods.slice/{middle}kubepods-{qos + '-' if qos else ''}pod{uid.replace('-', '_')}.slice"


LAYOUTS = {
    "v2 cgroupfs": (f"kubepods/pod{A}", f"kubepods/burstable/pod{B}", f"kubepods/besteffort/pod{C}"),
    "v2 systemd": (systemd(A), systemd(B, "burstable"), systemd(C, "besteffort")),
    "v1 cgroupfs": tuple(
        f"memory/kubepods/{where}" for where in (f"pod{A}", f"burstable/pod{B}", f"besteffort/pod{C}")
    ),
    "v1 systemd": tuple(f"cpu/{where}" for where in (systemd(A), systemd(B, "burstable"), systemd(C, "besteffort"))),
    "kind": tuple(
        f"kubelet.slice/kubelet-{systemd(uid, qos).replace('kubepods-', 'kubelet-kubepods-')}"
        for uid, qos in ((A, ""), (B, "burstable"), (C, "besteffort"))
    ),
}


def source_at(root: Path, settle: float = 2.0) -> tuple[CgroupSource, ManualClock]:
    clock = ManualClock()
    return CgroupSource(root, PodTable(RuntimeSettings(settle=settle)), clock), clock


@pytest.mark.parametrize("layout", LAYOUTS)
def test_pods_of_every_class_and_layout(tmp_path: Path, layout: str) -> None:
    for pod in LAYOUTS[layout]:
        (tmp_path / pod / "cri-containerd-1.scope").mkdir(parents=True)
        (tmp_path / pod / "cgroup.procs").write_text("")
    source, clock = source_at(tmp_path)
    source.look()
    assert source.table.counted() == {A, B, C}
    assert source.table.count(clock.monotonic()).running == 3


def test_a_pod_without_containers_is_not_counted(tmp_path: Path) -> None:
    (tmp_path / f"kubepods/pod{A}").mkdir(parents=True)
    source, _ = source_at(tmp_path)
    source.look()
    assert source.table.counted() == frozenset()


def test_changes_are_seen_at_the_next_look_and_settle(tmp_path: Path) -> None:
    (tmp_path / f"kubepods/burstable/pod{A}/one").mkdir(parents=True)
    source, clock = source_at(tmp_path)
    source.look()
    clock.advance(LOOK_EVERY)
    (tmp_path / f"kubepods/burstable/pod{B}/two").mkdir(parents=True)
    source.look()
    assert source.table.counted() == {A, B}
    clock.advance(1.6)
    assert source.table.count(clock.monotonic()) == PodCount(2, churn=False, unsettled=1)
    shutil.rmtree(tmp_path / f"kubepods/burstable/pod{A}")
    source.look()
    assert source.table.counted() == {B}
    assert source.table.finished(clock.monotonic()) == {A}
    assert source.table.count(clock.monotonic()).churn


def test_a_new_container_in_an_old_pod_unsettles_it(tmp_path: Path) -> None:
    (tmp_path / f"kubepods/pod{A}/one").mkdir(parents=True)
    source, clock = source_at(tmp_path)
    source.look()
    clock.advance(5)
    (tmp_path / f"kubepods/pod{A}/two").mkdir()
    source.look()
    assert source.table.count(clock.monotonic()).unsettled == 1


def test_a_pod_in_the_place_of_another_is_found_by_the_full_look(tmp_path: Path) -> None:
    (tmp_path / f"kubepods/pod{A}/one").mkdir(parents=True)
    source, clock = source_at(tmp_path)
    source.look()
    os.rename(tmp_path / f"kubepods/pod{A}/one", tmp_path / f"kubepods/pod{A}/two")
    clock.advance(FULL_LOOK_EVERY)
    source.look()
    assert source.table.count(clock.monotonic()) == PodCount(1, churn=True, unsettled=1)


def test_a_missing_tree_is_a_problem_until_it_comes(tmp_path: Path) -> None:
    async def scenario() -> None:
        source, clock = source_at(tmp_path)
        run = asyncio.create_task(source.run())
        await clock.turn(0)
        assert source.problem == f"there is no kubepods cgroup below {tmp_path}"
        (tmp_path / f"kubepods/pod{A}/one").mkdir(parents=True)
        await clock.turn(LOOK_EVERY)
        assert source.problem is None
        shutil.rmtree(tmp_path / "kubepods")
        await clock.turn(LOOK_EVERY)
        assert source.problem is not None
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)

    asyncio.run(scenario())


def test_the_uid_of_a_static_pod_is_a_plain_hash() -> None:
    assert pod_uid("pod0123456789abcdef0123456789abcdef") == "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize("name", ["podman", "kubepods", "kubepods.slice", "burstable", "pod", "xpodab", "pod-ab"])
def test_folders_that_are_no_pods(name: str) -> None:
    assert pod_uid(name) is None


@given(st.uuids(), st.sampled_from(["", "burstable-", "besteffort-"]))
def test_the_uid_survives_both_namings(uid: object, qos: str) -> None:
    assert pod_uid(f"pod{uid}") == str(uid)
    assert pod_uid(f"kubepods-{qos}pod{str(uid).replace('-', '_')}.slice") == str(uid)
