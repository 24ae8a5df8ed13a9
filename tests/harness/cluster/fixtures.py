"""Real clusters and containerd as pytest fixtures: tests anywhere below tests/ request them by name.

A session starts each of them at most once, on first use, and they end with the session, however it ends. Mark tests
with `cluster` and with the features of the machine that they need:

    pytestmark = [pytest.mark.cluster, needs_containerd]

Tests share clusters: each uses a separate namespace (`with cluster.namespace() as name`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from harness.embedded.embedded_cluster import EmbeddedCluster

from . import binaries, builder
from .cluster import Cluster
from .errors import ClusterError
from .handle import Containerd

needs_containerd = pytest.mark.needs("root", "namespaces", "containerd", "cni", "busybox", "go")
needs_node = pytest.mark.needs("root", "namespaces", "containerd", "cni", "busybox", "nftables", "go")
needs_scale = pytest.mark.needs("go")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build what the selected tests need before the first of them runs: the output is visible and no test waits."""
    if session.config.option.collectonly or not any(item.get_closest_marker("cluster") for item in session.items):
        return
    reporter: pytest.TerminalReporter = session.config.pluginmanager.getplugin("terminalreporter")
    names = [*binaries.CONTROL_PLANE, "kwok"]
    if os.geteuid() == 0:
        names += [*binaries.NODE, *binaries.CONTAINERD]
    try:
        builder.build(names, say=reporter.write_line)
    except ClusterError as error:  # the tests that need them will report it too
        reporter.write_line(f"cluster: {error}")


@pytest.fixture(scope="session", params=["1.6", "2"])
def containerd(request: pytest.FixtureRequest) -> Iterator[Containerd]:
    """A real containerd of each version, sealed, without a kubelet."""
    with Containerd(version=request.param) as runtime:
        yield runtime


@pytest.fixture(scope="session")
def scale_cluster() -> Iterator[Callable[[int], Cluster]]:
    """Returns a control plane with this many kwok nodes: `scale_cluster(20)`. One per number and session."""
    started: dict[int, Cluster] = {}
    with ExitStack() as stack:

        def cluster(nodes: int) -> Cluster:
            if nodes not in started:
                started[nodes] = stack.enter_context(Cluster(nodes))
            return started[nodes]

        yield cluster


# Each test of a scheduler or a client runs on both: the embedded cluster always, the real one if it can be built.
REAL = pytest.param("real", marks=[pytest.mark.cluster, needs_scale])
BOTH = ["embedded", REAL]
# For what only the real one has: kube-scheduler, the volume controller.
only_real = pytest.mark.parametrize("any_cluster", [REAL], indirect=True, scope="session")
AnyCluster = Callable[[int], Cluster | EmbeddedCluster]


@pytest.fixture(scope="session")
def embedded_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], EmbeddedCluster]]:
    """Returns an embedded cluster with this many simulated nodes, named like kwok's."""
    started: dict[int, EmbeddedCluster] = {}

    def cluster(nodes: int) -> EmbeddedCluster:
        if nodes not in started:
            started[nodes] = EmbeddedCluster(tmp_path_factory.mktemp("embedded"), nodes)
        return started[nodes]

    yield cluster
    for made in started.values():
        made.stop()


@pytest.fixture(scope="session", params=BOTH)
def any_cluster(request: pytest.FixtureRequest) -> AnyCluster:
    """A cluster of either kind with this many nodes: `any_cluster(20)`."""
    name = "scale_cluster" if request.param == "real" else "embedded_cluster"
    made: AnyCluster = request.getfixturevalue(name)
    return made


@pytest.fixture(scope="session")
def node_cluster() -> Iterator[Cluster]:
    """A sealed cluster with one real node."""
    with Cluster(kubelet=True) as cluster:
        yield cluster
