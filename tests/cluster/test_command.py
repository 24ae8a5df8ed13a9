"""Bad input to `make cluster` ends with one clear line and starts nothing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from harness.cluster.__main__ import main
from harness.cluster.cluster import check
from harness.cluster.errors import ClusterError
from harness.cluster.runs import CHECKOUT


@pytest.mark.parametrize("nodes", ["abc", "-1", "1.5", "1e3", "50001", "10 nodes"])
def test_a_wrong_number_of_nodes(nodes: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up", f"--nodes={nodes}"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("cluster: ")
    assert said.endswith("give a whole number from 0 to 50000\n")
    assert said.count("\n") == 1
    assert nodes in said


def test_a_wrong_switch(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up", "--kubelet=perhaps"]) == 2
    line = "cluster: KUBELET=perhaps is neither yes nor no: give KUBELET=1 or leave it out\n"
    assert capsys.readouterr().err == line


def test_an_unknown_option_ends_with_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["up", "--nods=3"])
    assert "--nods=3" in capsys.readouterr().err


def test_a_real_node_without_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ClusterError, match=r"^a real node needs root"):
        check(0, kubelet=True)


def test_a_real_node_without_its_programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr("harness.cluster.cluster.SBIN", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterError, match=r"needs unshare, .*busybox \(Debian packages: busybox-static iproute2 nft"):
        check(0, kubelet=True)


def test_the_make_target_passes_its_variables_on() -> None:
    done = subprocess.run(["make", "-C", str(CHECKOUT), "cluster", "NODES=abc"], capture_output=True, text=True)
    assert done.returncode == 2
    lines = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert lines == ["cluster: NODES=abc is not a number of nodes: give a whole number from 0 to 50000"]
