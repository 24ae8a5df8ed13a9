"""Nothing is left: whichever process is killed with -9, and whenever, `cluster-down` finds the rest.

The moments and victims are drawn from fixed seeds, so a failure can be repeated.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.cluster import builder, remains, runs
from harness.cluster.fixtures import needs_node, needs_scale

pytestmark = [pytest.mark.cluster, needs_scale]
# Long enough to reach every step of a start on an idle machine, including the last.
VICTIMS = ("supervisor", "inner", "none")
LATEST = 9.0  # seconds
PATIENCE = 60.0  # seconds; on a busy machine


@dataclass
class Harness:
    """The command line, with a separate registry, so that the session's other clusters are not affected."""

    registry: Path

    def command(self, *argv: str) -> subprocess.Popen[str]:
        environment = os.environ | {"CARICO_CLUSTER_DIR": str(self.registry)}
        return subprocess.Popen(
            [sys.executable, "-m", *argv], env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

    def run(self, *argv: str) -> str:
        with self.command(*argv) as child:
            said, _ = child.communicate(timeout=240)
        assert child.returncode == 0, said
        return said

    def runs(self) -> list[runs.Run]:
        return runs.known(self.registry)


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(tmp_path / "registry")
    yield harness
    harness.run("harness.cluster.down")


def namespaces(run: runs.Run) -> frozenset[str]:
    return frozenset().union(*(remains.namespaces_of(pid) for pid in runs.processes(run)))


def victim(run: runs.Run, starter: int, role: str) -> int:
    """The process that has this role now; the starter if it does not exist yet."""
    for pid in runs.processes(run):
        with contextlib.suppress(OSError):  # it may end in the meantime
            if f"harness.cluster.{role}".encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                return pid
    return starter


def kill_at(harness: Harness, kind: list[str], moment: float, role: str) -> tuple[list[runs.Run], frozenset[str]]:
    """Start, wait for the moment, kill one process; returns what was known and its namespaces."""
    with harness.command("harness.cluster", "up", *kind) as starter:
        with contextlib.suppress(subprocess.TimeoutExpired):
            starter.wait(moment)
        known = harness.runs()
        seen = frozenset().union(*map(namespaces, known))
        if known:
            os.kill(victim(known[0], starter.pid, role), signal.SIGKILL)
        starter.kill()
    return known, seen


def expect_nothing(harness: Harness, known: list[runs.Run], seen: frozenset[str], before: remains.Machine) -> None:
    """A process that was killed before cluster-down ran may not have ended completely yet."""
    deadline = time.monotonic() + PATIENCE
    while (left := [each for run in known for each in remains.of(run.id, seen)]) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == []
    assert not harness.registry.exists()
    assert remains.machine() == before


@pytest.mark.parametrize("seed", range(3))
def test_scale_mode_killed_at_a_random_moment_leaves_nothing(harness: Harness, seed: int) -> None:
    draw = random.Random(seed)
    before = remains.machine()
    known, seen = kill_at(harness, ["--nodes=3"], draw.uniform(0, LATEST), draw.choice(VICTIMS))
    harness.run("harness.cluster.down")
    expect_nothing(harness, known, seen, before)


@needs_node
@pytest.mark.parametrize("seed", range(4))
def test_node_mode_killed_at_a_random_moment_leaves_nothing(harness: Harness, seed: int) -> None:
    draw = random.Random(seed)
    before = remains.machine()
    known, seen = kill_at(harness, ["--kubelet=1"], draw.uniform(0, LATEST), draw.choice(VICTIMS))
    harness.run("harness.cluster.down")
    expect_nothing(harness, known, seen, before)


@needs_node
def test_clusters_that_run_end_with_cluster_down(harness: Harness) -> None:
    """Two of either mode, side by side, used from the shell, then all ended by one command."""
    before = remains.machine()
    said = [harness.run("harness.cluster", "up", *kind) for kind in (["--nodes=2"], ["--nodes=3"], ["--kubelet=1"])]
    said.append(harness.run("harness.cluster", "up", "--kubelet=1", "--containerd=1.6"))
    known = harness.runs()
    assert len(known) == 4
    nodes = {run.id: nodes_of(run) for run in known}
    assert sorted(nodes.values()) == [1, 1, 2, 3]
    assert all(f"export KUBECONFIG={run.link / 'kubeconfig'}" in "".join(said) for run in known)
    seen = frozenset().union(*map(namespaces, known))
    assert len(seen) >= 6  # three kinds for each of the two sealed ones, and those of their pods
    assert harness.run("harness.cluster.down").count("nothing left") == 4
    expect_nothing(harness, known, seen, before)


def nodes_of(run: runs.Run) -> int:
    (kubectl,) = builder.build(["kubectl"]).values()
    command = [kubectl, "get", "nodes", "--no-headers"]
    environment = os.environ | {"KUBECONFIG": str(run.link / "kubeconfig")} | run.environment
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.count(" Ready ")


@needs_node
def test_a_killed_owner_takes_its_cluster_with_it(harness: Harness) -> None:
    """Without cluster-down: a pytest run that is killed leaves nothing either."""
    owner = """from harness.cluster.cluster import Cluster
with Cluster(kubelet=True) as cluster: print(cluster.run.id, flush=True); input()"""
    environment = os.environ | {"CARICO_CLUSTER_DIR": str(harness.registry)}
    command = [sys.executable, "-c", owner]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        run_id = child.stdout.readline().strip()
        child.kill()
    assert run_id, "the cluster did not start; its error is in the captured stderr"
    deadline = time.monotonic() + PATIENCE
    while (left := remains.of(run_id, frozenset())) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == []
    assert not harness.registry.exists()


def test_cluster_down_without_clusters_reports_that(harness: Harness) -> None:
    assert harness.run("harness.cluster.down") == "no cluster of this checkout is running\n"
