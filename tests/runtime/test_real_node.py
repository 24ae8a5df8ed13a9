"""Half a minute of `make bench NAME=real-node`: real pods that measure themselves, and an agent that measures them."""

from __future__ import annotations

import pytest

from harness.cluster.fixtures import needs_node
from harness.node.real_node import measure

pytestmark = [pytest.mark.cluster, pytest.mark.slow, needs_node, pytest.mark.needs("psi")]


def test_every_pod_is_reported_and_none_is_killed() -> None:
    """The benchmark measures how accurate the figures are, on a machine that does nothing else."""
    figures = measure(30.0)
    assert figures["oom_kills"] == 0
    assert figures["pods"] >= 3
    assert 0.0 <= figures["room_within"] <= 1.0
