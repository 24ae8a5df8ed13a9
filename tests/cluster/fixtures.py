"""The real parts as pytest fixtures: tests anywhere below tests/ ask for them by name.

A session starts each of them at most once and they die with the session, however it ends. What a machine cannot run
is skipped, and fails under CI=true: mark tests with `needs(...)` for the parts of the machine.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .handle import Containerd


@pytest.fixture(scope="session", params=["1.6", "2"])
def containerd(request: pytest.FixtureRequest) -> Iterator[Containerd]:
    """A real containerd of each version, sealed, without a kubelet. Mark the test needs("root", "namespaces", ...)."""
    with Containerd(version=request.param) as runtime:
        yield runtime
