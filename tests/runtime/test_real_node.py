"""A minute of `make bench NAME=real-node`: real pods that measure themselves, and an agent that measures them."""

from __future__ import annotations

import pytest

from bench import real_node
from harness.cluster.fixtures import needs_node

pytestmark = [pytest.mark.cluster, pytest.mark.slow, needs_node, pytest.mark.needs("psi")]


def test_every_pod_is_reported_and_none_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The benchmark measures how accurate the figures are, on a machine that does nothing else."""
    monkeypatch.setattr(real_node, "SECONDS", 60.0)
    figures = real_node.run()
    assert figures["oom_kills"] == 0
    assert figures["pods"] >= 3
    assert 0.0 <= figures["room_within"] <= 1.0
